"""What is said of a machine: rates and fits against worked values, findings that fire and findings that must not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_builder import (
    GB,
    GBIT,
    copy,
    disk,
    gpus,
    host,
    links,
    made,
    p3_8xlarge,
    pairs,
    probe,
    ring,
    stream,
)

from stash.base.errors import UserError
from stash.base.records import Copy, Exchange, Limits, Nic, Timing
from stash.base.stats.intervals import median_interval, overall_interval, unevenness
from stash.derive.findings import Interval, Reading, read
from stash.derive.findings.allreduce import curve
from stash.derive.findings.burst import burst, sustained_rate
from stash.derive.findings.rates import copy_rate, read_rate, stream_rate
from stash.keep import catalog

CATALOG = catalog.load()


def found(*hosts, against=None) -> dict[str, list[str]]:
    """Texts of the findings, by name."""
    texts: dict[str, list[str]] = {}
    for finding in read(probe(*hosts), CATALOG, against).findings:
        texts.setdefault(finding.name, []).append(finding.text)
    return texts


# Intervals and rates ----------------------------------------------------------------------------------


def test_a_single_repetition_has_no_interval_and_is_never_below_anything():
    once = median_interval([5.0])
    assert (once.value, once.low, once.high) == (5.0, None, None)
    assert not once.below(1e9)
    assert not once.above(0.0)


def test_only_an_interval_wholly_beyond_the_fact_and_its_tolerance_counts():
    measured = Interval(value=8.0, low=7.0, high=9.5, repetitions=7)
    assert measured.below(10.0)
    assert not measured.below(10.0, tolerance=0.1)  # the value is below 9, the interval's end is not
    assert measured.above(6.0)
    assert not measured.above(7.5)


def test_from_six_repetitions_on_the_ends_are_the_sign_tests_order_statistics():
    # Published tables: n = 6 → 1st and 6th, n = 9 → 2nd and 8th, n = 20 → 6th and 15th.
    for count, first in ((6, 1), (9, 2), (20, 6)):
        interval = median_interval(range(1, count + 1))
        assert (interval.low, interval.high) == (first, count + 1 - first)


@pytest.mark.parametrize("count", [3, 5, 8, 15])
def test_intervals_cover_the_true_median_about_as_often_as_they_say(count):
    generator = np.random.default_rng(7)
    trials = [median_interval(generator.lognormal(0.0, 0.1, count)) for _ in range(600)]
    covered = np.mean([trial.low <= 1.0 <= trial.high for trial in trials])
    assert 0.93 <= covered <= 0.999


def test_a_disk_that_hands_out_bytes_in_portions_has_the_rate_of_the_whole_run():
    # Bytes come ten times a second: a repetition waits for two portions or for three, and the median for two.
    seconds = [0.2, 0.2, 0.3] * 3
    rates = [0.14e6 / one for one in seconds]
    assert read_rate(disk(*rates)).value == pytest.approx(0.14e6 * len(seconds) / sum(seconds))
    assert read_rate(disk(*rates, cold=False)).value == pytest.approx(0.14e6 / 0.2)  # from memory: the usual one


def test_an_overall_interval_covers_the_true_rate_about_as_often_as_it_says():
    generator = np.random.default_rng(7)
    trials = [overall_interval(1 / generator.normal(2.0, 0.3, 6)) for _ in range(600)]
    covered = np.mean([trial.low <= 0.5 <= trial.high for trial in trials])
    assert 0.92 <= covered <= 0.98


def test_an_overall_interval_is_unknown_where_the_noise_is_as_large_as_the_rate():
    assert overall_interval([5.0]) == Interval(value=5.0)
    found = overall_interval([1.0, 100.0])
    assert (found.low, found.high, found.repetitions) == (None, None, 2)


def test_a_copys_rate_is_that_of_its_largest_messages():
    small, large = Timing(bytes=1000, seconds=(1.0,)), Timing(bytes=4000, seconds=(2.0, 2.0, 1.0))
    assert copy_rate(Copy(source="host", target="host", timings=(small, large))).value == 2000


def test_a_streams_rate_counts_every_spell_also_the_slow_ones():
    spells = tuple(Timing(bytes=size, seconds=(1.0,)) for size in (100, 10, 90))
    assert stream_rate(stream(0, 1, 1, GB).model_copy(update={"timings": spells})).value == 90


# All-reduce -------------------------------------------------------------------------------------------


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


# Evenness ---------------------------------------------------------------------------------------------


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    members=st.integers(2, 28), repetitions=st.integers(2, 20), noise=st.floats(0.0, 0.1), seed=st.integers(0, 10**6)
)
def test_even_things_with_ordinary_noise_are_never_called_uneven(members, repetitions, noise, seed):
    generator = np.random.default_rng(seed)
    rates = {i: median_interval(generator.lognormal(0.0, noise, repetitions)) for i in range(members)}
    assert unevenness(rates) is None


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    members=st.integers(2, 28), repetitions=st.integers(5, 20), noise=st.floats(0.0, 0.05), seed=st.integers(0, 10**6)
)
def test_what_is_twice_as_slow_is_always_named(members, repetitions, noise, seed):
    generator = np.random.default_rng(seed)
    slow = seed % members
    rates = {
        i: median_interval(generator.lognormal(math.log(0.5 if i == slow else 1.0), noise, repetitions))
        for i in range(members)
    }
    assert unevenness(rates) is not None
    assert unevenness(rates)[1] == (slow,)


def test_rates_without_an_interval_prove_nothing():
    assert unevenness({0: Interval(value=1.0), 1: Interval(value=100.0)}) is None


# Findings inside a machine ----------------------------------------------------------------------------


def test_a_machine_without_links_limits_or_type_has_no_findings():
    assert found(host()) == {}
    assert found(host(gpus=gpus(4))) == {}


def test_slow_pairs_are_named_with_what_pairs_of_the_type_reach():
    (text,) = found(p3_8xlarge())["uneven-pairs"]
    assert text.startswith("2 of 6 pairs of GPUs copy much slower than the others (0-3 and 1-2): 0-3 reaches 9.8")
    assert "fastest pair of p3.8xlarge: 50.0 GB/s (catalog of 2026-11-20: " in text
    assert "uneven-pairs" in found(p3_8xlarge(instance=None))


def test_even_pairs_below_the_types_best_are_found_against_the_catalog():
    even = links(copies=pairs({(0, 1): 9.8 * GB, (0, 2): 9.9 * GB, (1, 2): 9.7 * GB}))
    named = found(host(measured=even, gpus=gpus(3), instance="p3.16xlarge", cloud="aws"))
    assert "uneven-pairs" not in named
    assert "reaches 9.8" in named["slow-pairs"][0]


def test_gpus_behind_one_switch_share_an_uplink_and_the_driver_says_which():
    texts = found(p3_8xlarge())["shared-uplink"]
    assert [text.split(" share")[0] for text in texts] == ["GPUs 0 and 1", "GPUs 2 and 3"]
    (text,) = found(p3_8xlarge(routes=()))["shared-uplink"]
    assert text.startswith("GPUs 0, 1, 2 and 3 slow one another down, both ways: host to GPU")


def test_copies_together_as_fast_as_alone_share_nothing():
    copies = [
        copy("host", f"cuda:{i}", 12 * GB, together=both, seed=i + 9 * both) for i in range(4) for both in (0, 1)
    ]
    assert found(host(measured=links(copies=tuple(copies)), gpus=gpus(4))) == {}


@pytest.mark.parametrize(("rate", "fires"), [(6.2, True), (12.0, False)])
def test_a_link_is_trained_down_only_if_copies_are_as_slow_as_it_says(rate, fires):
    # An idle link saves power: gen1 or x8 at rest may be gen3 x16 at work.
    down = gpus(1, pcie="gen3 x8", pcie_max="gen3 x16")
    named = found(host(measured=links(copies=(copy("host", "cuda:0", rate * GB),)), gpus=down))
    assert ("pcie-trained-down" in named) is fires


def test_very_noisy_reads_are_hardly_ever_taken_for_a_burst():
    generator = np.random.default_rng(3)
    trials = [disk(*(GB * factor for factor in generator.lognormal(0, 0.7, 6))) for _ in range(500)]
    assert sum(burst(trial) is not None for trial in trials) <= 5


def test_a_burst_that_ends_is_told_from_noise_and_from_the_page_cache():
    ended = disk(*[1.0 * GB] * 5, *[0.125 * GB] * 7)
    assert burst(ended).seconds == pytest.approx(5 * ended.file_bytes / GB)
    assert sustained_rate(ended).value == pytest.approx(0.125 * GB)
    noisy = [float(GB * factor) for factor in np.random.default_rng(3).lognormal(0, 0.15, 12)]
    assert burst(disk(*noisy)) is None
    relapsed = [1.0, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4, 1.1, 0.4]
    assert burst(disk(*(rate * GB for rate in relapsed))) is None
    assert burst(disk(*[5 * GB] * 5, *[1 * GB] * 5, cold=False)) is None
    assert burst(disk(*[0.1 * GB] * 5, *[1 * GB] * 5)) is None  # faster later is no burst
    (text,) = found(host(measured=links(reads=(ended,))))["disk-burst"]
    assert "reach 1.00 ± <0.01 GB/s for 336 ms, then 125 ± <1 MB/s" in text


def test_more_processes_that_do_not_help_are_found_and_a_limit_is_named():
    four = links(preparation=(made(1, 100), made(4, 210)))
    (text,) = found(host(measured=four))["cores-do-not-scale"]
    assert text.startswith("4 processes prepare 2.1 times the images of one")
    assert (
        "control group allows 2 CPUs" in found(host(measured=four, limits=Limits(cpus=2.0)))["cores-do-not-scale"][0]
    )
    assert found(host(measured=links(preparation=(made(1, 100), made(4, 380))))) == {}


# Findings between machines ----------------------------------------------------------------------------


def cluster(rate, nodes=3, flows=((1, 9.2), (8, 21.0)), noise=0.03, **fields):
    """Hosts of a cluster; ``rate(a, b)`` scales what the stream from a to b carries."""
    return [
        host(
            f"n{a}",
            links(
                streams=tuple(
                    stream(a, b, count, rate(a, b) * gbit * GBIT, noise=noise)
                    for b in range(nodes)
                    if b != a
                    for count, gbit in flows
                )
            ),
            **fields,
        )
        for a in range(nodes)
    ]


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_node_whose_every_stream_is_slow_is_named(slow):
    (text,) = found(*cluster(lambda a, b: 0.5 if slow in (a, b) else 1.0))["uneven-nodes"]
    assert text.startswith(f"node {slow} (n{slow}) has a slower network than the others: 10.")


def test_even_nodes_are_not_uneven_and_one_flow_is_compared_with_eight():
    named = found(*cluster(lambda a, b: 1.0))
    assert set(named) == {"one-flow"}
    assert "one TCP flow reaches 9." in named["one-flow"][0]
    assert "8 reach 21." in named["one-flow"][0]


def test_the_network_is_held_to_the_types_label_beyond_its_tolerance():
    (text,) = found(*cluster(lambda a, b: 1.0), against="p3.16xlarge")["slow-network"]
    assert "reaches 21." in text
    assert "sustained network of p3.16xlarge: 25 Gbit/s (catalog of 2026-11-20: " in text
    healthy = cluster(lambda a, b: 1.0, flows=((1, 24.0), (8, 24.4)))
    assert "slow-network" not in found(*healthy, against="p3.16xlarge")
    assert "slow-network" not in found(*cluster(lambda a, b: 1.0), against="p2.xlarge")  # the catalog is silent


def test_an_interfaces_claim_counts_only_with_hardware_behind_it():
    real = (Nic(name="eth0", bytes_per_second=25 * GBIT, driver="ena"),)
    bridge = (Nic(name="docker0", bytes_per_second=25 * GBIT),)
    assert "claims 25 Gbit/s" in found(*cluster(lambda a, b: 1.0, nics=real))["nic-claim"][0]
    assert "nic-claim" not in found(*cluster(lambda a, b: 1.0, nics=bridge))
    modest = (Nic(name="eth0", bytes_per_second=10 * GBIT, driver="virtio_net"),)
    assert "means nothing" in found(*cluster(lambda a, b: 1.0, nics=modest))["nic-claim"][0]


# Identity and type ------------------------------------------------------------------------------------


def test_limits_steal_and_a_lost_gpu_are_said():
    broken = (*gpus(3), gpus(4)[3].model_copy(update={"fault": "GPU is lost"}))
    named = found(host(gpus=broken, limits=Limits(cpus=2.0, memory_bytes=8 * 2**30), steal_fraction=0.07))
    assert named["lost-gpu"] == ["GPU 3 does not answer: the driver says 'GPU is lost'"]
    assert "allows 2 CPUs of the 8 cores" in named["cpu-limit"][0]
    assert "8.59 GB" in named["memory-limit"][0]
    assert "7.0%" in named["steal"][0]
    assert found(host(limits=Limits(cpus=8.0), steal_fraction=0.001)) == {}


def test_a_machine_that_is_not_what_its_type_promises():
    named = found(
        host(gpus=gpus(3, "Tesla T4", 15 * 2**30), cores=16, memory_bytes=120 * 2**30), against="p3.8xlarge"
    )
    assert set(named) == {"gpu-count", "vcpu-count", "gpu-model", "memory"}
    assert "3 GPUs work here, p3.8xlarge has 4 (catalog of 2026-11-20" in named["gpu-count"][0]
    promised = host(gpus=gpus(4), cores=32, memory_bytes=240 * 2**30)
    assert found(promised, against="p3.8xlarge") == {}


def test_rdma_is_missed_only_where_the_type_can_have_it_and_interfaces_were_seen():
    plain = {"cores": 96, "memory_bytes": 768 * 2**30, "gpus": gpus(8, memory=32 * 2**30)}
    nic = Nic(name="ens5", driver="ena")
    assert "no-rdma" in found(host(nics=(nic,), **plain), against="p3dn.24xlarge")
    assert "no-rdma" not in found(
        host(nics=(nic.model_copy(update={"rdma": "efa_0"}),), **plain), against="p3dn.24xlarge"
    )
    assert "no-rdma" not in found(host(**plain), against="p3dn.24xlarge")


def test_unknown_stays_unknown_in_a_comparison():
    rows = {row.name: row for row in read(probe(p3_8xlarge()), CATALOG).comparisons[0].rows}
    assert rows["GPU pair, slowest"].catalog is None
    assert rows["GPU pair, slowest"].ratio is None
    assert rows["network, TCP"].measured is None
    assert rows["GPU pair, fastest"].ratio == pytest.approx(48 / 50, rel=0.03)
    assert rows["disk, sequential"].measured.value == pytest.approx(0.125 * GB)


def test_all_reduce_below_the_links_is_found_and_a_healthy_one_is_not():
    usual = {"gpus": gpus(8), "cores": 64, "memory_bytes": 480 * 2**30}
    healthy = host(measured=links(exchanges=(ring(8, 5e-6, 120 * GB, backend="nccl"),)), **usual)
    broken = host(measured=links(exchanges=(ring(8, 5e-6, 10 * GB, backend="nccl"),)), **usual)
    assert found(healthy, against="p3.16xlarge") == {}
    assert "slow-all-reduce" in found(broken, against="p3.16xlarge")


def test_an_unknown_type_is_refused_with_the_nearest_names():
    with pytest.raises(UserError, match=r"unknown instance 'p3\.9xlarge'; did you mean .*p3\.8xlarge"):
        read(probe(host()), CATALOG, "p3.9xlarge")


def test_a_machine_of_unknown_type_is_most_like_the_type_with_its_shape():
    (likeness,) = read(probe(p3_8xlarge(instance=None, cloud=None)), CATALOG).nearest
    assert likeness.types[0].instance == "p3.8xlarge"
    assert likeness.types[0].not_compared == ("network",)
    assert read(probe(host(cores=None, memory_bytes=None)), CATALOG).nearest == ()


def test_a_type_that_the_catalog_does_not_know_is_a_note():
    reading = read(probe(host(cloud="aws", instance="z9.mega")), CATALOG)
    assert "does not know z9.mega" in reading.notes[0]
    assert reading.comparisons == ()


@pytest.mark.parametrize(
    ("driver", "variant"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
    ],
)
def test_names_that_drivers_report_lead_to_the_gpu_table(driver, variant):
    assert CATALOG.gpu(driver).name == variant


def test_every_finding_has_its_measurement_and_dated_facts_their_source():
    for finding in read(probe(p3_8xlarge(limits=Limits(cpus=4.0))), CATALOG, "p3.16xlarge").findings:
        assert finding.measured is not None or finding.name in ("gpu-model", "lost-gpu", "no-rdma")
        assert finding.fact is None or finding.fact.source
        if finding.fact is not None and finding.fact.as_of is not None:
            assert f"catalog of {finding.fact.as_of}: {finding.fact.source}" in finding.text


def test_a_reading_is_plain_data_and_survives_json():
    reading = read(probe(p3_8xlarge()), CATALOG)
    assert Reading.model_validate_json(reading.model_dump_json()) == reading
