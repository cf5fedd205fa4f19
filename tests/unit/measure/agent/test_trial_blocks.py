"""How many steps a block of a trial holds, and which of them are left alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ranks_in_memory import end_reason, job, orders

from stash.measure.agent.runner import loops, trial
from stash.measure.agent.wraps import trial_changes, trial_settings
from stash.measure.agent.wraps.trial_changes import LoopBegun


@pytest.mark.parametrize(
    ("workers", "per_step", "steps", "whole"),
    [
        (0, 1, 19, 19),
        (1, 1, 19, 19),
        (8, 1, 19, 24),
        (6, 1, 12, 12),
        (32, 1, 11, 32),
        (8, 4, 19, 20),
        (6, 4, 19, 21),
    ],
)
def test_a_block_holds_as_many_batches_of_every_worker(
    workers: int, per_step: int, steps: int, whole: int
):
    cycle = trial._worker_cycle(SimpleNamespace(workers=workers, per_step=per_step))
    found = trial._round_to_cycles(steps, cycle)
    assert found == whole
    assert not workers or found * per_step % workers == 0


def test_of_very_many_workers_a_block_is_as_long_as_any():
    assert trial._round_to_cycles(19, 128) == trial._round_to_cycles(1_000, 1) == 100


@pytest.fixture
def recording_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_settings._Process, "rests", False)
    monkeypatch.setattr(trial_changes, "loops_begun", [])


@pytest.mark.usefixtures("recording_again", "one_process_after_the_other")
def test_bare_steps_are_known_by_when_they_end_alone(tmp_path: Path) -> None:
    # GIVEN steps of 50 ms, of which each tenth begins an epoch and each fourth one validates, too
    one = job(
        orders(
            tmp_path,
            rungs=("warm",),
            trial={},
            trial_bare=True,
            trial_seconds=3.0,
            trial_steps=1_000,
        )
    )
    runner, watched = one.runner, 0
    while not one.left and one.steps < 500:
        runner.stepped(one.optimizer)
        one.steps += 1
        watched += runner.listens
        if one.steps % 40 == 0:
            one.clock.seconds += 5.0
            trial_changes.loops_begun.append(LoopBegun(one.clock.seconds - 0.5, trains=False))
        if one.steps % 10 == 0:
            one.clock.seconds += 7.0
            trial_changes.loops_begun.append(LoopBegun(one.clock.seconds, trains=True))
        one.clock.seconds += 0.05
    # THEN some steps are recorded first, and the script knows of nobody who listens after that
    assert end_reason(one) == "trial done"
    assert 8 <= watched < 40
    # AND what belongs to epochs and validation is no step's
    assert {round(second, 6) for block in one.blocks() for second in block.step_seconds} == {0.05}
    assert {block.steps for block in one.blocks()} <= {19, 20}


@pytest.mark.usefixtures("recording_again", "one_process_after_the_other")
def test_a_script_that_stops_to_step_among_bare_steps_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a script that evaluates for minutes after it has trained
    one = job(
        orders(
            tmp_path,
            rungs=("warm",),
            trial={},
            trial_bare=True,
            trial_seconds=30.0,
            trial_steps=1_000,
        )
    )
    for _ in range(100):
        one.runner.stepped(one.optimizer)
        one.clock.seconds += 0.05
    assert one.runner.counts
    assert not one.left
    assert one.runner.loops.is_between_epochs  # another step is waited for
    monkeypatch.setattr(loops, "PATIENCE", 0.05)
    one.runner.loops.leave_alone()  # as at the beginning of the block, but less patient
    # THEN it is not waited for to its end
    deadline = time.monotonic() + 60
    while not one.left and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one.left
    assert end_reason(one) == "script ended"
    assert one.blocks()


@pytest.mark.usefixtures("recording_again", "one_process_after_the_other")
@pytest.mark.parametrize(
    ("seconds", "changes"), [(0.2, {}), (0.05, {"endless": True}), (0.05, {"trial_bare": False})]
)
def test_steps_that_are_long_or_need_watching_are_watched(
    tmp_path: Path, seconds: float, changes: dict[str, bool]
) -> None:
    given = {"trial_bare": True, **changes}
    one = job(
        orders(tmp_path, rungs=("warm",), trial={}, trial_seconds=3.0, trial_steps=1_000, **given)
    )
    while one.runner.listens and one.steps < 500:
        one.step(seconds)
    assert end_reason(one) == "trial done"
    assert not trial_settings.has_stopped_recording()
