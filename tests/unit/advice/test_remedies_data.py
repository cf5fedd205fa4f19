"""What would make the data stalls smaller: workers, cores, memory, disk."""

from __future__ import annotations

import pytest
from breakdowns import FETCH, PREP, advice_for, flat, steps_for
from profile_builder import build

from stash.advice.case import Case
from stash.analysis.attribution import attribute
from stash.core.records.host import Limits
from stash.core.records.profile import Loader, Rate
from stash.predict.changed_job import change_job
from stash.predict.forecasting import base_of
from stash.predict.sufficiency import assess_sufficiency


def _prep(work_per_step: float, workers: int, cores: int):
    return build(
        flat(**PREP),
        block_extra={"warm": {"fetch_seconds": work_per_step * 10}},
        workload={"loaders": (Loader(kind="map", workers=workers),)},
        host={"cores": cores},
    )


def test_prep_asks_for_the_workers_that_would_hide_it():
    # 360 ms of one worker, hidden behind 100 ms of training: 3.6 workers, 4 with headroom
    assert (
        "num_workers=4 instead of 2 (preparing a step takes 360 ms of one worker, training it 100 ms)"
        in steps_for(_prep(0.36, 2, 16))
    )


def test_prep_asks_for_cores_where_workers_have_none():
    # one worker is busy all the 200 ms, and training a core for 60: on 3 cores both take 86.7 ms, which 2.3 workers
    # fill, and 4.3 cores do both in 60 ms
    profile = build(
        flat(solo=0.06, crowd=0.06, node=0.06, warm=0.2),
        block_extra={"node": {"cpu_seconds": 0.6}, "warm": {"fetch_seconds": 2.0}},
        workload={"loaders": (Loader(kind="map", workers=1),)},
        host={"cores": 6},
    )
    text = " ".join(advice_for(profile).next_steps)
    assert "Rent 5 cores per device instead of 3, for num_workers=4" in text
    assert (
        "Use num_workers=3 instead of 1, all that 3 cores per device allow; saves about 113 ms"
        in text
    )


def _without_workers(core_seconds: float, made_seconds: float = 0.04):
    """One rank on 2 cores: 4 ms of training on one of them, after 40 ms of samples, so many of them on a core."""
    return build(
        flat(solo=0.004, warm=0.004 + made_seconds),
        ranks=1,
        block_extra={
            "solo": {"cpu_seconds": 0.04},
            "warm": {"wait_seconds": 10 * made_seconds, "fetch_cpu_seconds": 10 * core_seconds},
        },
        workload={"loaders": (Loader(kind="map", workers=0),)},
        host={"cores": 2},
    )


def test_samples_that_sleep_need_workers_and_not_cores():
    # 40 ms behind 4 ms, with 5 % more: 11 workers; their 0.8 ms and the 4 of training fit onto two cores in 2.4 ms
    profile = _without_workers(0.0008)
    first, *others = advice_for(profile).next_steps
    assert first.startswith(
        "Use num_workers=11 instead of 0 (preparing a step takes 40.0 ms of one worker, training"
    )
    assert others[0].startswith("Make samples cheaper")
    assert not any("cores per device" in step for step in (first, *others))
    # what `stash whatif` prints
    assert assess_sufficiency(change_job(base_of(profile))).workers == 11


def test_samples_that_burn_processor_time_get_the_workers_that_cores_can_run():
    # two cores need 22 ms for 40 ms of samples and 4 of training, which two workers fill: that saves 22 of the 40 ms
    first, *others = advice_for(_without_workers(0.04)).next_steps
    assert first.startswith(
        "Use num_workers=2 instead of 0, all that 2 cores per device allow; saves about 22.0 ms"
    )
    assert any(
        "Rent 11 cores per device instead of 2, for num_workers=11" in step for step in others
    )


def test_more_workers_than_cores_can_run_are_told_to_be_fewer():
    text = steps_for(_prep(20.0, 40, 16))  # 8 cores for each of two ranks
    assert "Use num_workers=8 instead of 40: 8 cores make no more samples with more workers" in text


def test_no_machine_is_advised_that_nobody_rents():
    slow = _without_workers(0.4, made_seconds=0.4)
    assert not any("Rent" in step for step in advice_for(slow).next_steps)


def test_prep_with_workers_enough_asks_for_cores_of_their_own():
    assert "Keep num_workers=4, which would suffice" in steps_for(_prep(0.2, 4, 16))


def test_without_worker_times_the_loaders_rate_tells_the_workers():
    rates = tuple(Rate(feed="warm", rank=r, round=3, samples=80, seconds=2.0) for r in range(2))
    profile = build(
        flat(**PREP), rates=rates, workload={"loaders": (Loader(kind="map", workers=1),)}
    )
    advice = advice_for(profile)  # 16 samples at 80/s: 200 ms of one worker behind 100 ms
    assert (
        "the loaders prepare 80.0 samples/s, the devices could train 160.0 samples/s" in advice.text
    )
    assert "num_workers=3 instead of 1" in " ".join(advice.next_steps)


def test_without_workers_a_step_waits_for_all_the_work_and_workers_take_over_no_more_than_that():
    profile = build(
        flat(**PREP),
        block_extra={"warm": {"wait_seconds": 0.905}},
        workload={"loaders": (Loader(kind="map", workers=0),)},
    )
    advice = advice_for(profile)  # 90.5 of 100 ms is waiting
    assert (
        "the loader has no workers (num_workers=0), so nothing is read or prepared while"
        in advice.text
    )
    text = " ".join(advice.next_steps)
    assert (
        "Use num_workers=1 instead of 0 (preparing a step takes 90.5 ms of one worker, training it 100 ms)"
        in text
    )
    assert "saves about 89.6 ms a step (45%)" in text


def _loading(kind: str, workers: int):
    """One core a rank, which preparing samples keeps busy all the 200 ms of a step."""
    return build(
        flat(**PREP),
        block_extra={"warm": {"fetch_seconds": 1600.0}}
        if workers
        else {"warm": {"wait_seconds": 1.0}},
        workload={"loaders": (Loader(kind=kind, workers=workers),)},
        host={"cores": 2},
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_is_to_be_sharded_before_workers_are_added_that_would_repeat_it(workers):
    steps = steps_for(_loading("iterable", workers))
    assert "First let the stream give each worker a share of its own, by `torch.utils" in steps
    assert "cores per device instead" not in steps


@pytest.mark.parametrize(("kind", "workers"), [("map", 1), ("iterable", 2)])
def test_samples_that_workers_share_already_need_no_sharding(kind, workers):
    steps = steps_for(_loading(kind, workers))
    assert "get_worker_info" not in steps
    assert "cores per device instead" in steps


def test_a_loader_of_unknown_kind_gets_no_number_of_workers():
    profile = build(flat(**PREP), workload={"loaders": (Loader(kind="watched"),)})
    assert "num_workers" not in steps_for(profile)


def _fetch(samples: int):
    return build(
        flat(**FETCH),
        workload={
            "loaders": (Loader(kind="map", workers=2, samples=samples),),
            "sample_disk_bytes": 1e5,
        },
        rates=tuple(Rate(feed="cold", rank=r, round=3, samples=80, seconds=2.0) for r in range(2)),
        host={"memory_bytes": 32 * 10**9},
    )


def test_a_data_set_that_fits_into_memory_is_to_be_read_once():
    advice = advice_for(_fetch(100_000))
    assert advice.stall == "fetch"
    assert "its 10.0 GB fit into a node's memory (32.0 GB)" in advice.next_steps[0]
    assert "saves about 100.0 ms a step (50.0%)" in advice.next_steps[0]


def test_a_data_set_that_does_not_fit_asks_for_memory_or_a_disk():
    text = steps_for(_fetch(1_000_000))
    assert "Choose nodes with 143 GB of memory" in text
    # 16 samples of 100 kB in 100 ms against 80 samples/s measured
    assert "a disk that delivers 16.0 MB/s to each node (8.00 MB/s measured)" in text


def test_what_the_jobs_own_group_may_use_is_what_there_is():
    """Of 512 GB a container has 32, its files in memory among them."""
    limited = {"memory_bytes": 512 * 10**9, "limits": Limits(memory_bytes=32 * 10**9)}
    profile = _fetch(1_000_000)
    host = profile.hosts[0].model_copy(update=limited)
    assert "Choose nodes with 143 GB of memory" in steps_for(
        profile.model_copy(update={"hosts": (host,)})
    )
    job = _prep(0.36, 2, 64)
    host = job.hosts[0].model_copy(update={"limits": Limits(cpus=4.0)})
    assert Case(attribute(job), job.model_copy(update={"hosts": (host,)})).cores_per_rank == 2


def test_small_files_are_to_be_packed():
    profile = build(flat(**FETCH), block_extra={"cold": {"files": 100, "file_bytes": 2_000_000}})
    assert "Pack the small files (20.0 kB on average)" in steps_for(profile)
