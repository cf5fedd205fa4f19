"""Repetitions of a probe as rates: links, all-reduce curves, disks that burst."""

from __future__ import annotations

import numpy as np
import pytest
from probe_builder import GB, disk, host, links, ring
from readings import found

from stash.analysis.findings.rates import (
    copy_rate,
    find_burst,
    make_curve,
    rate_of,
    read_rate,
    sustained_rate,
)
from stash.core.records.host import Copy, Exchange, Timing


def test_a_copys_rate_is_that_of_its_largest_messages():
    small = Timing(bytes=1000, seconds=(1.0,))
    large = Timing(bytes=4000, seconds=(2.0, 2.0, 1.0))
    assert copy_rate(Copy(source="host", target="host", timings=(small, large))).value == 2000


def test_a_streams_rate_counts_every_spell_also_the_slow_ones():
    spells = tuple(Timing(bytes=size, seconds=(1.0,)) for size in (100, 10, 90))
    assert rate_of(spells).value == 90


def test_a_disk_that_hands_out_bytes_in_portions_has_the_rate_of_the_whole_run():
    # Bytes come ten times a second: a repetition waits for two portions or for three, and the median for two.
    seconds = [0.2, 0.2, 0.3] * 3
    rates = [0.14e6 / one for one in seconds]
    assert read_rate(disk(*rates)).value == pytest.approx(0.14e6 * len(seconds) / sum(seconds))
    # from memory: the usual one
    assert read_rate(disk(*rates, cold=False)).value == pytest.approx(0.14e6 / 0.2)


def test_bandwidths_are_those_of_nccl_tests():
    exchange = Exchange(
        backend="nccl", nodes=1, ranks=4, timings=(Timing(bytes=1000, seconds=(0.5, 0.5)),)
    )
    size = make_curve(exchange, "h").sizes[0]
    assert size.algorithm_bytes_per_second.value == 2000
    assert size.bus_bytes_per_second.value == pytest.approx(2000 * 2 * 3 / 4)


@pytest.mark.parametrize(
    ("ranks", "alpha", "beta"), [(2, 20e-6, 1 * GB), (8, 5e-6, 100 * GB), (16, 1e-3, 0.1 * GB)]
)
def test_the_fit_finds_the_rings_latency_and_bandwidth_again(ranks, alpha, beta):
    fit = make_curve(ring(ranks, alpha, beta, noise=0.0), "h").fit
    assert fit.is_alpha_beta
    assert fit.alpha_seconds == pytest.approx(alpha, rel=1e-6)
    assert fit.bytes_per_second == pytest.approx(beta, rel=1e-6)
    assert fit.worst_relative_residual < 1e-6


def test_standard_errors_say_how_far_a_noisy_fit_is_off():
    within = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        clean = ring(4, 1e-5, GB, noise=0.0)
        factors = generator.normal(1.0, 0.05, len(clean.timings))
        noisy = tuple(
            Timing(bytes=t.bytes, seconds=(t.seconds[0] * f,))
            for t, f in zip(clean.timings, factors, strict=True)
        )
        fit = make_curve(clean.model_copy(update={"timings": noisy}), "h").fit
        within += abs(fit.alpha_seconds - 1e-5) < 2 * fit.alpha_error
        within += abs(fit.bytes_per_second - GB) < 2 * fit.bytes_per_second_error
    assert 0.80 <= within / 120 <= 0.999


def test_a_curve_with_a_protocol_switch_is_not_called_alpha_beta():
    clean = ring(4, 1e-5, GB, noise=0.0)
    slow = tuple(
        Timing(
            bytes=t.bytes,
            seconds=tuple(s * (5 if 10**4 < t.bytes < 10**6 else 1) for s in t.seconds),
        )
        for t in clean.timings
    )
    fit = make_curve(clean.model_copy(update={"timings": slow}), "h").fit
    assert not fit.is_alpha_beta
    assert fit.worst_relative_residual > 0.3


def test_two_sizes_one_rank_or_falling_times_have_no_fit():
    assert make_curve(ring(4, 1e-5, GB, sizes=(1024, 4096)), "h").fit is None
    timings = tuple(Timing(bytes=n, seconds=(1 / n, 1 / n)) for n in (10**3, 10**4, 10**5))
    assert make_curve(Exchange(backend="gloo", nodes=1, ranks=1, timings=timings), "h").fit is None
    assert make_curve(Exchange(backend="gloo", nodes=1, ranks=2, timings=timings), "h").fit is None


def test_very_noisy_reads_are_hardly_ever_taken_for_a_burst():
    generator = np.random.default_rng(3)
    trials = [disk(*(GB * factor for factor in generator.lognormal(0, 0.7, 6))) for _ in range(500)]
    assert sum(find_burst(trial) is not None for trial in trials) <= 5


def test_a_burst_that_ends_is_told_from_noise_and_from_the_page_cache():
    ended = disk(*[1.0 * GB] * 5, *[0.125 * GB] * 7)
    assert find_burst(ended).seconds == pytest.approx(5 * ended.file_bytes / GB)
    assert sustained_rate(ended).value == pytest.approx(0.125 * GB)
    noisy = [float(GB * factor) for factor in np.random.default_rng(3).lognormal(0, 0.15, 12)]
    assert find_burst(disk(*noisy)) is None
    relapsed = [1.0, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4, 1.1, 0.4]
    assert find_burst(disk(*(rate * GB for rate in relapsed))) is None
    assert find_burst(disk(*[5 * GB] * 5, *[1 * GB] * 5, cold=False)) is None
    assert find_burst(disk(*[0.1 * GB] * 5, *[1 * GB] * 5)) is None  # faster later is no burst
    (text,) = found(host(measured=links(reads=(ended,))))["disk-burst"]
    assert "reach 1.00 ± <0.01 GB/s for 336 ms, then 125 ± <1 MB/s" in text
