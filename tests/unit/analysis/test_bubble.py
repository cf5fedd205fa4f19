"""The bubble of pipelines that are simulated with slow stages and slow links, whose parts are known."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.truth.pipelines import Pass, gpipe, one_forward_one_backward, played
from stash.analysis.bubble import bubble, pipelines, typical_step
from stash.core.records.parallel import PipelineSchedule, StagePasses

FORWARD, BACKWARD = 0.01, 0.02
STEPS = 3


ORDERS = {"gpipe": gpipe, "1f1b": one_forward_one_backward}


class Simulated:
    """``STEPS`` steps of ranks with a stage each, which takes ``slow[rank]`` times as long; messages ``late``."""

    def __init__(self, kind: str, ranks: int, count: int, slow: dict[int, float], late: float = 0.0) -> None:
        orders = [ORDERS[kind](rank, ranks, count) for rank in range(ranks)]

        def seconds(one: Pass) -> float:
            return (FORWARD if one[1] == "F" else BACKWARD) * slow.get(one[0], 1.0)

        self.passes = [[f"{stage}{kind}{batch}" for stage, kind, batch in order] for order in orders]
        self.took = [[seconds(one) for one in order] for order in orders]
        waits = played(orders, seconds, late, STEPS)
        self.step = waits[0] + sum(self.took[0])
        self.waited = sum(waits) / ranks

    def rows(self) -> tuple[StagePasses, ...]:
        return tuple(
            StagePasses(rank=r, round=0, rung="node", passes=(*names, "rest"), seconds=(*took, 0.0) * STEPS)
            for r, (names, took) in enumerate(zip(self.passes, self.took, strict=True))
        )


class Holder:
    """As much of a profile as the bubble needs."""

    def __init__(self, passes: tuple[StagePasses, ...], stages: int | None = None) -> None:
        self.passes = passes
        schedule = None if stages is None else PipelineSchedule(name="S", stages=stages, ranks=stages, microbatches=1)
        self.workload = SimpleNamespace(pipeline=schedule)


def bubble_of(job: Simulated):
    found = bubble(Holder(job.rows()), "node", job.waited)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ORDERS)
def test_equal_stages_idle_what_the_textbook_says_and_nothing_else(kind: str) -> None:
    found = bubble_of(Simulated(kind, ranks=4, count=8, slow={}))
    # (p - 1) (F + B) of every rank: 3 times 30 ms
    assert found.schedule == pytest.approx(0.09)
    assert found.unequal == pytest.approx(0, abs=1e-9)
    assert found.late == pytest.approx(0, abs=1e-9)
    assert found.slowest_stage is None


def test_a_slow_stage_is_named_and_what_it_makes_others_idle() -> None:
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
    st.sampled_from(sorted(ORDERS)), st.integers(2, 8), st.integers(1, 32), st.floats(1, 3), st.floats(0, 0.02),
    st.integers(0, 7),
)  # fmt: skip
def test_parts_add_up_to_what_was_waited_and_a_link_is_no_stage(kind, ranks, count, slow, late, which) -> None:
    without = Simulated(kind, ranks, count, {which % ranks: slow})
    job = Simulated(kind, ranks, count, {which % ranks: slow}, late)
    found = bubble_of(job)
    assert found.schedule + found.unequal + found.late == pytest.approx(job.waited)
    assert abs(found.seconds - without.waited) < 0.02 * job.step
    assert (found.late > 0.02 * job.step) == (job.waited - without.waited > 0.02 * job.step)


def step_of(job: Simulated):
    found = typical_step(Holder(job.rows()), "node")  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_step_of_gpipe_with_two_stages_and_three_microbatches_is_the_one_drawn_by_hand() -> None:
    step = step_of(Simulated("gpipe", ranks=2, count=3, slow={}))
    drawn = {
        rank: [(f"{p.stage}{p.kind}{p.batch}", round(1000 * p.begins, 6), round(1000 * p.ends, 6)) for p in passes]
        for rank, passes in step.ranks.items()
    }
    assert step.seconds == pytest.approx(0.120)
    assert drawn == {
        0: [("0F0", 0, 10), ("0F1", 10, 20), ("0F2", 20, 30), ("0B0", 60, 80), ("0B1", 80, 100), ("0B2", 100, 120)],
        1: [("1F0", 10, 20), ("1F1", 20, 30), ("1F2", 30, 40), ("1B0", 40, 60), ("1B1", 60, 80), ("1B2", 80, 100)],
    }


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(ORDERS)), st.integers(2, 8), st.integers(1, 16), st.floats(1, 3), st.floats(0, 0.02),
    st.integers(0, 7),
)  # fmt: skip
@example("1f1b", 4, 4, 1.0, 0.0, 0)
@example("1f1b", 4, 4, 2.0, 0.01, 2)
@example("1f1b", 5, 4, 1.25, 0.0, 1)
def test_the_drawn_step_is_as_long_as_the_measured_one_and_its_gaps_are_the_bubble(
    kind, ranks, count, slow, late, which
) -> None:
    job = Simulated(kind, ranks, count, {which % ranks: slow}, late)
    step, found = step_of(job), bubble_of(job)
    gaps = [step.seconds - sum(p.ends - p.begins for p in passes) for passes in step.ranks.values()]
    assert sum(gaps) / ranks == pytest.approx(found.seconds)
    assert step.seconds + found.late == pytest.approx(job.step)
    for rank, passes in step.ranks.items():
        assert [f"{p.stage}{p.kind}{p.batch}" for p in passes] == job.passes[rank]
        assert all(a.ends <= b.begins + 1e-9 for a, b in itertools.pairwise(passes))


def test_of_several_steps_the_median_one_is_drawn_and_the_rest_beside_its_passes() -> None:
    # three steps of one pass each way and 1 ms outside of them, 4, 8 and 6 ms of it in stage 0; the first is left out
    rows = tuple(
        StagePasses(rank=r, round=0, rung="node", passes=(f"{r}F0", f"{r}B0", "rest"),
                    seconds=sum(((took, took, 0.001) for took in steps), ()))
        for r, steps in enumerate([(0.002, 0.004, 0.003), (0.001, 0.001, 0.001)])
    )  # fmt: skip
    step = typical_step(Holder(rows), "node")  # type: ignore[arg-type]
    assert step.seconds == pytest.approx(0.011)  # 4 + 1 + 1 + 4, and 1 outside: the longer of two
    assert [p.kind for p in step.ranks[0]] == ["F", "B", "R"]
    assert typical_step(Holder(rows[:1]), "warm") is None  # type: ignore[arg-type]


def test_ranks_with_the_same_stages_are_of_different_pipelines() -> None:
    rows = [
        StagePasses(rank=r, round=0, rung="node", passes=(f"{r // 2}F0", f"{r // 2}B0", "rest"), seconds=(1, 2, 0))
        for r in range(4)
    ]
    assert [[row.rank for row in found] for found in pipelines(rows)] == [[0, 2], [1, 3]]
    assert pipelines(rows[2:]) == []  # the first stage is missing
    assert pipelines(rows[:2], stages=2) == []  # the last


def test_a_pipeline_whose_last_stage_was_not_seen_has_no_bubble_of_nothing() -> None:
    first = StagePasses(rank=0, round=0, rung="node", passes=("0F0", "0B0", "rest"), seconds=(1, 2, 0))
    assert bubble(Holder((first,), stages=2), "node", 1.0) is None  # type: ignore[arg-type]


def test_without_passes_nothing_is_known() -> None:
    assert bubble(Holder(()), "node", 1.0) is None  # type: ignore[arg-type]
