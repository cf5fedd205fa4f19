"""When measuring ends, how far one has come, and what more of it would bring."""

import math
from dataclasses import replace

import numpy as np
import pytest
from breakdowns import CALM, advice_for
from profile_builder import build, own_launches

from stash.advice.claims import may_claim
from stash.advice.stopping import (
    Standing,
    budget_to_decide,
    is_decided,
    is_settled,
    make_standing,
    spent_seconds,
)
from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.disturbance import Disturbance
from stash.core.intervals import Interval
from stash.core.records.circumstances import OtherProgram


def around(rounds, noise, seed=1, **means):
    """Rounds of these means, and of that relative noise; how it ended is not asked."""
    rng = np.random.default_rng(seed)
    times = {
        name: (mean * (1 + noise * rng.standard_normal(rounds))).tolist()
        for name, mean in means.items()
    }
    profile = build(times)
    return profile.model_copy(
        update={"settings": profile.settings.model_copy(update={"until_decided": True})}
    )


QUIET = {"solo": 0.100, "crowd": 0.101, "node": 0.140, "warm": 0.200}


def test_never_before_the_fifth_round_however_even_the_first_are():
    assert [is_decided(attribute(around(rounds, 0.0, **QUIET))) for rounds in (1, 2, 3, 4, 5)] == [
        False
    ] * 4 + [True]
    # of sets three, of three rounds each
    assert is_decided(attribute(own_launches(sets=3)), precision=0.2)


def test_a_large_stall_is_known_to_a_tenth_of_itself_and_a_precision_asks_for_more():
    breakdown = attribute(around(8, 0.02, solo=0.1, crowd=0.5))
    assert is_decided(breakdown)
    assert not is_decided(breakdown, precision=0.008)
    assert is_decided(attribute(around(8, 0.001, solo=0.1, crowd=0.5)), precision=0.008)


def test_what_no_round_narrows_is_not_waited_for():
    # GIVEN a step of 10 ms, of whose exchange the method knows ±2.6 ms
    breakdown = attribute(around(6, 0.001, solo=0.0080, crowd=0.0080, node=0.0090))
    claims = may_claim(breakdown)
    assert (claims.kind, [stall.name for stall in claims.open]) == ("cannot tell", ["interconnect"])
    # THEN measuring ends, and the advice names no budget
    assert is_decided(breakdown)
    advice = advice_for(around(6, 0.001, solo=0.0080, crowd=0.0080, node=0.0090))
    assert advice.budget_seconds is None
    assert advice.next_steps[0].startswith(
        "Profile again with a larger batch, if memory allows: measuring longer"
    )


def test_where_what_was_subtracted_is_in_doubt_the_busiest_program_is_named():
    profile = around(6, 0.001, solo=0.0080, crowd=0.0080, node=0.0090)
    breakdown = attribute(profile)
    (stall,) = may_claim(breakdown).open
    parts = stall.parts.model_copy(update={"correction": 0.004})
    lost = Disturbance(
        time=Interval(value=0.01),
        doubts={"node": 0.004},
        programs=(OtherProgram(name="pip", cores=0.8),),
    )
    stalls = tuple(
        each.model_copy(update={"parts": parts}) if each is stall else each
        for each in breakdown.stalls
    )
    advice = verdict(breakdown.model_copy(update={"stalls": stalls, "disturbed": lost}), profile)
    assert advice.next_steps[0] == (
        "Profile again once pip has ended: what other work costs is subtracted, but that leaves interconnect "
        f"uncertain by at least ±{parts.besides_noise * 1e3:.2f} ms."
    )


def test_a_verdict_waits_half_a_minute_for_widths():
    busy = attribute(around(8, 0.04, **QUIET))  # its verdict holds; all it wants takes 18 rounds
    assert not is_decided(busy)
    assert not is_settled(busy, spent=29, budget=120)
    assert is_settled(busy, spent=31, budget=120)
    unknown = attribute(around(8, 0.2, **QUIET))
    assert may_claim(unknown).kind == "cannot tell"
    assert not is_settled(unknown, spent=59, budget=60)
    # what is subtracted leaves prep open, however many rounds follow
    parts = unknown.stalls[-1].parts.model_copy(update={"correction": 0.05})
    doubtful = (*unknown.stalls[:-1], unknown.stalls[-1].model_copy(update={"parts": parts}))
    assert is_settled(unknown.model_copy(update={"stalls": doubtful}), spent=31, budget=120)


def test_coverage_survives_stopping_as_soon_as_it_is_decided():
    rng, hits, trials = np.random.default_rng(13), [], 120
    for _ in range(trials):
        matrix = np.array([0.7, 1.0]) * (1 + 0.01 * rng.standard_normal((40, 2)))
        for count in range(5, 41):
            breakdown = attribute(
                build(dict(zip(("solo", "crowd"), matrix[:count].T.tolist(), strict=True)))
            )
            if is_decided(breakdown):
                break
        stall = breakdown.stall("contention")
        hits.append(abs(stall.seconds - 0.3) <= stall.parts.noise)
    assert 0.90 <= np.mean(hits) <= 0.99


PROFILE = build({name: values * 4 for name, values in CALM.items()})
"""12 rounds in 41.8 s of 120."""


def budget(profile):
    breakdown = attribute(profile)
    return budget_to_decide(breakdown, profile, may_claim(breakdown))


def test_the_budget_that_is_asked_for_decides_where_the_machine_stays_as_it_is():
    asked = [(seed, around(8, 0.05, seed, solo=0.1, crowd=0.1, warm=0.11)) for seed in range(40)]
    kinds = []
    for seed, profile in asked:
        longer = budget(profile)
        if longer is not None:
            rounds = round(longer / 41.8 * 8)
            again = attribute(around(rounds, 0.05, seed + 100, solo=0.1, crowd=0.1, warm=0.11))
            kinds.append(bool(may_claim(again).open))
    assert len(kinds) > 20
    assert np.mean(kinds) < 0.5  # asked for is the width that just decides


def test_beyond_an_hour_it_is_the_machine_that_has_to_change():
    wild = around(4, 0.5, solo=0.1, crowd=0.104).model_copy(update={"elapsed_seconds": 3000.0})
    slow = wild.model_copy(
        update={"settings": wild.settings.model_copy(update={"budget_seconds": 3000.0})}
    )
    assert budget(slow) is None
    assert (
        advice_for(slow)
        .next_steps[0]
        .startswith("Stop other work on this machine and profile again")
    )


def test_a_precision_that_was_missed_is_the_last_step_and_its_budget_the_only_one():
    profile = build(
        {
            name: [v * f for f in (0.94, 1.05, 0.97, 1.04, 1.0)]
            for v, name in ((0.1, "solo"), (0.3, "crowd"))
        }
    )
    advice = advice_for(profile)
    assert advice.kind == "stall"
    assert (
        advice.next_steps[-1]
        == f"Profile again with `--budget {advice.budget_seconds:g}s` to reach the ±2.0% asked for."
    )


def test_a_round_longer_than_the_budget_costs_what_it_took():
    blocks = tuple(replace(b, started=100.0 * b.round) for b in PROFILE.blocks)
    assert spent_seconds(PROFILE) == 41.8
    assert spent_seconds(PROFILE.model_copy(update={"blocks": blocks})) == pytest.approx(1101.76)


def test_before_the_third_round_nothing_is_said():
    assert make_standing(attribute(build({"solo": [0.1], "crowd": [0.2]}))) == Standing(1)
    assert make_standing(attribute(build({"solo": [0.1, 0.4], "crowd": [0.2, 0.3]}))) == Standing(2)
    assert Standing(0).seconds_left(5.0, 60.0) == 55.0


def test_it_stands_where_its_least_known_stall_stands():
    found = make_standing(attribute(build({"solo": [0.1, 0.1, 0.1], "crowd": [0.2, 0.22, 0.18]})))
    assert (found.rounds, found.stall) == (3, "contention")
    assert found.reached == pytest.approx(4.303 * 0.02 / math.sqrt(3) / 0.2, rel=0.1)
    # a tenth of itself, and another launch
    assert found.wanted == pytest.approx(math.hypot(0.05, 0.0098), rel=0.01)


def test_what_is_known_already_ends_at_the_fifth_round():
    even = make_standing(attribute(build({"solo": [0.1] * 4, "crowd": [0.2] * 4})))
    assert (even.stall, even.rounds_needed) == (None, 5)
    assert even.seconds_left(16.0, 60.0) == 4.0  # one more round of four seconds
    assert (
        make_standing(attribute(build({"solo": [0.1] * 5, "crowd": [0.2] * 5}))).seconds_left(
            8.0, 60.0
        )
        == 0.0
    )


def test_the_budget_ends_what_would_take_longer():
    assert Standing(4, "prep", 0.1, 0.02, 400).seconds_left(20.0, 60.0) == 40.0
    assert Standing(4, "prep", 0.1, 0.02, 6).seconds_left(20.0, 60.0) == 10.0
    assert Standing(4, "prep", 0.1, 0.02, None).seconds_left(20.0, math.inf) == math.inf
    assert Standing(4, "prep", 0.1, 0.02, 400).seconds_left(61.0, 60.0) == -1.0


def test_a_verdict_that_holds_ends_after_half_a_minute():
    busy = attribute(around(8, 0.04, **QUIET))
    assert make_standing(busy).seconds_left(20.0, 120.0) == 10.0
    assert make_standing(busy, precision=0.001).seconds_left(20.0, 120.0) == 100.0
    wild = attribute(around(8, 0.2, **QUIET))
    assert not make_standing(wild).settles


def test_a_disturbed_round_does_not_undo_the_others():
    found = make_standing(
        attribute(build({"solo": [0.1] * 19 + [0.13], "crowd": [0.2, 0.201] * 10}))
    )
    assert (found.rounds, found.stall) == (20, None)


def test_sets_of_launches_are_what_counts_where_rungs_have_launches_of_their_own():
    found = make_standing(attribute(own_launches(sets=3)), precision=0.02)
    assert found.rounds == 9
    assert found.reached == pytest.approx(4.303 * 0.01 / math.sqrt(3) / 0.22, rel=0.15)
    assert found.rounds_needed % 3 == 0
