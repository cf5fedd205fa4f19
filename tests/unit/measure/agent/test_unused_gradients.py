"""Whose gradients are cleared without an update: a generator's in a critic's steps, and nobody's in ordinary loops."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stash.measure.agent.runner.optimizers import SeenOptimizer
from stash.measure.agent.runner.unused_gradients import UnusedGradients


def optimize(model: nn.Module) -> SeenOptimizer:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = SeenOptimizer(optimizer, 0)
    seen.kept = optimizer  # type: ignore[attr-defined]  # which the script holds
    return seen


def learn(
    gradients: UnusedGradients, loss: torch.Tensor, seen: SeenOptimizer, owner: nn.Module | None
) -> None:
    """Clear gradients, as ``owner`` or the optimizer does, compute them, and update."""
    optimizer = seen.optimizer()
    gradients.note_clearing(owner or optimizer)
    (owner or optimizer).zero_grad()
    loss.backward()
    optimizer.step()
    gradients.note_step(seen)


@pytest.mark.parametrize(("detaches", "found"), [(False, 12), (True, None)])
def test_a_critic_that_is_not_given_detached_samples_computes_gradients_of_the_generator(
    detaches: bool, found: int | None
) -> None:
    """The critic's own are in vain once in its two clearings: while the generator learns."""
    makes, tells = nn.Linear(2, 4), nn.Linear(4, 1)
    of_makes, of_tells = optimize(makes), optimize(tells)
    gradients = UnusedGradients()
    for _ in range(6):
        for _ in range(2):
            made = makes(torch.ones(3, 2))
            learn(gradients, tells(made.detach() if detaches else made).mean(), of_tells, None)
        learn(gradients, -tells(makes(torch.ones(3, 2))).mean(), of_makes, None)
    assert gradients.finish() == found
    assert gradients.finish() is None


def test_ordinary_loops_and_gradients_that_are_read_between_passes_are_no_waste() -> None:
    model = nn.Linear(2, 1)
    seen, gradients = optimize(model), UnusedGradients()
    for _ in range(6):
        for _ in range(2):  # of each sample, by itself
            gradients.note_clearing(model)
            model.zero_grad()
            model(torch.ones(1, 2)).mean().backward()
        learn(gradients, model(torch.ones(1, 2)).mean(), seen, model)
    assert gradients.finish() is None


def test_a_module_that_clears_is_known_by_its_parameters() -> None:
    models = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers, gradients = [optimize(each) for each in models], UnusedGradients()
    for _ in range(5):
        for model, seen in zip(models, optimizers, strict=True):
            loss = sum(each(torch.ones(1, 2)) for each in models)
            learn(gradients, loss.mean(), seen, model)
    assert gradients.finish() == 3 + 3
