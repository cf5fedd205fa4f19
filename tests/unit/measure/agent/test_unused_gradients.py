"""Whose gradients are cleared without an update: a generator's in a critic's steps, and nobody's in ordinary loops."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stash.measure.agent.runner.unused_gradients import UnusedGradients


def learn(seen: UnusedGradients, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Clear gradients, compute them, and update."""
    seen.note_clearing(optimizer)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen.note_step(optimizer)


@pytest.mark.parametrize(("detaches", "found"), [(False, 12), (True, None)])
def test_a_critic_that_is_not_given_detached_samples_computes_gradients_of_the_generator(
    detaches: bool, found: int | None
) -> None:
    """The critic's own are in vain once in its two clearings: while the generator learns."""
    makes, tells = nn.Linear(2, 4), nn.Linear(4, 1)
    of_makes, of_tells = (torch.optim.SGD(each.parameters(), 0.1) for each in (makes, tells))
    seen = UnusedGradients()
    for _ in range(6):
        for _ in range(2):
            made = makes(torch.ones(3, 2))
            learn(seen, tells(made.detach() if detaches else made).mean(), of_tells)
        learn(seen, -tells(makes(torch.ones(3, 2))).mean(), of_makes)
    assert seen.count() == found


def test_ordinary_loops_and_gradients_that_are_read_between_passes_are_no_waste() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = UnusedGradients()
    for _ in range(6):
        for _ in range(3):  # of each sample, by itself
            seen.note_clearing(model)
            model.zero_grad()
            model(torch.ones(1, 2)).mean().backward()
        optimizer.step()
        seen.note_step(optimizer)
    assert seen.count() is None


def test_a_module_that_clears_is_known_by_its_parameters() -> None:
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (one, other)]
    seen = UnusedGradients()
    for _ in range(5):
        for model, optimizer in zip((one, other), optimizers, strict=True):
            seen.note_clearing(model)
            model.zero_grad()
            (one(torch.ones(1, 2)) + other(torch.ones(1, 2))).mean().backward()
            optimizer.step()
            seen.note_step(optimizer)
    assert seen.count() == 3 + 3
