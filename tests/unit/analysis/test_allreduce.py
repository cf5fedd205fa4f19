"""All-reduce as a curve: bandwidths, the ring's fit, and when there is none."""

from __future__ import annotations

import numpy as np
import pytest
from probe_builder import GB, ring

from stash.analysis.findings.rates import curve
from stash.core.records.host import Exchange, Timing


def test_bandwidths_are_those_of_nccl_tests():
    exchange = Exchange(backend="nccl", nodes=1, ranks=4, timings=(Timing(bytes=1000, seconds=(0.5, 0.5)),))
    size = curve(exchange, "h").sizes[0]
    assert size.algorithm_bytes_per_second.value == 2000
    assert size.bus_bytes_per_second.value == pytest.approx(2000 * 2 * 3 / 4)


@pytest.mark.parametrize(("ranks", "alpha", "beta"), [(2, 20e-6, 1 * GB), (8, 5e-6, 100 * GB), (16, 1e-3, 0.1 * GB)])
def test_the_fit_finds_the_rings_latency_and_bandwidth_again(ranks, alpha, beta):
    fit = curve(ring(ranks, alpha, beta, noise=0.0), "h").fit
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
            Timing(bytes=t.bytes, seconds=(t.seconds[0] * f,)) for t, f in zip(clean.timings, factors, strict=True)
        )
        fit = curve(clean.model_copy(update={"timings": noisy}), "h").fit
        within += abs(fit.alpha_seconds - 1e-5) < 2 * fit.alpha_error
        within += abs(fit.bytes_per_second - GB) < 2 * fit.bytes_per_second_error
    assert 0.80 <= within / 120 <= 0.999


def test_a_curve_with_a_protocol_switch_is_not_called_alpha_beta():
    clean = ring(4, 1e-5, GB, noise=0.0)
    slow = tuple(
        Timing(bytes=t.bytes, seconds=tuple(s * (5 if 10**4 < t.bytes < 10**6 else 1) for s in t.seconds))
        for t in clean.timings
    )
    fit = curve(clean.model_copy(update={"timings": slow}), "h").fit
    assert not fit.is_alpha_beta
    assert fit.worst_relative_residual > 0.3


def test_two_sizes_one_rank_or_falling_times_have_no_fit():
    assert curve(ring(4, 1e-5, GB, sizes=(1024, 4096)), "h").fit is None
    timings = tuple(Timing(bytes=n, seconds=(1 / n, 1 / n)) for n in (10**3, 10**4, 10**5))
    assert curve(Exchange(backend="gloo", nodes=1, ranks=1, timings=timings), "h").fit is None
    assert curve(Exchange(backend="gloo", nodes=1, ranks=2, timings=timings), "h").fit is None
