"""Asked about the machine that was measured, the answer is the measurement; of more of it, only the rest is new."""

from datetime import date

import pytest
from forecast_profiles import gpu_job

from stash.core.errors import UserError
from stash.core.records.host import Gpu, Host, Limits, Probe
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.predict.changes import Alteration
from stash.predict.cluster_sources import target_of_probe
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of, shipped_catalog, what_if
from stash.predict.pipeline import warmed_share
from stash.whatif.answers import answer_question


def hosts(instance, nodes=2, gpus=2, name="gpu"):
    devices = tuple(
        Gpu(index=j, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30) for j in range(gpus)
    )
    return tuple(
        Host(
            hostname=f"{name}{i}",
            cloud="aws" if instance else None,
            instance=instance,
            cores=16,
            memory_bytes=64 * 10**9,
            gpus=devices,
            limits=Limits(),
        )
        for i in range(nodes)
    )


def job(instance="p3.8xlarge", ranks=8, **changes):
    """Two nodes of the type, with all of its four GPUs."""
    return base_of(
        gpu_job(ranks=ranks, hosts=hosts(instance, gpus=ranks // 2), **changes), draws=Draws(64)
    )


@pytest.mark.parametrize("name", ["p3.8xlarge", "aws/p3.8xlarge", "P3.8XLARGE"])
@pytest.mark.parametrize("nodes", [None, 2])
def test_the_type_that_was_measured_is_answered_by_the_measurement(name, nodes):
    base = job()
    forecast = what_if(base, Alteration(instance=name, nodes=nodes))
    assert forecast.breakdown.step == what_if(base).breakdown.step
    assert {part.origin for part in forecast.grounds} == {"measured"}
    assert forecast.target == base.target


def test_on_more_nodes_of_it_compute_and_what_loaders_had_stay_as_measured():
    base = job()
    forecast, plain = (
        what_if(base, Alteration(instance="p3.8xlarge", nodes=4)),
        what_if(base, Alteration(nodes=4)),
    )
    assert forecast.breakdown.step == plain.breakdown.step
    origins = {part.stall: part.origin for part in forecast.grounds}
    assert (origins["compute"], origins["transfer"], origins["network"]) == (
        "measured",
        "measured",
        "scaled",
    )
    assert forecast.target.storage is None


def test_what_was_not_used_comes_from_the_data_sheet():
    base = base_of(gpu_job(nodes=1, ranks=4, hosts=hosts("p3.8xlarge", 1, 4)), draws=Draws(64))
    assert base.target.network is None
    forecast = what_if(base, Alteration(instance="p3.8xlarge", nodes=2))
    assert forecast.target.network.bytes_per_second.origin == "data sheet"


@pytest.mark.parametrize("instance", [None, "p3.8xlarge"])
def test_a_probe_of_the_machine_that_was_measured_changes_nothing(instance):
    profile = gpu_job(hosts=hosts(instance))
    probe = Probe(
        stash_version="1",
        created="2026-11-22T00:00:00+00:00",
        budget_seconds=45,
        elapsed_seconds=40,
        hosts=hosts(instance),
    )
    base = base_of(profile, draws=Draws(64), clusters=lambda name: target_of_probe(probe))
    assert (
        what_if(base, Alteration(cluster="here.probe.json")).breakdown.step
        == what_if(base).breakdown.step
    )
    other = probe.model_copy(update={"hosts": hosts(None, name="other")})
    base = base_of(profile, draws=Draws(64), clusters=lambda name: target_of_probe(other))
    assert what_if(base, Alteration(cluster="there.probe.json")).target.name.startswith(
        "2 × other0"
    )


@pytest.mark.parametrize(("gpus", "origin"), [(4, "measured"), (2, "scaled")])
def test_what_is_recommended_of_the_type_that_was_measured_is_the_measurement(gpus, origin):
    """With two of its four GPUs measured, only the exchange among four is predicted, on the links that were seen."""
    base = base_of(
        gpu_job(nodes=1, ranks=gpus, hosts=hosts("p3.8xlarge", 1, gpus)), draws=Draws(64)
    )
    plan = recommend(
        [base],
        Goal(work=TrainingWork(samples=1e6, text="some")),
        Constraints(clouds=("aws",), gpus=("V100",), most_nodes=1),
        shipped_catalog(),
        BillFacts(),
        ["a.stash.json"],
        date(2026, 11, 22),
        listed=("p3.8xlarge",),
    )
    (same,) = (each for each in plan.choices if each.name == "1 × p3.8xlarge")
    found = {stall.name: stall for stall in same.stalls}
    assert (found["compute"].origin, found["interconnect"].origin) == ("measured", origin)
    assert found["compute"].seconds.value == pytest.approx(0.170)
    assert all("data sheet" not in stall.origin for stall in same.stalls)


@pytest.mark.parametrize(
    "wish",
    [
        {"gpu": "V100"},
        {"gpu": "V100-SXM2-16GB"},
        {"gpu": "Tesla V100-SXM2-16GB"},
        {"cpus": 16},
        {"memory": 64e9 + 0.0},
    ],
)
def test_asking_for_what_there_is_changes_nothing(wish):
    """Issue 60: ``--gpu`` and ``--cpus`` as profiled made 22.9 (0 to 68.5) ms of prep out of 20 ± 3."""
    base = job()
    forecast, plain = what_if(base, Alteration(**wish)), what_if(base)
    was, found = (
        {stall.name: stall.time for stall in each.breakdown.stalls} for each in (plain, forecast)
    )
    assert found["prep"] == was["prep"]
    assert found["compute"] == was["compute"]


def test_memory_that_holds_all_data_is_a_full_cache():
    base = job()
    memory, cache = (
        what_if(base, each).breakdown
        for each in (Alteration(memory=256 * 2**30), Alteration(cache=1.0))
    )
    assert memory.step == cache.step
    assert [stall.time for stall in memory.stalls] == [stall.time for stall in cache.stalls]


def test_parameters_that_do_not_fit_are_refused():
    work = gpu_job().workload.model_copy(update={"parameter_bytes": 28 * 10**9})
    base = base_of(gpu_job().model_copy(update={"workload": work}), draws=Draws(64))
    with pytest.raises(
        UserError, match=r"L4 has 25.8 GB, and the model's parameters alone take 28.0 GB"
    ):
        what_if(base, Alteration(gpu="L4"))
    assert what_if(base, Alteration(gpu="A100-SXM4-80GB")).step is not None


def test_page_caches_of_several_nodes_fill_over_epochs():
    """MLPerf 5.1, RetinaNet on 8 B200 a node: 513 samples/s cold, 3,845 from memory; two nodes 1,016, 2,061, 3,948,
    6,169 by epoch. Each epoch a node reads half of what it has not read yet."""
    assert [warmed_share(2, epochs) for epochs in range(4)] == [0.0, 0.5, 0.75, 0.875]
    machines = tuple(
        each.model_copy(update={"memory_bytes": 400 * 10**9})
        for each in hosts("p3.8xlarge", gpus=4)
    )
    base = base_of(gpu_job(ranks=8, hosts=machines), draws=Draws(64))
    first, second, third, fourth = answer_question(base, Alteration(nodes=2)).epochs
    assert first > second > third >= fourth
    assert answer_question(base, Alteration(nodes=1)).epochs == ()
