"""Launches of their own: which are started side by side, with which share of the machine, and what is skipped."""

from dataclasses import replace

import pytest
from launching import expedition

from stash.core.measured import Launch, Rank, Skipped
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.job import Job
from stash.measure.protocol.messages import (
    LadderChosen,
    LadderEnded,
)

pytestmark = pytest.mark.usefixtures("temporary")


def agents(
    orders,
    process,
    batch=(8, 8),
    accumulated=(1, 1),
):
    """As many even rounds as were ordered; a whole job has two ranks, one alone has rank 0.

    ``batch`` and ``accumulated`` batches of a step: alone, and of each rank of the whole job.
    """
    process.step(9)
    ranks = range(2 if orders.gang is None else 1)
    process.tell(*(Rank(rank, 0, rank, "cpu") for rank in ranks), LadderChosen(orders.rungs, {}))
    for number in range(orders.first_round, orders.first_round + (orders.rounds or 0)):
        for rank in ranks:
            process.round(
                number, *(1.0 + 0.1 * place for place in range(len(orders.rungs))), rank=rank
            )
    which = 0 if orders.gang else 1
    process.tell(
        Launch(orders.launch, len(ranks), batch[which], accumulated[which]),
        LadderEnded("rounds done"),
    )
    yield
    return 0


def isolated(cluster, *launches, job=None, **wishes):
    one, started = expedition(
        *(launches or (agents,)),
        rungs=("solo", "crowd", "node", "warm"),
        job=job,
        cluster=cluster,
        isolate=True,
        **wishes,
    )
    return one.measure_job(), started


def test_a_set_is_the_job_alone_then_side_by_side_then_whole():
    result, started = isolated(Cluster(2))
    asked = [(p.orders.rungs, p.orders.gang, p.orders.crowd) for p in started[:4]]
    assert asked == [
        (("solo",), (0, 2), 1),
        (("crowd",), (0, 2), 2),
        (("crowd",), (1, 2), 2),
        (("node", "warm"), None, 1),
    ]
    assert all(p.orders.isolated for p in started)
    assert result.failure is None
    assert {block.rank for block in result.profile.blocks if block.rung == "crowd"} == {0, 1}
    assert result.profile.settings.why == "asked for (--isolate)"
    assert result.profile.ended == "decided"
    # however even its rounds are, one set of launches says nothing of the next
    assert len(started) == 3 * 4


def test_sets_are_repeated_with_rounds_of_their_own_while_it_is_not_enough():
    result, started = isolated(Cluster(2), noise=-1.0, budget=1e9)
    assert len(started) == 40
    assert [p.orders.first_round for p in started[::4]] == [3 * number for number in range(10)]
    assert result.profile.ended == "budget"


def test_of_ranks_that_are_no_job_one_process_is_measured():
    def no_job(orders, process):
        if "--nproc-per-node=2" not in process.command:
            return (yield from agents(replace(orders, gang=(0, 1)), process))
        process.step(1)
        process.tell(LadderEnded("no process group"))
        yield
        return 0

    result, started = isolated(Cluster(2), no_job)
    assert "--nproc-per-node=2" in started[3].command
    assert not any("torchrun" in word for word in started[4].command)
    assert result.failure is None
    assert {block.rung for block in result.profile.blocks} == {"solo", "warm"}
    assert [rank.rank for rank in result.profile.ranks] == [0]


def test_a_job_that_does_not_run_alone_keeps_what_it_can():
    def fails_alone(orders, process):
        if orders.gang is not None:
            process.tracebacks = [
                "Traceback (most recent call last):\n  x\nValueError: needs two\n"
            ]
            yield
            return 1
        return (yield from agents(orders, process))

    result, _ = isolated(Cluster(2), fails_alone)
    skipped = {item.rung: item.why for item in result.profile.skipped}
    assert skipped["solo"].startswith("the job does not run with one process: train.py failed")
    assert skipped["crowd"].startswith("the job does not run with one process")
    assert {block.rung for block in result.profile.blocks} == {"node", "warm"}


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (
            {"batch": (16, 8)},
            "alone the script trains 16 samples in a step, and 8 on each rank of the whole job",
        ),
        (
            {"accumulated": (4, 2)},
            "alone the script trains 4 batches in a step, and 2 on each rank of the whole job",
        ),
    ],
)
def test_a_job_that_does_more_alone_has_no_rungs_of_its_own(steps, sentence):
    def divides(orders, process):
        return (yield from agents(orders, process, **steps))

    result, started = isolated(Cluster(2), divides, noise=-1.0, budget=1e9)
    skipped = {item.rung: item.why for item in result.profile.skipped}
    assert skipped["solo"].startswith(sentence)
    assert skipped["crowd"] == skipped["solo"]
    assert result.profile.settings.rungs == ("node", "warm")
    assert {block.rung for block in result.profile.blocks} == {"node", "warm"}
    assert [p.orders.gang for p in started[4:]] == [None] * 9  # it is not started alone again
    assert {(each.ranks, each.batch) for each in result.profile.launches} >= {
        (1, steps.get("batch", (8, 8))[0])
    }


def test_a_job_whose_samples_are_not_counted_is_measured_with_a_word_of_warning():
    def uncounted(orders, process):
        return (yield from agents(orders, process, batch=(None, None)))

    result, _ = isolated(Cluster(2), uncounted)
    assert "solo" in result.profile.settings.rungs
    assert any(
        note.startswith("samples of a step could not be counted") for note in result.profile.notes
    )


def test_what_the_whole_job_says_of_its_ranks_is_believed():
    def shares(orders, process):
        if orders.gang is None:
            process.tell(Skipped("solo", "two ranks train one replica"))
        return (yield from agents(orders, process))

    result, _ = isolated(Cluster(2), shares)
    assert {item.why for item in result.profile.skipped if item.rung in ("solo", "crowd")} == {
        "two ranks train one replica"
    }
    assert result.profile.settings.rungs == ("node", "warm")


@pytest.mark.parametrize(
    ("cluster", "job", "why"),
    [
        (Cluster(1, engine="local"), None, "one device"),
        (Cluster(2, engine="inherited"), None, "separate launches need all ranks on this machine"),
        (
            Cluster(2),
            Job("command", "accelerate"),
            "the launcher accelerate decides how many processes there are",
        ),
    ],
)
def test_where_the_job_has_one_size_only_the_whole_is_launched(cluster, job, why):
    result, started = isolated(cluster, job=job)
    assert len(started) == 3
    assert {item.why for item in result.profile.skipped if item.rung == "crowd"} == {why}
