"""What a loader's own processes tell: each cause with its remedy, and none where the cause is not there."""

from __future__ import annotations

from dataclasses import replace

from breakdowns import advice_for, flat
from profile_builder import build

from stash.advice.case import Case
from stash.advice.remedies import contention_remedies, fetch_remedies, prep_remedies
from stash.analysis.attribution import attribute
from stash.core.records.profile import Loader, WorkerTimes

TIMES = flat(6, solo=0.005, warm=0.015)
RARE = (0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 4)


def remedies(loader: Loader, ranks: int = 1, **of_workers) -> dict[str, str]:
    rows = (
        WorkerTimes(
            feed="warm", rank=0, round=0, batches=(20, 20), seconds=(1.0, 1.0), **of_workers
        ),
    )
    profile = build(TIMES, ranks=ranks, workload={"loaders": (loader,)}, workers=rows)
    return {remedy.name: remedy.text for remedy in prep_remedies(Case(attribute(profile), profile))}


def test_rare_slow_batches_are_handed_out_as_they_are_ready_where_pytorch_can():
    ordered = Loader(kind="map", workers=2, in_order=True)
    found = remedies(ordered, took=RARE)
    assert found["in-order"].startswith("Hand batches out as they are ready, with in_order=False")
    assert "one batch in 10 takes about 47.5 ms, 128 times the median" in found["in-order"]
    for loader in (
        ordered.model_copy(update={"in_order": False}),
        ordered.model_copy(update={"in_order": None}),
    ):
        assert "in-order" not in remedies(loader, took=RARE)
        assert "slow-samples" in remedies(loader, took=RARE)
    assert not {"in-order", "slow-samples"} & set(remedies(ordered, took=(0, 0, 0, 40)))


def test_workers_that_compute_with_more_threads_than_there_are_cores_get_one_each():
    found = remedies(Loader(kind="map", workers=2), threads=16.0)
    assert "2 workers with 16 threads each share" in found["worker-threads"]
    assert "worker-threads" not in remedies(Loader(kind="map", workers=2), threads=1.0)


def test_many_tensors_are_packed_and_few_are_not():
    found = remedies(Loader(kind="map", workers=2, tensors_per_batch=113.0))
    assert "a batch has 113 tensors" in found["fewer-tensors"]
    assert "fewer-tensors" not in remedies(Loader(kind="map", workers=2, tensors_per_batch=3.0))
    assert "fewer-tensors" not in remedies(Loader(kind="map", workers=0, tensors_per_batch=113.0))


def test_a_stream_of_several_ranks_is_shared_out_before_samples_are_prepared():
    assert (
        "2 ranks that prepare everything"
        in remedies(Loader(kind="iterable", workers=2), ranks=2)["rank-shares"]
    )
    assert "rank-shares" not in remedies(Loader(kind="iterable", workers=2), ranks=1)
    assert "rank-shares" not in remedies(Loader(kind="map", workers=2), ranks=2)


def test_samples_are_made_cheaper_where_the_script_makes_them():
    assert "(train.py:25)" in remedies(Loader(kind="map", workers=2, samples_at="train.py:25"))[""]


def test_batches_of_unequal_sizes_are_evened_out_where_no_rank_is_slow_by_itself():
    def found(spread: float | None) -> set[str]:
        loader = Loader(kind="map", workers=0, batch_spread=spread)
        profile = build(
            flat(6, solo=0.02, crowd=0.03, node=0.031), ranks=2, workload={"loaders": (loader,)}
        )
        return {remedy.name for remedy in contention_remedies(Case(attribute(profile), profile))}

    assert "unequal-lengths" in found(0.4)
    assert "unequal-lengths" not in found(0.02) | found(None)


def test_a_large_file_whose_samples_lie_at_random_places_is_read_in_order_first():
    def found(disk_bytes: float, file_bytes: int = 8 * 10**8) -> set[str]:
        cold = {"cold": {"files": 1, "file_bytes": file_bytes}}
        work = {"sample_bytes": 8192.0, "sample_disk_bytes": disk_bytes}
        profile = build(flat(6, solo=0.02, warm=0.02, cold=0.06), workload=work, block_extra=cold)
        return {remedy.name for remedy in fetch_remedies(Case(attribute(profile), profile))}

    assert "random-reads" in found(131072.0)
    assert "random-reads" not in found(8192.0) | found(131072.0, file_bytes=10**5)


def test_batches_that_one_rank_sends_are_read_by_each_rank_itself():
    def found(**calls: float) -> str:
        profile = build(
            TIMES,
            ranks=2,
            workload={"loaders": (Loader(kind="map", workers=0),), "collectives_per_step": calls},
        )
        return " ".join(remedy.text for remedy in prep_remedies(Case(attribute(profile), profile)))

    assert "Let every rank read its own batches" in found(scatter_object_list=1.0)
    assert "read its own" not in found(scatter_object_list=0.01, all_reduce=24.0)


def test_ranks_that_wait_for_the_longest_batch_are_told_so_and_none_is_blamed():
    loader = Loader(kind="map", workers=0, batch_spread=0.4)
    times = flat(6, solo=0.02, crowd=0.02, node=0.045, warm=0.0452)
    profile = build(times, ranks=2, workload={"loaders": (loader,)})
    turns = {0: (0.001, 0.039), 1: (0.039, 0.001)}
    blocks = [
        replace(block, step_seconds=turns[block.rank] * (block.steps // 2))
        if block.rung == "crowd"
        else block
        for block in profile.blocks
    ]
    found = advice_for(profile.model_copy(update={"blocks": tuple(blocks)}))
    assert found.stall == "contention"
    assert "each step waits for whichever rank has the longest batch" in found.text
    assert found.next_steps[0].startswith("Give all ranks batches of like lengths in a step")
