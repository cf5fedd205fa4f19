"""Changes in, forecasts out: what was measured comes back, what cannot be is refused, and advice says the same."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from forecast_profiles import around, cpu_job, gpu_job
from profile_builder import build

from stash.advice.case import Case
from stash.advice.remedies import REMEDIES
from stash.analysis.attribution import attribute
from stash.core.errors import UserError
from stash.core.measured import Memory
from stash.core.records.profile import Loader
from stash.predict.changed_job import change_job
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, stall_draws, what_if
from stash.predict.memory import memory_fit
from stash.predict.sufficiency import assess_sufficiency
from stash.whatif import answers
from stash.whatif.answers import diminishing, next_bottleneck
from stash.whatif.sweep import axes, sweep

GPU, CPU = base_of(gpu_job()), base_of(cpu_job())


def step(base, **typed):
    return what_if(base, Alteration(**typed)).breakdown.step_seconds


@pytest.mark.parametrize("base", [GPU, CPU])
def test_without_changes_the_forecast_is_the_measurement(base):
    forecast = what_if(base)
    assert forecast.origin == "measured"
    for was, would in zip(base.breakdown.stalls, forecast.breakdown.stalls, strict=True):
        assert would.seconds == pytest.approx(was.seconds, abs=1e-9)
        assert would.low <= was.seconds <= would.high


@pytest.mark.parametrize(
    ("base", "same"),
    [
        (
            GPU,
            {
                "nodes": "2",
                "gpus": "2",
                "workers": "3",
                "batch": "64",
                "accumulate": "1",
                "cache": "0%",
            },
        ),
        (CPU, {"workers": "2", "batch": "16", "cpus": "8"}),
        (GPU, {"network": "1x", "disk": "1x"}),
    ],
)
def test_the_measured_configuration_spelt_out_is_within_the_measured_interval(base, same):
    forecast = what_if(base, Alteration(**same)).breakdown
    assert base.breakdown.step.low <= forecast.step_seconds <= base.breakdown.step.high


@pytest.mark.parametrize(
    ("typed", "samples"), [({"gpu": "A100"}, 64), ({"batch": "128"}, 128), ({"gpus": "16"}, 128)]
)
def test_ranks_that_share_a_model_read_the_same_samples(typed, samples):
    loaders = (Loader(kind="map", workers=1, samples=1000),)
    shared = base_of(
        gpu_job(
            ranks=8,
            nodes=1,
            hosts=gpu_job().hosts[:1],
            collectives=(),
            workload={
                "name": "resnet50",
                "precision": "float32",
                "replicas": 1,
                "loaders": loaders,
                "parameter_bytes": 10**9,
            },
            memory=(Memory(rank=0, allocated_bytes=5 * 10**9),),
        )
    )
    assert shared.breakdown.samples_per_step == shared.passes.batch == 64
    assert shared.loading.pipeline.samples == 64
    assert stall_draws(shared, Alteration(**typed)).samples == samples
    scale = shared.compute_scale(shared.target, replace(shared.passes, batch=128))
    # a two-fold batch
    assert scale.facts[0].quantity.low <= math.log2(scale.mean) <= scale.facts[0].quantity.high
    assert assess_sufficiency(change_job(shared)).device_rate == pytest.approx(64 / 0.24, rel=0.01)
    fit = memory_fit(change_job(shared, Alteration(**typed)))
    # parameters, gradients, buckets; samples
    assert fit.needed_bytes == 3e9 + 2e9 * int(typed.get("batch", 64)) / 64


def test_ds_analyzers_questions_have_answers():
    found = assess_sufficiency(change_job(CPU))
    assert found.device_rate == pytest.approx(32 / 0.140, rel=0.01)
    assert found.baseline == min(found.device_rate, found.prep_rate, found.fetch_rate)
    assert found.workers == 3  # 16 samples of 20 ms behind 140 ms
    assert 0 < found.cached < 1
    # two workers that take 20 ms for a sample supply one every 10; 5 % more leave 1 ms of reading for each
    assert found.disk_bytes_per_second == pytest.approx(110_000 / 0.001)


def test_what_limits_next_and_where_more_stops_to_pay():
    wanted = Alteration(network="100gbit")
    assert next_bottleneck(what_if(GPU)).name == "network"
    (stop,) = diminishing(GPU, wanted)
    assert stop.option == "network"
    at, beyond = (what_if(GPU, wanted.replace_facts(network=stop.value * k)) for k in (1, 2))
    assert beyond.breakdown.samples_per_second < 1.05 * at.breakdown.samples_per_second


def test_only_doublings_are_called_so_and_no_value_is_below_what_an_option_takes(monkeypatch):
    asked: list[float] = []

    def speed(base, wanted, name, amount):
        asked.append(amount)
        # in proportion: each doubling pays, where 3 instead of 2 is half as much again
        return float(amount)

    monkeypatch.setattr(answers, "_samples_per_second", speed)
    assert diminishing(GPU, Alteration(nodes="3")) == ()
    assert min(asked) == 1
    asked.clear()
    assert diminishing(GPU, Alteration(compress="4x")) == ()
    assert min(asked) == 1


def test_memory_is_unknown_without_a_measured_peak():
    assert memory_fit(change_job(GPU)) is None


@pytest.mark.parametrize("profile", [gpu_job(), cpu_job()])
def test_what_advice_promises_is_what_whatif_says(profile):
    case, asked = Case(attribute(profile), profile), 0
    now = case.breakdown
    for make in REMEDIES.values():
        for remedy in make(case):
            if remedy.asks is None or remedy.saves is None:
                continue
            forecast = what_if(base_of(profile), remedy.asks).breakdown
            for_as_many = forecast.step_seconds * now.samples_per_step / forecast.samples_per_step
            assert remedy.saves == pytest.approx(now.step_seconds - for_as_many, abs=1e-9), (
                remedy.text
            )
            asked += 1
    assert asked > 4


def test_one_gpu_tells_of_several_what_published_jobs_tell():
    many = gpu_job()
    job = build(
        {
            "resident": around(0.170),
            "solo": around(0.174),
            "warm": around(0.2),
            "cold": around(0.22),
        },
        ranks=1,
        device="cuda",
        batch=64,
        hosts=many.hosts[:1],
        workload={**many.workload.__dict__, "bucket_bytes": ()},
    )
    forecast = what_if(base_of(job), Alteration(instance="p3.8xlarge"))
    contention = forecast.breakdown.stall("contention")
    assert contention.low < 0 < contention.seconds < contention.high  # some published jobs gained
    assert {each.name for each in forecast.unknown} <= {"prep", "fetch"}
    assert any("one device was profiled" in sentence for sentence in forecast.extrapolations)


def test_other_cpus_are_not_taken_to_train_as_fast():
    assert any(
        "compute is as on the cores" in each
        for each in what_if(CPU, Alteration(cpus="32")).extrapolations
    )


def test_ranges_are_doubled_and_short_ones_counted():
    (doubled, counted) = axes(["nodes=1..64", "workers=2..5"])
    assert doubled.texts == ("1", "2", "4", "8", "16", "32", "64")
    assert counted.texts == ("2", "3", "4", "5")
    (rates,) = axes(["network=1gbit..100gbit"])
    assert rates.texts[0] == "1gbit"
    assert rates.texts[4] == "10gbit"
    assert rates.texts[-1] == "100gbit"
    assert axes(["gpu=V100,T4"])[0].texts == ("V100", "T4")
    (multiples,) = axes(["network=1x..4x"])
    assert (multiples.texts[0], multiples.texts[4], multiples.texts[-1]) == ("1x", "2x", "4x")
    with pytest.raises(UserError, match="write both alike"):
        axes(["network=1x..4gbit"])


def test_a_point_that_cannot_be_predicted_says_why_and_the_others_stay():
    points = sweep(CPU, Alteration(), axes(["nodes=1..2"]))
    assert points[0].forecast is not None
    assert points[1].forecast is None
    assert "network" in points[1].why


def quick_job(workers, trains, **warm):
    """A rank on 2 cores that trains for that long, on batches of two tensors; ten steps a block."""
    loader = Loader(kind="map", workers=workers, samples=10_000, tensors_per_batch=2)
    blocks = {"solo": {"cpu_seconds": 10 * trains}, "warm": {"fetch_cpu_seconds": 0.001, **warm}}
    waits = blocks["warm"].get("wait_seconds", 0.01) / 10
    rows = {"solo": [trains] * 4, "warm": [trains + waits] * 4}
    workload = {"loaders": (loader,)}
    return base_of(build(rows, ranks=1, block_extra=blocks, workload=workload, host={"cores": 2}))


def test_a_worker_whose_batches_are_sooner_made_than_handed_over_is_no_gain():
    # 0.1 ms to make a batch, 0.8 to hand it over, by the constants: what advice, what-if and the search all ask
    base = quick_job(0, 0.35e-3, wait_seconds=0.001)
    assert step(base) == pytest.approx(0.45e-3)
    assert step(base, workers="1") == pytest.approx(1.15e-3, rel=0.15)
    case = Case(base.breakdown, base.profile)
    assert not any("num_workers" in remedy.text for remedy in REMEDIES["prep"](case))


def test_what_workers_cost_goes_with_them_and_stays_with_more():
    # made in time by two workers, and still 1 ms is waited for each batch
    base = quick_job(2, 0.02, fetch_seconds=0.05, wait_seconds=0.01)
    assert step(base) == pytest.approx(0.021)
    assert step(base, workers="4") == pytest.approx(0.021, rel=1e-3)
    # 5 ms to make each batch, but nothing to hand over
    assert step(base, workers="0") == pytest.approx(0.025, rel=1e-3)
