"""What the final comparison shows, how long it goes on, and what it does to what only looked good."""

from dataclasses import replace

import numpy as np
import pytest
from searches import (
    LAUNCH,
    Job,
    change,
    flags,
    one_launch,
    play_turns,
    search_job,
    standing,
    workers,
)

from stash.measure.launcher.trials import TrialRun


def test_what_is_shown_alone_is_kept_though_another_spoils_both():
    # GIVEN two changes that look good together until the final comparison, where one takes away what the other saves
    def step(names):
        final = len(job.launched) > 9
        return (
            0.1
            - 0.03 * ("a" in names)
            - 0.01 * ("b" in names)
            + 0.05 * (final and {"a", "b"} <= names)
        )

    job = Job(step)
    search = search_job(job, change("a"), change("b"), within=240.0)
    # THEN the one that is shown by itself in the same rounds is kept
    assert search.final.kept == ("a",)
    assert standing(search) == {"a": "kept", "b": "unproven"}
    assert search.final.together.value == pytest.approx(0.03, rel=0.2)


def test_beside_a_step_that_varies_what_saves_most_is_not_given_up_for_what_turns_showed():
    # GIVEN a loader whose setting turns show to save 40 ms; by launches, which vary by a third, it saves 10, and
    # a change of the exchange 50 ms more, with which they do not vary
    def step(names):
        calm = (0.1 - 0.01 * ("workers=0" in names)) * (1.3 if len(job.launched) % 2 else 0.8)
        return 0.045 if "bucket" in names else calm

    job = Job(step)
    turns = play_turns(job, *((0.1, 0.06 + 0.001 * number, 0.099) for number in range(3)))
    search = search_job(
        job, *workers(0, 2), change("bucket"), change("idle"), within=210.0, turns=turns
    )
    assert "bucket" in search.final.kept


def test_an_interrupt_keeps_what_was_proven_and_nothing_else():
    job = Job(lambda names: 0.1 - 0.02 * ("good" in names))
    job.interrupt_at = 4.5 * LAUNCH
    search = search_job(job, change("good"))
    assert search.final.interrupted
    assert search.final.kept == ()
    assert standing(search)["good"] != "kept"


def test_what_saves_much_is_never_lost_to_what_only_looked_good():
    """In noise of 2 % some of five idle changes look good beside one that saves 15 %; time is too short for all."""
    idle = ("bucket", "static", "view", "gloo", "cores")
    lost = 0
    for seed in range(60):
        job = Job(lambda on: 0.1 - 0.015 * ("good" in on), noise=0.02)
        job.random = np.random.default_rng(seed)
        search = search_job(
            job, *(change(name, joins=True) for name in (*idle[:4], "good", idle[4])), within=272.0
        )
        lost += "good" not in search.final.kept
    assert lost == 0


@pytest.mark.parametrize(("seemed", "rounds"), [(0.005, 3), (0.02, 4)])
def test_a_final_comparison_that_shows_no_saving_at_all_ends_at_its_first_look(seemed, rounds):
    # GIVEN a change that looks good until it is proven
    job = Job(
        lambda on: 0.1 + (-seemed if len(job.launched) < 6 else 0.02) * ("fickle" in on),
        noise=0.001,
    )
    search = search_job(job, change("fickle"))
    # THEN what seemed to save much is given another round
    assert standing(search) == {"fickle": "unproven"}
    assert search.candidates["fickle"].why == f"not shown in {rounds} rounds"
    assert sum(each.stage == "final" for each in search.launches) == 2 * rounds


def test_what_saves_much_is_not_lost_to_noise_that_lasts_for_two_rounds():
    # GIVEN a change that saves 20 ms but for the four launches that begin to prove it
    job = Job(
        lambda on: 0.1 - (-0.01 if 5 < len(job.launched) < 10 else 0.02) * ("good" in on),
        noise=0.001,
    )
    search = search_job(job, change("good"))
    assert standing(search) == {"good": "kept"}
    assert job.launched.count(frozenset({"good"})) >= 2 + 2 + 3


def test_the_final_comparison_goes_on_while_the_evidence_is_promising():
    # GIVEN noise in which a saving of 12 % is not shown in three rounds
    job = Job(lambda on: 0.1 - 0.012 * ("good" in on), noise=0.035)
    search = search_job(job, change("good"), within=100 * LAUNCH)
    # THEN more rounds show it, up to twelve
    assert standing(search) == {"good": "kept"}
    assert 3 < search.final.rounds <= 12


class Turning(Job):
    """Trains something else from a launch on."""

    def __init__(self, step, since):
        super().__init__(step)
        self.since = since

    def run(self, changes, steps=None):
        self.other_losses = {"good"} if len(self.launched) >= self.since else set()
        return super().run(changes, steps)


def test_what_turns_out_to_train_something_else_in_the_final_comparison_is_no_failure():
    search = search_job(
        Turning(lambda names: 0.1 - 0.02 * ("good" in names), since=4), change("good")
    )
    assert standing(search) == {"good": "other training"}
    assert search.candidates["good"].why.startswith("losses differ by")


def test_two_that_train_something_else_only_together_are_no_failure_either():
    class Both(Job):
        def run(self, changes, steps=None):
            self.other_losses = {"a"} if len(changes) > 1 else set()
            return super().run(changes, steps)

    search = search_job(Both(lambda names: 0.1 - 0.02 * len(names)), change("a"), change("b"))
    assert sorted(standing(search).values()) == ["kept", "other training"]


def test_time_for_a_proof_is_reckoned_by_what_each_launch_took():
    """The script as typed starts its workers again in each epoch, and takes four times as long as without."""

    class Restarting(Job):
        def run(self, changes, steps=None):
            found = super().run(changes, steps)
            self.now += 0 if changes else 3 * LAUNCH
            return replace(found, elapsed_seconds=LAUNCH * (1 if changes else 4))

    job = Restarting(lambda names: 0.1 - 0.05 * ("kept" in names))
    idle = [change(f"idle{number}") for number in range(8)]
    search = search_job(job, change("kept", leads=True, forecast=0.05), *idle, within=24 * LAUNCH)
    # THEN what was to be tried beside it gave its time to three rounds of both
    assert standing(search)["kept"] == "kept"
    assert search.final.rounds == 3


def test_what_turns_show_without_the_others_is_launched_once_and_kept():
    # GIVEN two settings that take turns, one of which adds nothing in the second such launch, which compares
    job = Job(lambda names: 0.1 - 0.03 * ("good" in names))
    asked = []

    def turns(rungs, rounds, stays):
        job.now += LAUNCH
        asked.append(rungs)
        minor = 0.004 if len(asked) == 1 else 0.0
        on = [rung.get("flags", {}) for rung in rungs]
        row = [0.1 - 0.03 * ("good" in each) - minor * ("minor" in each) for each in on]
        return [dict(enumerate(row))] * rounds, TrialRun(None)

    search = search_job(job, *flags("good", "minor"), within=8 * LAUNCH, turns=turns)
    # THEN the other is kept, as a launch of it alone shows what it trains
    assert search.final.in_turns
    assert search.final.kept == ("good",)
    assert job.launched[-1] == {"good"}


@pytest.mark.parametrize("flags_switch", [True, False])
def test_a_loader_that_could_not_be_switched_is_compared_by_launches(flags_switch):
    # GIVEN a loader whose settings never take turns, flags that may, and too little time for all by launches
    job = Job(lambda names: 0.1 - 0.05 * ("workers=2" in names) - 0.02 * ("also" in names))
    one = one_launch(job)

    def turns(rungs, rounds, stays):
        rows, trial = one(rungs, rounds, stays)
        has_loader = any("loader" in rung for rung in rungs)
        return (rows if flags_switch and not has_loader else []), trial

    changes = (*workers(2, 4), *flags("also", "idle"))
    search = search_job(job, *changes, within=14 * LAUNCH, turns=turns)
    # THEN the time is not kept for turns that would show nothing
    assert "workers=2" in search.final.kept
    assert not search.final.in_turns
