"""The first steps of a job against what was measured: alike, beyond both intervals, and between two data rungs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block
from stash.core.records.profile import Profile
from tests.support.profile_builder import build, ledger

ROUNDS = 6


def profile(first: float, warm: float = 0.1, cold: float | None = None, **fields: float) -> Profile:
    """A job of one rank whose first ten steps took ``first`` seconds each."""
    times = {
        "solo": [0.08 + 0.0001 * at for at in range(ROUNDS)],
        "warm": [warm + 0.0001 * at for at in range(ROUNDS)],
    }
    if cold is not None:
        times["cold"] = [cold + 0.0001 * at for at in range(ROUNDS)]
    made = build(times, ranks=1)
    steps = tuple(first + 0.0002 * (at % 3) for at in range(10))
    typed = Block(
        round=0, rung=UNTOUCHED.name, rank=0, steps=10, seconds=sum(steps), step_seconds=steps
    )
    return made.model_copy(update={"blocks": (replace(typed, **fields), *made.blocks)})


def test_steps_like_the_measured_ones_are_the_job():
    found = attribute(profile(0.1)).as_typed
    assert found.share == 0.0
    assert not found.differs


def test_a_step_between_warm_and_cold_is_the_job():
    found = attribute(profile(0.12, warm=0.1, cold=0.15)).as_typed
    assert found.share == 0.0


def test_first_steps_may_be_longer_by_what_clocks_miss_of_stashs_own_work_in_them():
    """23 % of 40 ms."""
    made = profile(0.107)
    observed = made.model_copy(update={"ledgers": (ledger(a_step={"other": 0.04}),)})
    assert attribute(made).as_typed.share > 0
    assert attribute(observed).as_typed.share == 0.0


@pytest.mark.parametrize(("first", "share"), [(0.13, 0.3), (0.07, -0.3)])
def test_another_step_is_another_job_and_has_no_verdict(first, share):
    made = profile(first)
    breakdown = attribute(made)
    assert breakdown.as_typed.share == pytest.approx(share, abs=0.02)
    advice = verdict(breakdown, made)
    assert (advice.kind, advice.stall) == ("cannot tell", None)
    assert "not the job as it runs" in advice.text


def test_a_small_difference_is_a_warning():
    made = profile(0.107)
    breakdown = attribute(made)
    assert verdict(breakdown, made).kind != "cannot tell" or breakdown.as_typed is None
    assert any("as it was typed" in warning for warning in breakdown.stability.warnings)


def test_the_cause_is_the_part_that_differs_most():
    found = attribute(profile(0.13, wait_seconds=10 * 0.03)).as_typed
    assert found.cause == "waiting for the loader"


def test_threads_that_compute_more_slowly_at_first_do_the_same_work():
    """Recomputing on two threads took 72 ms at first and 62 later: another pace is no other job."""
    at_first = {"cpu_seconds": 10 * 0.2, "thread_cpu_seconds": 10 * 0.1}
    made = profile(0.116, warm=0.1, **at_first)
    blocks = [
        replace(each, cpu_seconds=each.steps * 0.17, thread_cpu_seconds=each.steps * 0.1)
        if each.rung == "warm"
        else each
        for each in made.blocks
    ]
    made = made.model_copy(update={"blocks": tuple(blocks)})
    breakdown = attribute(made)
    assert breakdown.as_typed.cause == "processor time of other threads of the process"
    assert breakdown.as_typed.share == pytest.approx(0.16, abs=0.02)
    assert verdict(breakdown, made).kind == "stall"


def test_first_steps_that_are_longer_by_denormal_values_leave_the_verdict_and_say_so():
    made = profile(0.16, warm=0.0805)
    workload = made.workload.model_copy(update={"vanished_values": 5000})
    made = made.model_copy(update={"workload": workload})
    breakdown = attribute(made)
    advice = verdict(breakdown, made)
    assert breakdown.as_typed.cause.startswith("arithmetic on denormal values")
    assert advice.kind == "compute"
    assert advice.next_steps[0].startswith("Call `torch.set_flush_denormal(True)`")
    assert any("denormal" in warning for warning in breakdown.stability.warnings)


def test_denormal_values_do_not_explain_what_was_waited_for_a_loader():
    made = profile(0.5, wait_seconds=10 * 0.4)
    workload = made.workload.model_copy(update={"vanished_values": 5000})
    assert (
        attribute(made.model_copy(update={"workload": workload})).as_typed.cause
        == "waiting for the loader"
    )


def test_a_step_that_is_mostly_arithmetic_on_denormal_values_is_compute_whatever_was_measured():
    made = profile(0.5)
    workload = made.workload.model_copy(update={"vanished_values": 5000})
    made = made.model_copy(update={"workload": workload})
    advice = verdict(attribute(made), made)
    assert advice.kind == "compute"
    assert advice.text.startswith(
        "Compute takes most of a step of 500 ms as typed: 400 ms of it are arithmetic on den"
    )


def test_first_steps_that_read_from_a_disk_say_nothing_where_no_rung_does():
    found = attribute(profile(0.13, disk_bytes=10 * 2**20)).as_typed
    assert found.share == 0.0
