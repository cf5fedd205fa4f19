"""The bubble of pipelines that are simulated with slow stages and slow links, whose parts are known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.truth.pipelines import Pass, gpipe, idle_seconds, one_forward_one_backward
from stash.analysis.bubble import estimate_bubble, group_pipelines
from stash.core.measured import StagePasses
from stash.core.records.profile import PipelineSchedule

FORWARD = 0.01
BACKWARD = 0.02
STEPS = 3


ORDERS = {"gpipe": gpipe, "1f1b": one_forward_one_backward}


class Simulated:
    """``STEPS`` steps of ranks with a stage each, which takes ``slow[rank]`` times as long; messages ``late``."""

    def __init__(
        self, kind: str, ranks: int, count: int, slow: dict[int, float], late: float = 0.0
    ) -> None:
        orders = [ORDERS[kind](rank, ranks, count) for rank in range(ranks)]

        def seconds(one: Pass) -> float:
            return (FORWARD if one[1] == "F" else BACKWARD) * slow.get(one[0], 1.0)

        self.passes = [
            [f"{stage}{kind}{batch}" for stage, kind, batch in order] for order in orders
        ]
        self.took = [[seconds(one) for one in order] for order in orders]
        waits = idle_seconds(orders, seconds, late, STEPS)
        self.step = waits[0] + sum(self.took[0])
        self.waited = sum(waits) / ranks

    def rows(self) -> tuple[StagePasses, ...]:
        return tuple(
            StagePasses(
                rank=r, round=0, rung="node", passes=(*names, "rest"), seconds=(*took, 0.0) * STEPS
            )
            for r, (names, took) in enumerate(zip(self.passes, self.took, strict=True))
        )


class Holder:
    """As much of a profile as the bubble needs."""

    def __init__(self, passes: tuple[StagePasses, ...], stages: int | None = None) -> None:
        self.passes = passes
        schedule = (
            None
            if stages is None
            else PipelineSchedule(name="S", stages=stages, ranks=stages, microbatches=1)
        )
        self.workload = SimpleNamespace(pipeline=schedule)


def bubble_of(job: Simulated):
    found = estimate_bubble(Holder(job.rows()), "node", job.waited)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_slow_stage_is_named_and_what_it_makes_others_idle():
    # two ranks, four microbatches, stage 1 twice as slow: a step is 10 + 4 x 60 + 20 = 270 ms,
    # of which the ranks work 120 and 240, so they idle 90 on average; equal stages of 45 ms would idle 45 ms
    job = Simulated("1f1b", ranks=2, count=4, slow={1: 2.0})
    assert job.step == pytest.approx(0.27)
    found = bubble_of(job)
    assert found.seconds == pytest.approx(0.09)
    assert found.schedule == pytest.approx(0.045)
    assert found.late == pytest.approx(0, abs=1e-9)
    assert (found.slowest_stage, found.slowest_ratio) == (1, pytest.approx(240 / 180))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(ORDERS)),
    st.integers(2, 8),
    st.integers(1, 32),
    st.floats(1, 3),
    st.floats(0, 0.02),
    st.integers(0, 7),
)
def test_parts_add_up_to_what_was_waited_and_a_link_is_no_stage(
    kind, ranks, count, slow, late, which
):
    without = Simulated(kind, ranks, count, {which % ranks: slow})
    job = Simulated(kind, ranks, count, {which % ranks: slow}, late)
    found = bubble_of(job)
    assert found.schedule + found.unequal + found.late == pytest.approx(job.waited)
    assert abs(found.seconds - without.waited) < 0.02 * job.step
    assert (found.late > 0.02 * job.step) == (job.waited - without.waited > 0.02 * job.step)


def test_ranks_with_the_same_stages_are_of_different_pipelines():
    rows = [
        StagePasses(
            rank=r,
            round=0,
            rung="node",
            passes=(f"{r // 2}F0", f"{r // 2}B0", "rest"),
            seconds=(1, 2, 0),
        )
        for r in range(4)
    ]
    assert [[row.rank for row in found] for found in group_pipelines(rows)] == [[0, 2], [1, 3]]
    assert group_pipelines(rows[2:]) == []  # the first stage is missing
    assert group_pipelines(rows[:2], stages=2) == []  # the last


def test_a_pipeline_whose_last_stage_was_not_seen_has_no_bubble_of_nothing():
    first = StagePasses(
        rank=0, round=0, rung="node", passes=("0F0", "0B0", "rest"), seconds=(1, 2, 0)
    )
    assert estimate_bubble(Holder((first,), stages=2), "node", 1.0) is None  # type: ignore[arg-type]
