"""The critical path of traces written by hand: microseconds of each part, worked by hand."""

import random

import pytest
from hand_traces import ALL_REDUCE, GEMM, kernel, launch, meeting, note, two_steps, write

from stash.trace.command import read_job


def wait(start, stop):
    """A call that waits for the device."""
    return {**launch(start, 0, stop - start), "name": "cudaStreamSynchronize", "args": {}}


SCRIPTS = {
    "a stream that is never empty waits for no launch": (
        [
            note("ProfilerStep#1", 0, 100),
            launch(0, 1),
            launch(1, 2),
            kernel(GEMM, 10, 50, 1),
            kernel(GEMM, 50, 90, 2),
        ],
        {"compute": 80, "host": 10},
    ),
    "exposed exchange that the next launch did not wait for is not on the path": (
        # compute 10-30, exchange 30-90 on its own stream, the next compute launched at 95 by a thread that was busy
        [
            note("ProfilerStep#1", 0, 200),
            launch(0, 1),
            launch(1, 2),
            launch(95, 3),
            kernel(GEMM, 10, 30, 1),
            kernel(ALL_REDUCE, 30, 90, 2, stream=8),
            kernel(GEMM, 100, 150, 3),
        ],
        {"compute": 50, "host": 100},
    ),
    "exchange that the other stream waited for is on the path": (
        [
            note("ProfilerStep#1", 0, 200),
            launch(0, 1),
            launch(1, 2),
            launch(2, 3),
            kernel(GEMM, 10, 30, 1),
            kernel(ALL_REDUCE, 31, 90, 2, stream=8),
            kernel(GEMM, 91, 150, 3),
        ],
        # 59 after 1, 59 after 1, 20 after 10: the all-reduce waited for the compute before it
        {"compute": 79, "exchange": 59, "host": 12},
    ),
    "a launch waits for the work that the thread waited for": (
        [
            note("ProfilerStep#1", 0, 200),
            launch(0, 1),
            wait(5, 60),
            launch(70, 2),
            kernel(GEMM, 10, 55, 1),
            kernel(GEMM, 75, 100, 2, stream=9),
        ],
        {"compute": 70, "host": 30},
    ),
    "a call that found nothing to wait for is passed by": (
        [
            note("ProfilerStep#1", 0, 200),
            launch(0, 1),
            wait(58, 60),
            launch(70, 2),
            kernel(GEMM, 10, 55, 1),
            kernel(GEMM, 75, 100, 2, stream=9),
        ],
        {"compute": 25, "host": 75},
    ),
    "input that the launch came after is on the path, hidden or not": (
        [
            note("ProfilerStep#1", 0, 200),
            launch(0, 1),
            note("enumerate(DataLoader)#a", 10, 70),
            launch(75, 2),
            kernel(GEMM, 5, 65, 1),
            kernel(GEMM, 80, 100, 2),
        ],
        {"compute": 20, "input": 60, "host": 20},
    ),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_the_path_of_one_rank_is_what_was_worked_by_hand(case, tmp_path):
    events, expected = SCRIPTS[case]
    trace = read_job([str(write(tmp_path / "a.json", [*events, wait(-2, -1)]))])
    assert {
        part.name: round((part.path_seconds or 0) * 1e6, 3)
        for part in trace.traced
        if part.path_seconds
    } == expected


def test_the_path_leaves_a_rank_that_waits_for_the_one_that_is_late(tmp_path):
    files = [
        str(
            write(
                tmp_path / f"rank{rank}.json",
                [*meeting(rank, start, 110), wait(0, 0)],
                rank=rank,
                world=2,
            )
        )
        for rank, start in enumerate((10, 80))
    ]
    trace = read_job(files)
    assert {part.name: round((part.path_seconds or 0) * 1e6) for part in trace.traced} == {
        "compute": 80,
        "contention": 0,
        "exchange": 30,
    }


def test_without_calls_that_wait_the_path_is_unknown(tmp_path):
    trace = read_job([str(write(tmp_path / "a.json", two_steps()))])
    assert {part.path_seconds for part in trace.traced} == {None}


def test_every_nanosecond_of_the_step_of_one_rank_is_on_the_path(tmp_path):
    for seed in range(6):
        draw = random.Random(seed)
        events = [note(f"ProfilerStep#{n}", 5000 * n, 5000 * n + 4990) for n in range(4)]
        for link in range(60):
            at = draw.uniform(0, 19_000)
            start = at + draw.uniform(0, 3000)
            name = draw.choice([GEMM, ALL_REDUCE, "Memcpy DtoH (Device -> Pageable)"])
            events += [
                launch(at, link),
                kernel(name, start, start + draw.uniform(0, 900), link, link),
            ]
            events += [wait(at - 500, at - 1)] if draw.random() < 0.2 else []
        trace = read_job([str(write(tmp_path / "a.json", events))])
        assert sum(part.path_seconds or 0 for part in trace.traced) == pytest.approx(
            trace.step_seconds, abs=1e-12
        )
