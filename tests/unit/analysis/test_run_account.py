"""An epoch's account from ledgers written by hand: each row's seconds, share and interval by pencil."""

from __future__ import annotations

import math

import pytest
from breakdowns import advice_for, change_blocks, flat
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build, ledger

from stash.analysis.attribution import attribute
from stash.analysis.epoch_starts import level_epoch_starts
from stash.analysis.run_account import RunAccount, account_for_run
from stash.core.intervals import Interval
from stash.core.ladder import UNTOUCHED
from stash.core.ledger_rows import ROWS
from stash.core.measured import Block
from stash.core.records.profile import LedgerPlace, LedgerRow, Loader, Profile, RankLedger

STEP = flat(solo=0.020, warm=0.021)
"""Compute 20 ms, prep 1 ms."""


def account(*ledgers, times=STEP, ranks=1, loader=None, **fields) -> RunAccount:
    found = attribute(profile(*ledgers, times=times, ranks=ranks, loader=loader, **fields)).run
    assert found is not None
    return found


def profile(*ledgers, times=STEP, ranks=1, loader=None, **fields) -> Profile:
    loaders = (Loader(kind="map", **{"workers": 2, "persistent_workers": False, **(loader or {})}),)
    return build(times, ranks=ranks, workload={"loaders": loaders}, ledgers=ledgers, **fields)


def test_collectives_that_no_rung_goes_without_are_a_row_if_lines_of_the_script_call_them():
    """Ranks take 8 and 9 ms a step for them, of which lines of the script 6 and 9."""

    def run_of(*own: float) -> RunAccount | None:
        ledgers = [
            ledger(
                rank,
                a_step={"collective": whole},
                places=[
                    LedgerPlace(
                        row="collective", file="t.py", line=3, text="send()", seconds=16 * part
                    )
                ]
                if part
                else (),
            )
            for rank, (whole, part) in enumerate(zip((0.008, 0.009), own, strict=True))
        ]
        stalls = {"compute": Interval(value=0.020)}
        return account_for_run(profile(*ledgers, ranks=2), stalls, 0.020, "solo")

    run = run_of(0.006, 0.009)
    assert run is not None
    assert {row.name: round(row.seconds, 9) for row in run.rows} == {
        "compute": 0.014,
        "collective": 0.006,
    }
    of_library = run_of(0.0, 0.0)
    assert of_library is not None
    assert [row.name for row in of_library.rows] == ["compute"]


def test_compute_is_the_ladders_less_the_loop_and_the_collector():
    run = account(
        ledger(timed_steps=16, a_step={"forward": 0.01, "loop": 0.006, "collector": 0.002})
    )
    assert {row.name: round(row.seconds, 9) for row in run.rows} == {
        "compute": 0.012,
        "prep": 0.001,
        "loop": 0.006,
        "collector": 0.002,
    }
    assert run.step_seconds == pytest.approx(0.021)
    assert run.row("loop").share == pytest.approx(6 / 21)
    assert run.row("loop").time.low is None  # no interval of one sum …
    assert run.row("loop").doubt == pytest.approx(0.006 / 2 / 4)  # … but a doubt, of 16 steps


def test_of_the_loop_is_taken_what_clocks_miss_of_stashs_own_work_and_it_is_doubted():
    """23 % of 2 ms of the loop's 6 ms; compute contains all of that, and a loop of no more is none."""
    run = account(ledger(timed_steps=16, a_step={"loop": 0.006, "other": 0.002}))
    assert run.row("loop").seconds == pytest.approx(0.00554)
    assert run.row("loop").doubt == pytest.approx(0.00075)
    assert run.row("compute").seconds == pytest.approx(0.014)
    little = ledger(a_step={"loop": 0.0004, "other": 0.002})
    assert account(little).row("loop") is None
    assert account(little, device="cuda").row("loop").seconds == pytest.approx(0.0004)


def test_a_line_that_a_look_saw_at_the_end_of_a_wait_for_a_batch_still_works_for_itself():
    """One look of twenty saw the line before as waiting; of a line that asks for batches that is nearly all."""

    def place_of_loop(waits: float) -> str | None:
        places = [
            LedgerPlace(row=row, file="t.py", line=line, text=f"line {line}", seconds=16 * took)
            for row, line, took in (
                ("input", 27, waits),
                ("loop", 27, 0.0057),
                ("loop", 29, 0.0003),
            )
        ]
        run = account(ledger(timed_steps=16, a_step={"loop": 0.006}, places=places))
        return run.lines.of_row("loop").text

    assert place_of_loop(waits=0.0001) == "line 27"
    assert place_of_loop(waits=0.0010) == "line 29"


def test_a_loop_longer_than_the_compute_that_contains_it_counts_no_more_than_that_and_says_so():
    """Other work stretched first steps: 5 of 25 ms are doubt, and shares are of a whole."""
    run = account(ledger(a_step={"loop": 0.025}))
    assert run.row("compute").seconds == 0
    assert run.row("loop").seconds == pytest.approx(0.020)
    assert run.row("loop").doubt == pytest.approx(0.005)
    assert run.row("loop").share == pytest.approx(20 / 21)
    assert run.unseen[0] == (
        "The script's own code took 25.0 ms of a step as typed, more than the 20.0 ms of compute that contain it, "
        "so no more is counted."
    )


@pytest.mark.parametrize(
    ("hook", "loop", "interconnect"),
    [("topk", 0.090, 0.020), ("", 0.010, 0.100)],
)
def test_what_a_communication_hook_computes_the_exchange_contains(hook, loop, interconnect):
    """Ten ms of compute cannot contain 90 of own code, of which 80 were seen below the backward pass."""
    seen = (("backward", 89, "", 0.001), ("loop", 42, "t.py:89", 0.080))
    places = [
        LedgerPlace(row=row, file="t.py", line=line, text="f()", caller=caller, seconds=16 * took)
        for row, line, caller, took in seen
    ]
    ledgers = [
        ledger(rank, timed_steps=16, a_step={"backward": 0.01, "loop": 0.090}, places=places)
        for rank in (0, 1)
    ]
    job = build(STEP, ranks=2, workload={"exchange_hook": hook}, ledgers=ledgers)
    stalls = {"compute": Interval(value=0.010), "interconnect": Interval(value=0.100)}
    run = account_for_run(job, stalls, 0.110, "solo")
    assert run is not None
    assert run.row("loop").seconds == pytest.approx(loop)
    assert run.row("interconnect").seconds == pytest.approx(interconnect)
    assert run.step_seconds == pytest.approx(0.110)


@pytest.mark.parametrize(("wall", "kept"), [(0.025, 0.0125), (0.016, 0.008)])
def test_a_loop_that_other_work_stretched_loses_what_that_took_of_first_steps(wall, kept):
    """Of steps that lost half to others it lost half, too, and compute is the rest of what contains it."""
    stalls = {"compute": Interval(value=0.020), "prep": Interval(value=0.001)}
    run = account_for_run(
        profile(ledger(a_step={"loop": wall})), stalls, 0.021, "solo", lost_share=0.5
    )
    assert run.row("loop").seconds == pytest.approx(kept)
    assert run.row("loop").most == pytest.approx(wall)
    assert run.row("compute").seconds == pytest.approx(0.020 - kept)
    assert run.step_seconds == pytest.approx(0.021)


def test_an_epochs_start_seen_once_is_as_sure_as_the_first_one_confirms_it():
    def doubt(first, **loader):
        starts = {"epoch start": {0: first, 20: 1.0}}
        return (
            account(ledger(epoch_steps=20, now_and_then=starts), loader=loader)
            .row("epoch start")
            .doubt
        )

    assert doubt(1.2) == pytest.approx(0.2 / 20)
    assert doubt(1.01) == pytest.approx(0.15 / 20)
    assert doubt(3.0) == pytest.approx(0.5 / 20)  # as of any that was seen once
    # its first one starts workers
    assert doubt(1.2, persistent_workers=True) == pytest.approx(0.5 / 20)


def test_epoch_starts_are_shared_out_over_the_epochs_steps():
    starts = {0: 5.0, 20: 1.0, 40: 1.1, 60: 1.2}
    run = account(ledger(epoch_steps=20, now_and_then={"epoch start": starts}))
    row = run.row("epoch start")
    assert row.each.value == pytest.approx(1.1)  # the first lies in start-up, and is another
    assert row.every == 20
    assert row.seconds == pytest.approx(0.055)
    assert run.step_seconds == pytest.approx(0.021 + 0.055)
    assert row.share == pytest.approx(55 / 76)
    # Student's, of three, with the method's error
    noise, method = 4.303 * 0.1 / 3**0.5, math.hypot(1e-4, 0.05 * 1.1)
    assert row.time.half_width == pytest.approx(math.hypot(noise, method) / 20, rel=1e-3)
    assert run.startup_seconds == 3.0
    assert run.unseen == ()


def test_one_epochs_start_has_no_interval_and_what_follows_an_epoch_is_unseen():
    run = account(ledger(epoch_steps=500, now_and_then={"epoch start": {0: 1.0}}))
    row = run.row("epoch start")
    assert (row.seconds, row.time.low, row.times) == (0.002, None, 1)
    assert (row.least, row.most) == (0.001, 0.003)
    assert run.unseen == (
        "No epoch's end was seen, of 500 steps, so what comes after an epoch is not in this.",
    )


def test_a_loader_that_keeps_its_workers_starts_later_epochs_otherwise():
    run = account(
        ledger(epoch_steps=20, now_and_then={"epoch start": {0: 1.0}}),
        loader={"persistent_workers": True},
    )
    row = run.row("epoch start")
    assert row.time is None
    assert row.why == "only the first was seen (1.00 s), and its loader keeps its workers"
    assert run.step_seconds == pytest.approx(0.021)


def test_without_a_length_of_the_epoch_there_is_a_formula_and_no_share():
    run = account(ledger(now_and_then={"epoch start": {0: 2.1}}))
    row = run.row("epoch start")
    assert (row.time, row.share) == (None, None)
    assert row.why == "2.10 s each time, and how often is unknown: 50% if every 100 steps"


@pytest.mark.parametrize("name", ["evaluation", "checkpoint"])
def test_what_comes_now_and_then_is_shared_out_over_the_steps_in_between(name):
    starts = {"epoch start": {0: 0.1, 20: 0.1}}
    run = account(
        ledger(epoch_steps=20, now_and_then={**starts, name: {25: 0.5, 50: 0.5, 75: 0.5}})
    )
    assert (run.row(name).every, run.row(name).seconds) == (25, 0.02)
    once = account(ledger(epoch_steps=20, now_and_then={**starts, name: {50: 0.5}})).row(name)
    assert (once.every, once.seconds, once.times) == (50, 0.01, 1)
    before_training = account(ledger(epoch_steps=20, now_and_then={**starts, name: {0: 0.5}})).row(
        name
    )
    assert before_training.time is None


@pytest.mark.parametrize("times", [{1: 0.5}, {1: 0.5, 2: 0.5}])
def test_what_did_not_come_again_as_often_as_before_has_a_bound_and_no_share(times):
    # GIVEN a callback that evaluates at the first step, and every 500 from then on; 100 steps were seen
    row = account(ledger(now_and_then={"evaluation": times})).row("evaluation")
    # THEN half a second is no part of every step of 21 ms
    since = 100 - max(times)
    most = 0.5 / (0.5 + since * 0.021)
    assert (row.time, row.every, row.each.value) == (None, None, 0.5)
    assert row.why == f"500 ms each time, and not again in {since} steps: at most {most:.0%}"


def test_of_what_comes_too_often_to_be_told_one_by_one_none_is_missed():
    # GIVEN an evaluation in each of 100 steps, of which the first 50 were told
    each = ledger(now_and_then={"evaluation": dict.fromkeys(range(1, 51), 0.5)})
    *rows, evaluation = each.rows
    many = evaluation.model_copy(update={"times": 100})
    row = account(each.model_copy(update={"rows": (*rows, many)})).row("evaluation")
    assert (row.every, row.seconds) == (1, pytest.approx(0.5))


def test_the_first_of_many_is_no_measure_of_later_ones():
    starts = {"epoch start": {0: 0.1, 20: 0.1}}
    saves = {20: 0.9, 40: 0.1, 60: 0.1, 80: 0.1}
    row = account(ledger(epoch_steps=20, now_and_then={**starts, "checkpoint": saves})).row(
        "checkpoint"
    )
    assert (row.every, row.each.value) == (20, pytest.approx(0.1))


def test_several_at_the_same_step_are_one():
    run = account(ledger(epoch_steps=20, now_and_then={"epoch start": {0: 0.1, 20: 0.1}}))
    both = ledger(
        epoch_steps=20, now_and_then={"epoch start": {0: 0.1, 20: 0.1}, "evaluation": {50: 0.5}}
    )
    evaluation = both.rows[-1]
    twice = evaluation.model_copy(update={"each": (0.5, 0.3), "at_steps": (50, 50), "times": 2})
    found = account(both.model_copy(update={"rows": (*both.rows[:-1], twice)}))
    assert found.row("evaluation").each.value == pytest.approx(0.8)
    assert found.step_seconds - run.step_seconds == pytest.approx(0.8 / 50)


def test_of_ranks_the_slowest_is_exposed_and_named_and_the_ladder_holds_the_others():
    """Rank 0, which runs alone under the lowest rung, does 40 ms between steps, or rank 1 does."""
    times = flat(solo=0.050, crowd=0.050, node=0.052, warm=0.052)
    slow = {"forward": 0.01, "loop": 0.040}
    fast = {"forward": 0.01, "loop": 0.001}
    first = account(ledger(0, a_step=slow), ledger(1, a_step=fast), times=times, ranks=2)
    assert first.row("compute").seconds == pytest.approx(0.010)
    assert (first.row("loop").seconds, first.row("loop").rank) == (0.040, 0)
    times = flat(solo=0.011, crowd=0.050, node=0.052, warm=0.052)
    second = account(ledger(0, a_step=fast), ledger(1, a_step=slow), times=times, ranks=2)
    assert second.row("compute").seconds == pytest.approx(0.010)
    assert second.row("contention").seconds == pytest.approx(0.0)
    assert (second.row("loop").seconds, second.row("loop").rank) == (0.040, 1)
    assert second.step_seconds == pytest.approx(0.052)


def test_what_a_slow_leader_does_between_steps_is_in_contention_once_compute_is_the_others():
    """Of 40 ms between steps of rank 0, 39 are contention, which has 39 then; compute holds the other rank's 1 ms."""
    stalls = {
        name: Interval(value=value) for name, value in (("compute", 0.011), ("contention", 0.039))
    }
    ranks = (ledger(0, a_step={"loop": 0.040}), ledger(1, a_step={"loop": 0.001}))
    run = account_for_run(profile(*ranks, ranks=2), stalls, 0.050, "solo", leader_is_slow=True)
    assert {
        name: run.row(name).seconds for name in ("compute", "contention", "loop")
    } == pytest.approx({"compute": 0.010, "contention": 0.0, "loop": 0.040})
    assert run.row("loop").rank == 0
    assert not run.unseen[1:]


def test_places_are_those_of_the_slowest_rank_the_largest_first():
    def at(line, seconds, row="loop"):
        return LedgerPlace(row=row, file="train.py", line=line, text="update()", seconds=seconds)

    times = flat(solo=0.050, crowd=0.050, node=0.052, warm=0.052)
    run = account(
        ledger(0, a_step={"loop": 0.001}, places=(at(7, 0.016),)),
        ledger(1, a_step={"loop": 0.040}, places=(at(8, 0.16), at(9, 0.32))),
        times=times,
        ranks=2,
    )
    assert [(place.where, place.seconds) for place in run.places] == [
        ("train.py:9", 0.02),
        ("train.py:8", 0.01),
    ]


def test_places_of_what_comes_now_and_then_are_of_one_occurrence():
    """Of epoch starts a place is of all of them, of an evaluation of those in the timed steps."""

    def at(row, seconds):
        return LedgerPlace(row=row, file="train.py", line=7, text="", seconds=seconds)

    seen = {"epoch start": {0: 1.0, 20: 1.0}, "evaluation": {20: 0.5, 40: 0.5}}
    run = account(
        ledger(
            steps=41,
            timed_steps=16,
            now_and_then=seen,
            places=(at("epoch start", 1.8), at("evaluation", 0.4)),
        )
    )
    assert {place.row: (place.each, place.seconds) for place in run.places} == {
        "epoch start": (0.9, 0.0),
        "evaluation": (0.4, 0.0),
    }


def test_rows_as_typed_are_doubted_by_what_other_work_cost():
    def doubt(lost_share):
        stalls = {"compute": Interval(value=0.020), "prep": Interval(value=0.001)}
        typed = profile(ledger(timed_steps=16, a_step={"loop": 0.008}))
        return (
            account_for_run(typed, stalls, 0.021, "solo", lost_share=lost_share).row("loop").doubt
        )

    assert doubt(0.0) == pytest.approx(0.001)
    assert doubt(0.5) == pytest.approx(0.004)  # the larger of both


def test_what_is_unknown_is_said():
    run = account(
        ledger(
            a_step={"forward": 0.015, "other": 0.005},
            unplaced="py-spy may not look at this process",
        )
    )
    assert run.unseen == (
        "No loader was seen to begin an epoch: epoch starts are not in this.",
        "Lines of the script are unknown: py-spy may not look at this process.",
    )


SECONDS = st.floats(-1e3, 1e3, allow_nan=False)
LEDGER_ROWS = st.builds(
    LedgerRow,
    row=st.sampled_from([*ROWS, "no such row"]),
    seconds=SECONDS,
    timed_seconds=SECONDS,
    each=st.lists(SECONDS, max_size=4).map(tuple),
    at_steps=st.lists(st.integers(0, 200), max_size=4).map(tuple),
    times=st.integers(0, 9),
)
LEDGERS = st.builds(
    RankLedger,
    rank=st.integers(0, 3),
    seconds=SECONDS,
    steps=st.integers(0, 200),
    timed_steps=st.integers(0, 20),
    timed_seconds=SECONDS,
    epoch_steps=st.one_of(st.none(), st.integers(0, 200)),
    rows=st.lists(LEDGER_ROWS, max_size=6).map(tuple),
)


@given(st.lists(LEDGERS, max_size=3))
@settings(max_examples=60, deadline=None)
def test_whatever_ledgers_hold_the_rows_add_up_to_an_epoch(ledgers):
    made = profile(*ledgers)
    run = attribute(made).run
    assert advice_for(made).text
    if run is not None:
        assert sum(row.seconds for row in run.rows) == pytest.approx(run.step_seconds)
        assert sum(row.share for row in run.rows if row.share is not None) == pytest.approx(1.0)


def with_first_block(found: Profile, *steps: float, **fields) -> Profile:
    block = Block(
        round=0,
        rung=UNTOUCHED.name,
        rank=0,
        steps=len(steps),
        seconds=sum(steps),
        step_seconds=steps,
        **fields,
    )
    return found.model_copy(update={"blocks": (block, *found.blocks)})


@pytest.mark.parametrize(
    ("step", "first", "later", "loop", "grew", "compute"),
    [
        # the stamps had 5 of its 6 ms, and 10 of later ones: twice as much, so 12 ms of 20
        (0.016, 0.005, 0.010, 0.012, 2.0, 0.008),
        # what blocks lack of it: it keeps what first steps had, and compute loses what blocks have
        (0.024, 0.005, 0.0025, 0.006, None, 0.017),
        # 5 of 6 ms lie between backward and the update: what grows beside them tells nothing of them
        (0.020, 0.001, 0.002, 0.006, None, 0.014),
    ],
)
def test_a_loop_that_grows_is_as_long_as_in_measured_steps(step, first, later, loop, grew, compute):
    between = {"solo": {"stage_seconds": {"between": 10 * later}}}
    found = with_first_block(
        profile(ledger(timed_steps=16, a_step={"loop": 0.006}), block_extra=between),
        *[step] * 16,
        stage_seconds={"between": 16 * first},
    )
    run = attribute(found).run
    assert run.row("loop").seconds == pytest.approx(loop)
    assert run.row("loop").grew == (grew and pytest.approx(grew))
    assert run.row("compute").seconds == pytest.approx(compute)
    says = "2.0 times what it took in the first steps"
    assert (says in advice_for(found).text) is (grew is not None)


def test_code_that_some_blocks_have_and_others_do_not_has_not_grown():
    """A pool that is scored every 25 steps: of each block of ten steps, 250 ms or nothing."""
    found = with_first_block(
        profile(
            ledger(timed_steps=16, a_step={"loop": 0.006}), times=flat(7, solo=0.02, warm=0.021)
        ),
        *[0.016] * 16,
        stage_seconds={"between": 16 * 0.006},
    )
    found = change_blocks(
        found,
        lambda b: (
            {}
            if b.rung == UNTOUCHED.name
            else {"stage_seconds": {"between": 0.25 * (b.round % 2 == 0)}}
        ),
    )
    assert attribute(found).run.row("loop").grew is None


def test_what_the_step_after_an_epochs_start_takes_longer_belongs_to_the_start():
    """Ten steps of 20 ms, the fifth of which, 0.3 s longer, followed the second epoch's start of 1 s."""
    starts = {"epoch start": {0: 1.2, 24: 1.0}}
    steps = [0.020] * 10
    steps[4] = 0.320
    waits = (0.001, 0.001, 0.001, 0.001, 1.0, 0.001, 0.001, 0.001, 0.001, 0.001)
    found = profile(ledger(steps=30, timed_steps=10, epoch_steps=24, now_and_then=starts))
    found = with_first_block(found, *steps, step_waits=waits, wait_seconds=sum(waits))
    assert attribute(found).run.row("epoch start").each.value == pytest.approx(1.3)
    plain = level_epoch_starts(found).blocks[0]
    assert plain.seconds == pytest.approx(0.2)
    assert plain.wait_seconds == pytest.approx(0.01)
    shorter = with_first_block(profile(*found.ledgers), *[0.020] * 4, 0.010, *[0.020] * 5)
    assert attribute(shorter).run.row("epoch start").each.value == pytest.approx(0.99)
    alone = found.model_copy(update={"workload": found.workload.model_copy(update={"loaders": ()})})
    assert attribute(alone).run.row("epoch start").each.value == pytest.approx(1.0)
    assert level_epoch_starts(alone) == alone  # nobody starts who could compete
    other = found.model_copy(
        update={"ledgers": (ledger(steps=30, timed_steps=9, now_and_then=starts),)}
    )
    assert level_epoch_starts(other).blocks == other.blocks  # of another launch


def test_updates_of_two_optimizers_are_one_step():
    """Ten steps, each of two updates: the loop's 0.06 s are 6 ms of each, and epochs are of 20 steps."""
    starts = {"epoch start": {0: 1.0, 40: 1.0, 80: 1.0}}
    updates = ledger(steps=82, timed_steps=20, a_step={"loop": 0.003}, now_and_then=starts)
    found = with_first_block(profile(updates), *[0.020] * 10)
    run = attribute(found).run
    assert run.row("loop").seconds == pytest.approx(0.006)
    assert run.row("epoch start").every == 20


def test_where_no_rung_goes_without_the_loader_waits_for_it_are_a_row():
    """Of compute, which contains them; elsewhere they are prep's and fetch's."""
    seen = profile(ledger(a_step={"forward": 0.01, "input": 0.006}))
    stalls = {"compute": Interval(value=0.020)}
    rows = {
        lowest: {
            row.name: round(row.seconds, 9)
            for row in account_for_run(seen, stalls, 0.020, lowest).rows
        }
        for lowest in ("warm", "solo")
    }
    assert rows == {"warm": {"compute": 0.014, "input": 0.006}, "solo": {"compute": 0.020}}
