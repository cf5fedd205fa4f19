"""The search on simulated jobs: what it keeps, what it leaves, and that it ends in time."""

from dataclasses import replace

import numpy as np
import pytest
from searches import LAUNCH, Job, change, play_turns, search_job, standing, workers

from stash.fix.search_state import NO_PROOF
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun


def test_what_saves_is_kept_with_what_it_saves_and_the_rest_is_not():
    # GIVEN a step of 100 ms of which one change takes 20 and another nothing
    job = Job(lambda names: 0.1 - 0.02 * ("good" in names))
    search = search_job(job, change("good"), change("idle"))
    # THEN the first is kept with an interval that holds the truth, from rounds that did not choose it
    assert standing(search) == {"good": "kept", "idle": "no difference"}
    saves = search.final.together
    assert 0 < saves.low <= 0.02 <= saves.high
    assert search.final.rounds == 3
    assert search.repeats is True
    assert search.final.proof.holds


def test_what_cannot_pay_by_forecast_is_never_launched():
    job = Job(lambda names: 0.1)
    search = search_job(job, change("tiny", forecast=0.0005), change("other", forecast=0.05))
    assert frozenset({"tiny"}) not in job.launched
    assert search.candidates["tiny"].why == "saves 500 µs of the step at most, by forecast"


@pytest.mark.parametrize("both", [0.07, 0.075])
def test_of_two_that_save_the_same_one_is_kept(both):
    # GIVEN two changes of which each saves 30 ms, and both no more than one, or less
    job = Job(lambda names: {0: 0.1, 1: 0.07, 2: both}[len(names)])
    search = search_job(job, change("a"), change("b"))
    assert len(search.final.kept) == 1
    assert search.final.together.value == pytest.approx(0.03, rel=0.2)


def test_without_workers_nothing_is_tried_that_only_workers_do():
    job = Job(lambda names: 0.05 if "workers=0" in names else 0.1)
    prefetch = change("prefetch=4", settings={"loader": {"prefetch_factor": 4, "site": "x"}})
    turns = play_turns(job, *((0.1, 0.08 + 0.001 * number, 0.05) for number in range(3)))
    search = search_job(job, prefetch, *workers(0), turns=turns)
    assert search.final.kept == ("workers=0",)
    assert (search.candidates["prefetch=4"].standing, search.candidates["prefetch=4"].why) == (
        "no difference",
        "no worker is left",
    )
    assert not any("prefetch=4" in names for names in job.launched)


def test_workers_stay_where_what_only_they_do_saves_more_than_none():
    by_name = {"in_order": 0.05, "workers=0": 0.03}
    job = Job(lambda names: 0.1 - max((by_name[name] for name in names), default=0))
    ordered = change("in_order", settings={"loader": {"in_order": False, "site": "x"}})
    search = search_job(job, ordered, *workers(0))
    assert search.final.kept == ("in_order",)
    assert search.candidates["workers=0"].why == "in_order saves more, with workers"


def test_where_no_epoch_ended_within_a_later_launch_none_was_saved():
    # GIVEN a launch as typed of which a third of the step begins epochs, and later ones in which none ended
    job = Job(lambda names: 0.1)
    first = replace(job.run([]), epoch_seconds=0.05)
    search = search_job(job, change("persistent"), first=first)
    assert search.final.kept == ()
    assert search.typed == pytest.approx(0.15, rel=0.05)


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize(
    ("saves", "standings"),
    [
        ({"workers=2": 0.03, "workers=4": 0.04}, ["no difference", "kept"]),  # of one knob the best
        ({"bad": 0.0, "good": 0.03}, ["failed", "kept"]),  # what breaks hides no other
        ({"idle": 0.0, "good": 0.03, "other": 0.0}, ["no difference", "kept", "no difference"]),
    ],
)
def test_what_pays_is_found_among_others(saves, standings, joins):
    def step(on):
        return 0.1 - max((saves[name] for name in on), default=0)

    job = Job(step, noise=0.003, breaks={"bad": "out of memory"})
    search = search_job(job, *(change(name, joins=joins) for name in saves))
    assert [*standing(search).values()] == standings
    assert all(each.why == "out of memory" for each in search.find_candidates(["bad"]))


def test_a_change_that_trains_something_else_is_not_kept_however_fast():
    job = Job(lambda names: 0.1 - 0.05 * ("cheat" in names))
    job.other_losses = {"cheat"}
    search = search_job(job, change("cheat"))
    assert standing(search) == {"cheat": "other training"}
    assert search.final.kept == ()


def test_numerics_are_measured_and_asked_for():
    job = Job(lambda names: 0.1 - 0.03 * ("bf16" in names))
    search = search_job(job, change("bf16", effect="numerics", consent="numerics"))
    assert standing(search) == {"bf16": "asks"}
    assert job.launched.count(frozenset({"bf16"})) == 1
    saves = search.candidates["bf16"].saves
    assert abs(saves.value - 0.03) < 0.005
    allowed = search_job(
        Job(lambda names: 0.1 - 0.03 * ("bf16" in names)),
        change("bf16", effect="numerics", consent="numerics"),
        allowed=frozenset({"numerics"}),
    )
    assert standing(allowed) == {"bf16": "kept"}


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("within", [4.0, 20.0, 45.0, 70.0, 110.0, 300.0])
def test_no_launch_is_begun_that_cannot_end_in_time(within, joins):
    names = [f"c{number}" for number in range(12)]
    job = Job(lambda on: 0.1 - 0.004 * len(on), noise=0.01)
    search = search_job(job, *(change(name, joins=joins) for name in names), within=within)
    assert job.now <= LAUNCH + within  # the launch as typed came before
    assert any(each.why.startswith("no time") for each in search.candidates.values())
    assert all(
        each.standing == "left out" or each.why or each.saves for each in search.candidates.values()
    )


def test_time_that_was_set_aside_for_what_turned_out_to_save_nothing_goes_to_the_others():
    # GIVEN time for a proof and six more launches, of which each change was thought to need two
    job = Job(lambda names: 0.1 - 0.02 * ("d" in names))
    search = search_job(job, *map(change, "abcdefgh"), within=LAUNCH * (6 + 6))
    # THEN the one that pays is reached
    assert standing(search)["d"] == "kept"
    assert frozenset("d") in job.launched


def test_a_launch_that_was_ended_as_time_was_over_is_no_failure_of_what_it_tried():
    # GIVEN launches with a change that take far longer, and are ended with the time
    job = Job(lambda on: 0.1 - 0.02 * ("good" in on))
    run = job.run

    def ended(changes, steps=None):
        if not changes:
            return run(changes, steps)
        job.now = LAUNCH + 60.0
        return TrialRun(None, elapsed_seconds=50.0, failure=Diagnosis("ended"))

    job.run = ended
    search = search_job(job, change("good"), within=60.0)
    assert standing(search) == {"good": "left out"}
    assert search.candidates["good"].why == "no time for it: give more with --budget"
    assert len(job.launched) == 1


@pytest.mark.parametrize("fewer", [0.01, 0.05])
def test_of_changes_that_share_a_knob_the_one_that_saves_more_is_made(fewer):
    # GIVEN workers with fewer threads, which save 30 ms, and fewer threads alone
    def step(on):
        return 0.1 - max(0.03 * ("workers=1+threads=1" in on), fewer * ("threads=1" in on))

    both = change("workers=1+threads=1", knob="workers", settings={"threads": 1})
    search = search_job(Job(step), both, change("threads=1", settings={"threads": 1}))
    assert search.final.kept == (("threads=1",) if fewer > 0.03 else ("workers=1+threads=1",))


def test_one_that_does_much_harm_does_not_hide_the_others():
    job = Job(lambda on: 0.1 - 0.03 * ("good" in on) + 0.2 * ("bad" in on), noise=0.003)
    search = search_job(job, *(change(name, joins=True) for name in ("bad", "good")))
    assert standing(search)["good"] == "kept"
    assert standing(search)["bad"] != "kept"


def test_noise_that_makes_one_launch_of_all_slower_costs_one_more_round():
    # GIVEN nothing to gain, and a launch of everything at once that something held up
    job = Job(lambda on: 0.1 + 0.03 * (len(on) == 3 and job.launched.count(on) == 1), noise=0.003)
    search = search_job(job, *(change(name, joins=True) for name in "abc"))
    assert set(standing(search).values()) == {"no difference"}
    assert len(job.launched) == 4


@pytest.mark.parametrize(("milder", "launched"), [(0.0, False), (0.02, True)])
def test_a_value_beyond_one_that_saves_nothing_is_not_launched(milder, launched):
    job = Job(lambda on: 0.1 - milder * ("bucket=8" in on) - 0.03 * ("bucket=2" in on), noise=0.001)
    search = search_job(job, change("bucket=8"), change("bucket=2", beyond="bucket=8"))
    assert (frozenset({"bucket=2"}) in job.launched) == launched
    if not launched:
        assert search.candidates["bucket=2"].why == "bucket=8 saves nothing"


def test_savings_are_seldom_false():
    """Of 60 noisy jobs with nothing to gain and four changes each, at most one keeps any (5 % are allowed)."""
    wrong = 0
    for seed in range(60):
        job = Job(lambda names: 0.1, noise=0.03)
        job.random = np.random.default_rng(seed)
        wrong += bool(search_job(job, *(change(name) for name in "abcd")).final.kept)
    assert wrong <= 1


def test_a_job_with_nothing_to_fix_is_known_after_two_launches_whatever_there_is_to_try():
    """All that seldom costs anything goes into one launch."""
    names = [f"knob{number}" for number in range(8)]
    job = Job(lambda on: 0.1, noise=0.003)
    search = search_job(job, *(change(name, joins=True) for name in names))
    assert len(job.launched) == 2
    assert job.launched[1] == frozenset(names)
    assert set(standing(search).values()) == {"no difference"}
    assert all(
        each.why.startswith("no faster with all of knob0") for each in search.candidates.values()
    )


def test_a_script_that_does_not_repeat_itself_is_started_once_more_to_learn_by_how_much():
    job = Job(lambda on: 0.1 - 0.03 * ("good" in on), noise=0.003)
    run = job.run

    def differing(changes, steps=None):
        found = run(changes, steps)
        loss = (1 + 1e-6 * (len(job.launched) % 3)).hex()
        evidence = tuple({**each, "losses": [loss] * 10} for each in found.evidence)
        return replace(found, evidence=evidence)

    job.run = differing
    search = search_job(job, *(change(name, joins=True) for name in ("idle", "good")))
    assert search.repeats is False
    assert standing(search) == {"idle": "no difference", "good": "kept"}


def test_a_launch_that_prepares_is_no_measurement():
    """Samples are kept in a first launch, which is slow; a second one is timed."""
    job = Job(
        lambda on: 0.05 if "cache" in on and job.launched.count(frozenset(on)) > 1 else 0.1,
        noise=0.002,
    )
    search = search_job(job, change("cache", fills=True))
    assert standing(search) == {"cache": "kept"}
    assert [each.stage for each in search.launches].count("filling") == 1


def test_what_saves_most_by_forecast_and_nothing_else_removes_is_launched_before_turns():
    # GIVEN workers that start again for every epoch, noisy turns that show 7 ms, and time for nine launches
    job = Job(lambda names: 0.1 - 0.06 * ("persistent" in names) - 0.007 * ("workers=1" in names))
    turns = play_turns(job, *[(0.1, 0.093, 0.1)] * 3, takes=2 * LAUNCH)
    keep = change("persistent", forecast=0.06, joins=True, leads=True)
    search = search_job(job, *workers(1, 2, forecast=0.09), keep, within=9.5 * LAUNCH, turns=turns)
    assert job.launched[1] == {"persistent"}
    assert standing(search)["persistent"] == "kept"


def test_what_leads_and_could_not_be_proven_in_time_is_said_to_have_no_proof():
    # GIVEN time for both launches of screening and two rounds of the final comparison
    job = Job(lambda names: 0.1 - 0.06 * ("persistent" in names))
    keep = change("persistent", forecast=0.06, joins=True, leads=True)
    search = search_job(job, keep, within=4.5 * LAUNCH)
    found = search.candidates["persistent"]
    assert (found.standing, found.why) == ("unproven", NO_PROOF)
    assert found.saves.value == pytest.approx(0.06, rel=0.1)


def test_what_leads_but_saves_nothing_is_no_more_than_any_other():
    job = Job(lambda names: 0.1 - 0.03 * ("workers=2" in names))
    turns = play_turns(job, *[(0.1, 0.1, 0.07)] * 3)
    keep = change("persistent", forecast=0.06, joins=True, leads=True)
    search = search_job(job, *workers(1, 2, forecast=0.05), keep, turns=turns)
    assert standing(search) == {
        "persistent": "no difference",
        "workers=1": "no difference",
        "workers=2": "kept",
    }
