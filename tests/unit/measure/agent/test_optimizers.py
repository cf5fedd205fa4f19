"""Scripts that replace their optimizer: whose steps are the job's, and what is kept alive (nothing)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ranks_in_memory import BATCHES, Job, end_reason, job, orders, reading, seconds_of
from torch import nn

from stash.measure.agent import script
from stash.measure.agent.runner.optimizers import Optimizers
from stash.measure.protocol.messages import Noted

pytestmark = pytest.mark.usefixtures("one_process_after_the_other")


def optimizer_of(*parameters: nn.Parameter) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def replacing(
    one: Job, every: int, make: Callable[[], torch.optim.Optimizer], most: int = 400
) -> None:
    """Train with a new optimizer every so many steps."""
    for _, mode in reading(one, BATCHES):
        if one.steps % every == 0:
            one.optimizer = make()
        one.step(seconds_of(mode))
        if one.steps >= most:
            return


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_new_optimizer_of_the_same_model_goes_on_with_its_steps(
    tmp_path: Path, every: int
) -> None:
    one, parameter = job(orders(tmp_path)), nn.Parameter(torch.zeros(2))
    replacing(one, every, lambda: optimizer_of(parameter))
    # THEN no step is lost
    assert end_reason(one) == "rounds done"
    for block in one.blocks():
        assert block.step_seconds == (1.0 if block.rung == "solo" else 3.5,) * block.steps
        assert block.step_samples == (4,) * block.steps


def test_a_new_model_with_a_new_optimizer_goes_on_once_the_old_one_is_overdue(
    tmp_path: Path,
) -> None:
    # GIVEN folds of a cross-validation, whose old optimizers the script keeps
    one, kept = job(orders(tmp_path)), []

    def fold() -> torch.optim.Optimizer:
        kept.append(optimizer_of(nn.Parameter(torch.zeros(2))))
        return kept[-1]

    replacing(one, 24, fold)
    # THEN what passes until that is known belongs to no step
    assert end_reason(one) == "rounds done"
    for block in one.blocks():
        assert block.step_seconds == (1.0 if block.rung == "solo" else 3.5,) * block.steps
        assert block.step_samples == (4,) * block.steps


def test_no_replaced_optimizer_is_kept_alive(tmp_path: Path) -> None:
    one, made = job(orders(tmp_path)), []
    parameter = nn.Parameter(torch.zeros(2))

    def make() -> torch.optim.Optimizer:
        new = optimizer_of(parameter)
        made.append(weakref.ref(new))
        return new

    replacing(one, 3, make, most=30)
    gc.collect()
    assert [each() for each in made[:-1]] == [None] * (len(made) - 1)
    assert one.runner.rank.optimizer is made[-1]() is not None


def test_another_phase_of_training_is_not_mixed_with_the_one_that_was_measured(
    tmp_path: Path,
) -> None:
    # GIVEN a head that is trained first, and then everything
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    head, rest = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
    one.optimizer = optimizer_of(head)
    for _, mode in reading(one, BATCHES):
        if one.steps == 30:
            one.optimizer = optimizer_of(rest, head)
        one.step(seconds_of(mode))
    # THEN the ladder ends with the phase, as at the end of a script, and says which it was
    assert (one.steps, end_reason(one), one.left) == (31, "script ended", ["left"])
    notes = [message.text for message in one.messages() if isinstance(message, Noted)]
    assert (
        "the phase of training that was measured, of 2 parameters, is over: the next one trains 5, and has other "
        "steps; profile it by itself"
    ) in notes


@pytest.fixture
def pair() -> tuple[Optimizers, torch.optim.Optimizer, torch.optim.Optimizer]:
    return (
        Optimizers(),
        optimizer_of(nn.Parameter(torch.zeros(2))),
        optimizer_of(nn.Parameter(torch.zeros(2))),
    )


def test_a_second_optimizer_beside_the_first_does_not_take_its_place(pair) -> None:
    known, generator, critic = pair
    for _ in range(5):
        script.backward_begins()
        known.note_step(critic)
    counted = known.note_step(generator)
    for _ in range(20):
        for _ in range(5):
            script.backward_begins()
            known.note_step(critic)
            assert known.find_rarest() is counted
            assert known.find_successor(counted) is None
        script.backward_begins()
        known.note_step(generator)


def test_an_optimizer_within_another_is_no_successor() -> None:
    # GIVEN one that steps by another of the same parameters, as SAM does
    parameter, known = nn.Parameter(torch.zeros(2)), Optimizers()
    inner, outer = optimizer_of(parameter), optimizer_of(parameter)
    script.backward_begins()
    counted = known.note_step(inner)
    known.note_step(outer)
    assert known.find_successor(counted) is None


def test_an_optimizer_that_has_not_stepped_is_missed_until_it_does() -> None:
    first, seldom = (optimizer_of(nn.Parameter(torch.zeros(2))) for _ in range(2))
    known = Optimizers()
    known.note_step(first)
    assert known.lacks_any([first, seldom])
    known.note_step(seldom)
    assert not known.lacks_any([first, seldom])
