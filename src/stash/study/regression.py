"""The paper's macroscopic model: a communication stall as a line through layers and gradient bytes of models.

ICDCS 2023 regresses the stall of a fixed machine against a model's number of layers (each costs a latency) and its
bytes of gradients (each costs time on the wire). Here that is ordinary least squares with intervals, judged by
predicting every model from all others (leave one out). It knows nothing of when gradients are ready: a model between
two machines, or with a longer backward pass, needs the timeline (``predict``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.units import counted
from stash.predict.draws import Array

TERMS: tuple[str, ...] = ("constant", "layers", "gradients")
"""Seconds; seconds a layer; seconds a byte of gradient."""


class ModelStall(NamedTuple):
    """One model on the machine in question: what it looks like from afar, and its stall."""

    name: str
    layers: int
    """Gradients that are exchanged: one for each trained tensor."""
    gradient_bytes: float
    seconds: float
    """A step waits for interconnect and network together."""


@dataclass(frozen=True)
class Regression:
    """A fitted line, and how far it is off where it was not fitted."""

    terms: tuple[Interval, ...]
    """Of ``TERMS``, with the 95 % interval, unknown where there are no more models than terms."""
    models: int
    explained: float | None
    """R²: of the variance of the stalls; ``None`` if they do not vary."""
    unseen: tuple[float | None, ...]
    """Each model's stall as all others predict it; ``None`` where they do not determine the line."""
    error: float | None
    """Median of the relative errors of these; ``None`` if no model could be left out."""

    def seconds(self, layers: float, gradient_bytes: float) -> float:
        """The stall of any model."""
        constant, per_layer, per_byte = (term.value for term in self.terms)
        return constant + per_layer * layers + per_byte * gradient_bytes


def regress(models: Sequence[ModelStall]) -> Regression:
    """Stalls by least squares; raises UserError with fewer models than terms, or none that differ.

    The stall of model i is Σ c_k · x_ik; coefficients get Student's interval with n − k degrees of freedom.
    """
    design = np.array([(1.0, model.layers, model.gradient_bytes) for model in models])
    if (different := len(np.unique(design, axis=0))) < len(TERMS):
        raise UserError(
            f"{counted(different, 'different model')} cannot determine {len(TERMS)} coefficients "
            f"({', '.join(TERMS)}); give profiles of more models"
        )
    stalls = np.array([model.seconds for model in models])
    coefficients = _solve(design, stalls)
    if coefficients is None:
        raise UserError(f"the models do not differ in {', '.join(TERMS[1:])}: give profiles of models that do")
    residuals, spread = stalls - design @ coefficients, stalls - stalls.mean()
    unseen = tuple(_predict_unseen(models, design, stalls, number) for number in range(len(models)))
    pairs = zip(unseen, stalls.tolist(), strict=True)
    errors = [abs(predicted / seen - 1) for predicted, seen in pairs if predicted is not None and seen > 0]
    return Regression(
        terms=tuple(
            Interval(value=value, low=None if arm is None else value - arm, high=None if arm is None else value + arm)
            for value, arm in zip(coefficients.tolist(), _half_widths(design, residuals), strict=True)
        ),
        models=len(models),
        explained=1 - float(residuals @ residuals) / float(spread @ spread) if spread.any() else None,
        unseen=unseen,
        error=float(np.median(errors)) if errors else None,
    )


def _solve(design: Array, stalls: Array) -> Array | None:
    """Least squares; ``None`` where the columns do not determine it. Scaled: bytes and layers differ by a million."""
    scale = np.abs(design).max(axis=0)
    if not scale.all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(design / scale, stalls, rcond=None)
    found: Array = solution / scale
    return found if rank == design.shape[1] else None


def _half_widths(design: Array, residuals: Array) -> list[float | None]:
    freedom = len(design) - len(TERMS)
    if freedom == 0:
        return [None] * len(TERMS)
    scale = np.abs(design).max(axis=0)
    inverse = np.linalg.inv((design / scale).T @ (design / scale))
    errors = np.sqrt(np.diag(inverse) * float(residuals @ residuals) / freedom) / scale
    return [float(error) for error in errors * float(stdtrit(freedom, 0.975))]


def _predict_unseen(models: Sequence[ModelStall], design: Array, stalls: Array, left_out: int) -> float | None:
    """By every other model: further measurements of the same one are left out with it."""
    rest = np.array([model.name != models[left_out].name for model in models])
    fitted = _solve(design[rest], stalls[rest]) if rest.sum() >= len(TERMS) else None
    return None if fitted is None else float(design[left_out] @ fitted)
