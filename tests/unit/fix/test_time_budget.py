"""What is left of a search's time, by pencil."""

import pytest

from stash.fix.time_budget import TimeBudget


def test_seconds_left_count_from_when_the_budget_was_made_and_launches_by_their_mean():
    now = [100.0]
    budget = TimeBudget(60.0, lambda: now[0], launches=[8.0, 12.0])
    now[0] = 130.0
    assert budget.seconds_left() == 30.0
    assert budget.has_room(3)
    assert not budget.has_room(3.1)


@pytest.mark.parametrize(
    ("within", "takes_turns", "reserve"),
    [
        (70.0, False, 60.0),  # six launches of 10 s, with one more
        (69.9, False, 0.0),
        (69.9, True, 10.0 + 4.0 + 1.3 * 3 * (0.75 + 1.5)),  # one launch, and three rounds in turns
        (10.0, True, 0.0),
    ],
)
def test_a_proof_is_set_aside_by_launches_else_in_turns_else_not(within, takes_turns, reserve):
    budget = TimeBudget(within, lambda: 0.0, launches=[10.0])
    budget.set_aside(step=0.01, takes_turns=takes_turns, starting=4.0)
    assert budget.reserve == pytest.approx(reserve)
    assert budget.is_short(10) == (reserve > 0)


def test_a_block_is_as_long_as_its_steps_or_as_a_full_queue_takes():
    budget = TimeBudget(100.0, lambda: 0.0, launches=[10.0], starting=4.0)
    assert budget.block_seconds({}, 0.01) == 0.75
    assert budget.block_seconds({"loader": {}}, 0.01) == 1.5
    assert budget.block_seconds({"loader": {"num_workers": 16}}, 0.1) == pytest.approx(3.2)
    assert budget.rounds_in_turns([{"loader": {}}], 1, 0.01) == 6


def test_what_is_launched_alone_and_proven_together_is_counted_in_launches_left():
    budget = TimeBudget(100.0, lambda: 0.0, launches=[10.0])
    assert budget.count_screened() == 10  # once each, as no proof is set aside
    assert budget.count_proven() == 1  # at least
    budget.set_aside(step=0.01, takes_turns=False, starting=4.0)  # six launches of ten
    assert budget.count_screened() == 1
    assert not budget.has_room_to_combine(1)
    assert TimeBudget(120.0, lambda: 0.0, launches=[10.0]).has_room_to_combine(1)  # 4 * 3 launches


def test_as_many_take_turns_as_fit_into_a_share_of_the_time_and_more_rounds_beside_a_slow_start():
    budget = TimeBudget(100.0, lambda: 0.0, launches=[10.0], starting=4.0)
    rungs = [{"loader": {}}] * 8
    # three rounds of the script as typed and n others: 4.5 s * (1 + n) of 0.3 * 100 - 4
    assert budget.plan_turns(rungs, 0.01) == (4, 3)
    assert budget.plan_turns(rungs[:1], 0.01) == (0, 0)
    slow = TimeBudget(200.0, lambda: 0.0, launches=[30.0], starting=20.0)
    assert slow.plan_turns(rungs[:2], 0.01) == (2, 6)  # 2 * 20 s of 4.5 s a round, six at most
    # 1.3 * 2.25 s a round and the start, in a fifth of the time: five rounds
    assert budget.fits_again(rungs[:1], 5, 0.01)
    assert not budget.fits_again(rungs[:1], 6, 0.01)
