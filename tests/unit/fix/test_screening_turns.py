"""What is settled, and proven, by turns of one launch."""

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

from stash.core.intervals import Interval
from stash.fix.screening import is_surely_slower
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun


def test_what_hides_behind_a_wait_is_found_beside_what_ends_it():
    """Where the loader holds up every step, a faster exchange shows only once it no longer does."""

    def step(names):
        trains = 0.05 - 0.02 * ("bucket" in names)
        return trains if "workers=4" in names else max(0.2, trains)

    job = Job(step)
    turns = play_turns(job, (0.2, 0.1515, 0.0495), (0.2, 0.15, 0.0505), (0.202, 0.15, 0.05))
    search = search_job(
        job, *workers(2, 4, forecast=0.19), change("bucket"), within=900.0, turns=turns
    )
    assert set(search.final.kept) == {"workers=4", "bucket"}
    assert standing(search)["workers=2"] == "no difference"
    assert frozenset({"workers=2"}) not in job.launched


def test_what_turns_show_is_launched_only_to_be_proven_beside_one_that_is_far_slower_too():
    # GIVEN changes that can be switched while the script runs, of which one saves 8 % and one takes ten times as long
    job = Job(lambda on: 0.1 - 0.008 * ("fused" in on) + 0.9 * ("threads=4" in on))
    asked = []
    rows = [
        (0.1, 1.0, 0.092, 0.1, 0.08),
        (0.101, 0.5, 0.092, 0.1, 0.08),
        (0.1, 2.0, 0.093, 0.101, 0.081),
    ]
    found = search_job(
        job,
        change("threads=4", settings={"threads": 4}, variables={"OMP_NUM_THREADS": "4"}),
        change("fused", settings={"optimizer": {"fused": True}}, joins=True),
        change("set_to_none", settings={"zero_grad": {"set_to_none": True}}, joins=True),
        change("tf32", settings={"flags": {"tf32": True}}, consent="numerics", effect="numerics"),
        turns=play_turns(job, *rows, asked=asked),
    )
    # THEN the good one goes from its turns into the final comparison, numerics are asked for, the rest is settled
    assert asked[0][1] == {"threads": 4}
    assert standing(found) == {
        "threads=4": "slower",
        "fused": "kept",
        "set_to_none": "no difference",
        "tf32": "asks",
    }
    assert {each.stage for each in found.launches if each.changes == ("fused",)} == {
        "turns",
        "final",
    }
    assert not any("tf32" in names or "threads=4" in names for names in job.launched)


def test_a_block_as_typed_that_was_held_up_makes_nothing_look_good():
    # GIVEN turns of which one block as typed took three times as long, and flags that do nothing
    job = Job(lambda on: 0.1)
    rows = [(0.1, 0.1, 0.1), (0.3, 0.101, 0.1), (0.1, 0.1, 0.099)]
    found = search_job(job, *flags("a", "b"), turns=play_turns(job, *rows))
    assert set(standing(found).values()) == {"no difference"}
    assert len(job.launched) == 1


@pytest.mark.parametrize(
    ("failure", "second"), [("BCELoss is unsafe to autocast", "loader"), ("", "flags")]
)
def test_what_breaks_a_launch_of_turns_or_cannot_be_switched_hides_no_other(failure, second):
    job = Job(lambda on: 0.1)
    asked = []

    def turns(rungs, rounds, stays):
        asked.append(rungs)
        if len(asked) == 1:
            return [], TrialRun(None, failure=Diagnosis(failure) if failure else None)
        return [
            dict.fromkeys(range(len(rungs)), 0.1),
            dict.fromkeys(range(len(rungs)), 0.101),
        ] * 2, TrialRun(None)

    search_job(job, *workers(1, 2), *flags("a", "b"), turns=turns)
    assert [len(each) for each in asked] == [5, 3]
    assert all(second in rung for rung in asked[1][1:])


def test_what_turns_showed_is_proven_first_where_time_is_short():
    # GIVEN time for one launch that takes turns and a final comparison of two arms, and much to try
    job = Job(lambda on: 0.1 - 0.05 * ("workers=2" in on))
    turns = play_turns(job, (0.1, 0.051, 0.1), (0.1, 0.05, 0.101), (0.1, 0.05, 0.1))
    others = [change(name, joins=True) for name in ("bucket", "fused")]
    search = search_job(job, *others, *workers(2, 4), within=20 + 7 * LAUNCH, turns=turns)
    assert standing(search) == {
        "workers=2": "kept",
        "workers=4": "no difference",
        "bucket": "left out",
        "fused": "left out",
    }
    assert job.now <= LAUNCH + 20 + 7 * LAUNCH


@pytest.mark.parametrize(("saves", "stands"), [(0.04, "kept"), (0.004, "unproven")])
def test_where_no_launches_fit_large_savings_are_proven_by_turns_of_one(saves, stands):
    # GIVEN time for a launch of what took turns, and for one more of turns, but not for three rounds of launches
    job = Job(lambda on: 0.1 - saves * ("a" in on))
    search = search_job(job, *flags("a", "b"), within=5 * LAUNCH, turns=one_launch(job))
    # THEN what saves much is kept, as it was launched once for what it trains
    assert standing(search)["a"] == stands
    assert search.final.in_turns
    assert job.now <= 6 * LAUNCH
    assert search.candidates["a"].why == (
        "" if stands == "kept" else "no time to prove it: give more with --budget"
    )
    if stands == "kept":
        assert frozenset("a") in job.launched
        assert search.final.rounds in (3, 4, 5, 6)


def test_what_cannot_be_switched_is_not_proven_by_turns():
    job = Job(lambda on: 0.1 - 0.04 * ("a" in on))
    search = search_job(job, change("a"), change("b"), within=4 * LAUNCH, turns=one_launch(job))
    assert search.final.kept == ()


@pytest.mark.parametrize("in_turns", [False, True])
def test_two_that_save_only_together_are_found(in_turns):
    # GIVEN two calls that wait for the same: either alone saves nothing; and one that has no part in it
    job = Job(lambda on: 0.1 - 0.03 * ({"item", "wait"} <= on), noise=0.003)
    names = ("idle", "item", "wait")
    changes = (
        change(name, joins=True, settings={"flags": {name: True}} if in_turns else {})
        for name in names
    )
    search = search_job(job, *changes, turns=one_launch(job) if in_turns else None)
    assert standing(search) == {"idle": "no difference", "item": "kept", "wait": "kept"}


def test_where_launches_are_slow_turns_find_who_saves_only_together_beside_one_that_another_does_as_well():
    # GIVEN two calls that wait for the same, two ways to the same saving, and time for a few launches
    def step(on):
        return 0.1 - 0.02 * ({"item", "wait"} <= on) - 0.03 * bool({"tf32", "bf16"} & on)

    job = Job(step, noise=0.003)
    names = ("item", "wait", "tf32", "bf16")
    changes = [
        change(name, joins=name in ("item", "wait"), settings={"flags": {name: True}})
        for name in names
    ]
    search = search_job(job, *changes, within=20 * LAUNCH, turns=one_launch(job))
    kept = set(search.final.kept)
    assert {"item", "wait"} < kept
    assert len(kept & {"tf32", "bf16"}) == 1
    assert search.final.in_turns


@pytest.mark.parametrize(
    ("saves", "is_slower"),
    [
        (Interval(value=-0.0133, low=-0.0599, high=0.0333), False),
        (Interval(value=-0.0133, low=-0.02, high=-0.007), True),
        (Interval(value=-0.0133), False),
        (Interval(value=0.0133), False),
        (None, False),
    ],
)
def test_slower_is_what_even_the_best_end_of_its_interval_loses(saves, is_slower):
    assert is_surely_slower(saves) is is_slower
