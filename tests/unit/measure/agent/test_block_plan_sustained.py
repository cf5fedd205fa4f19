"""How long a cold block must be, from steps as a limited disk gives them."""

from __future__ import annotations

import random

import pytest

from stash.measure.agent.runner.block_plan import (
    BlockSize,
    Halves,
    cold_size,
    credit_note,
    next_cold_size,
    split_halves,
)

DATA = BlockSize(settle=1, steps=4)
SIZE = cold_size(DATA, most=50)
BUDGET = 30.0


def limited(count: int, credit: float, step: float = 0.02, reading: float = 0.05) -> list[float]:
    """Steps that need ``reading`` of a limited disk each, whose first ``credit`` seconds of it are lent."""
    found = []
    for _ in range(count):
        lent = min(credit, reading)
        credit -= lent
        found.append(step + reading - lent)
    return found


@pytest.mark.parametrize("credit", [0.1, 0.3, 0.5, 1.0])
def test_a_block_that_began_on_credit_begins_later_until_its_halves_agree(credit: float) -> None:
    size, tried, steps = SIZE, [BlockSize(0, 0)], [0.0]
    while size != tried[-1]:
        tried.append(size)
        steps = limited(size.total_steps, credit)[size.settle :]
        seen = split_halves(steps)
        assert seen is not None
        size = next_cold_size(size, seen, DATA, BUDGET, None)
    assert len(tried) <= 5
    assert steps == pytest.approx([0.07] * size.steps)


def test_a_cold_block_lasts_a_second_and_steady_steps_ask_for_no_more() -> None:
    noise = random.Random(0)
    seen = split_halves([0.05] * 8)
    assert seen is not None
    size = next_cold_size(SIZE, seen, DATA, BUDGET, None)
    assert size == BlockSize(1, 20)
    for _ in range(200):
        seen = split_halves([0.05 * (1 + 0.02 * noise.gauss(0, 1)) for _ in range(20)])
        assert seen is not None
        assert next_cold_size(size, seen, DATA, BUDGET, None) == size


def test_steps_that_come_in_slices_are_not_on_credit() -> None:
    # a limit that pays out in slices of a tenth of a second lets every other step pass at once
    seen = split_halves([0.025, 0.075] * 10)
    assert not seen.is_on_credit


def test_no_block_takes_more_than_its_share_of_the_budget_or_than_the_job_allows() -> None:
    lent = Halves(0.3, 0.6, 0.0)
    assert next_cold_size(SIZE, lent, DATA, BUDGET, None) == SIZE
    assert next_cold_size(SIZE, lent, DATA, 3 * BUDGET, None) == BlockSize(5, 8)
    assert next_cold_size(SIZE, lent, DATA, 3 * BUDGET, most=12) == SIZE


def test_steps_that_become_faster_are_not_on_credit() -> None:
    seen = split_halves([0.09] * 4 + [0.07] * 4)
    assert not seen.is_on_credit


def test_a_block_too_short_for_halves_says_nothing() -> None:
    assert split_halves([0.1, 0.2, 0.3]) is None


def test_the_first_cold_block_is_long_enough_to_have_halves_in_whole_bursts() -> None:
    assert cold_size(BlockSize(4, 4), most=50) == BlockSize(4, 8)
    assert cold_size(BlockSize(1, 10), most=50) == BlockSize(1, 10)
    assert cold_size(BlockSize(1, 2), most=5) == BlockSize(1, 2)  # a loop that ends after few steps


def test_what_is_said_names_both_rates() -> None:
    lent = Halves(0.0374, 0.0751, 0.001)
    assert (
        "37.4 ms at first and 75.1 ms a few steps later; fetch is at the rate that it keeps"
        in credit_note(lent, True)
    )
    assert "in a long run fetch is larger" in credit_note(lent, False)
