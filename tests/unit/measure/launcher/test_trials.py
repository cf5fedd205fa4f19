"""What launches of ``stash fix`` come to."""

from types import SimpleNamespace

import pytest

from stash.core.measured import Block
from stash.measure.launcher.trials import (
    TrialRun,
    Trials,
    _added_seconds,
    _epoch_shares,
    _evaluation_share,
)


def block(rank, number, seconds):
    return Block(round=number, rung="untouched", rank=rank, steps=4, seconds=4 * seconds)


def test_a_rank_that_waits_longer_for_its_first_batch_is_waited_for_in_the_rest():
    # GIVEN ranks in step, 2.0 s an epoch of ten steps; one waits 1.0 s for its first batch, the other 1.4 s
    blocks = [[block(0, number, 0.10), block(1, number, 0.06)] for number in range(3)]
    beginning = _epoch_shares([evidence(1.0), evidence(1.4)], 2)
    assert beginning == pytest.approx([0.10, 0.14])
    # THEN a step takes 0.2 s with that, and not 0.24
    assert 0.10 + _added_seconds(blocks, beginning) == pytest.approx(0.2)


def evidence(first, steps=10):
    return {"epochs": [(9.0, 0), (first, steps), (first, 2 * steps)], "evaluations": {}}


def test_without_what_a_rank_recorded_nothing_is_known_of_epochs():
    assert _epoch_shares([evidence(1.0)], 2) is None
    assert _epoch_shares([evidence(1.0), {"epochs": [(1.0, 0)]}], 2) is None


def test_an_epoch_that_ends_after_a_step_costs_each_step_its_start():
    # GIVEN `next(iter(loader))` in every step, of a loader whose length is 256
    assert _epoch_shares([evidence(0.03, steps=1)], 1) == pytest.approx([0.03])


def test_of_evaluations_every_loader_of_the_slowest_rank_is_waited_for():
    ranks = [
        {"evaluations": {"a": [(5.0, 20), (0.4, 40), (0.6, 60)], "b": [(1.0, 0), (0.2, 10)]}},
        {"evaluations": {"a": [(9.0, 20)]}},
    ]
    assert _evaluation_share(ranks) == pytest.approx(1.0 / 40 + 0.2 / 10)
    assert _evaluation_share(ranks[1:]) is None  # seen once


def test_a_loop_of_few_steps_is_timed_in_so_many_from_then_on(monkeypatch):
    asked = []

    def launch(self, settings, variables, seconds, steps, bare=False):
        asked.append((steps, self._endless))
        return TrialRun(0.01 if steps <= 20 else None, short=True)

    monkeypatch.setattr(Trials, "_launch_trial", launch)
    job = Trials(SimpleNamespace(measurement=None, folder_lock=None))
    assert job.run_trial({}, {}, 4.0).step_seconds == 0.01
    assert asked == [(2_000, False), (2_000, True), (20, True)]
    job.run_trial({}, {}, 4.0)
    job.run_trial({}, {}, 4.0, steps=200)  # what is recorded is compared step by step
    assert asked[3:] == [(20, True), (200, True)]


def test_a_loop_that_counts_steps_and_ends_after_enough_of_them_keeps_its_epochs(monkeypatch):
    """A faster loader is through its 300 steps before the trial's seconds are over."""
    asked = []

    def launch(self, settings, variables, seconds, steps, bare=False):
        asked.append(self._endless)
        return TrialRun(0.01, steps=150, short=True)

    monkeypatch.setattr(Trials, "_launch_trial", launch)
    job = Trials(SimpleNamespace(measurement=None, folder_lock=None))
    assert job.run_trial({}, {}, 4.0).steps == 150
    assert asked == [False]
