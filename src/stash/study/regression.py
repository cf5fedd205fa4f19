"""The paper's macroscopic model: a communication stall as a line through layers and gradient bytes of models.

ICDCS 2023 regresses the stall of a fixed machine against a model's number of layers (each costs a latency) and its
bytes of gradients (each costs time on the wire). Here that is ordinary least squares with intervals, judged by
predicting every model from all others (leave one out). It knows nothing of when gradients are ready: a model between
two machines, or with a longer backward pass, needs the timeline (``predict``).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from stash.api import Array
from stash.core.distributions import student_quantile
from stash.core.formatting import format_quantity
from stash.core.intervals import Interval
from stash.study.results import StudyResult
from stash.ui.charts.chart import Grid

TERMS = 3
"""A constant in seconds, seconds a layer, seconds a megabyte of gradients."""
_MEGABYTE = 1e6


class ModelStall(NamedTuple):
    """One model on the machine in question: what it looks like from afar, and its stall."""

    name: str
    layers: int
    """Gradients that are exchanged: one for each trained tensor."""
    gradient_bytes: float
    seconds: float
    """A step waits for interconnect and network together."""


class Regression(NamedTuple):
    """A fitted line, and how far it is off where it was not fitted."""

    terms: tuple[Interval, ...]
    """With the 95 % interval, unknown where there are no more models than terms."""
    explained: float | None
    """R²: of the variance of the stalls; ``None`` if they do not vary."""
    unseen: tuple[float | None, ...]
    """Each model's stall as all others predict it; ``None`` where they do not determine the line."""

    def error(self, models: Sequence[ModelStall]) -> float | None:
        """Median of the relative errors of these; ``None`` if no model could be left out."""
        pairs = zip(self.unseen, models, strict=True)
        errors = [
            abs(predicted / seen.seconds - 1)
            for predicted, seen in pairs
            if predicted is not None and seen.seconds
        ]
        return median(errors) if errors else None


def regress(models: Sequence[ModelStall]) -> Regression | None:
    """Stalls by least squares; ``None`` where the models do not determine a line.

    The stall of model i is Σ c_k · x_ik; coefficients get Student's interval with n − k degrees of freedom.
    """
    design = np.array([(1.0, model.layers, model.gradient_bytes / _MEGABYTE) for model in models])
    stalls, names = (
        np.array([model.seconds for model in models]),
        np.array([model.name for model in models]),
    )
    coefficients = _solve(design, stalls)
    if coefficients is None:
        return None
    residuals, spread, freedom = (
        stalls - design @ coefficients,
        stalls - stalls.mean(),
        len(models) - TERMS,
    )
    # Further measurements of the same model are left out with it.
    others = [_solve(design[names != name], stalls[names != name]) for name in names]
    arms: list[float | None] = [None] * TERMS
    if freedom:
        variances = np.diag(np.linalg.inv(design.T @ design)) * (residuals @ residuals) / freedom
        arms = (np.sqrt(variances) * student_quantile(freedom, 0.975)).tolist()
    return Regression(
        tuple(
            Interval(
                value=value,
                low=None if arm is None else value - arm,
                high=None if arm is None else value + arm,
            )
            for value, arm in zip(coefficients.tolist(), arms, strict=True)
        ),
        1 - float(residuals @ residuals) / float(spread @ spread) if spread.any() else None,
        tuple(
            None if line is None else float(row @ line)
            for row, line in zip(design, others, strict=True)
        ),
    )


def _solve(design: Array, stalls: Array) -> Array | None:
    """Least squares; ``None`` where the columns do not determine it."""
    solution, _, rank, _ = np.linalg.lstsq(design, stalls, rcond=None)
    return np.asarray(solution, dtype=float) if rank == TERMS else None


def line_grids(found: Sequence[StudyResult]) -> tuple[Grid, ...]:
    """The line of every place and batch at which more models than it has terms exchanged something; else nothing."""
    groups: dict[tuple[str, int | None], list[ModelStall]] = {}
    for each in found:
        stall = each.exchange_seconds
        if each.devices > 1 and stall is not None and each.exchange is not None:
            model = ModelStall(each.cell.workload, *each.exchange, stall)
            groups.setdefault((each.cell.column_name, each.cell.batch), []).append(model)
    rows = []
    for (place, batch), models in groups.items():
        line = regress(models) if len({model.name for model in models}) > TERMS else None
        if line is not None:
            shares = (
                "–" if each is None else f"{each:.0%}"
                for each in (line.explained, line.error(models))
            )
            terms = (format_quantity(term, "seconds") for term in line.terms)
            rows.append(
                (place, "–" if batch is None else str(batch), str(len(models)), *terms, *shares)
            )
    head = ("batch", "models", "always", "per layer", "per MB", "explained", "off, unseen")
    title = "The paper's line: the stall as a sum of what layers and gradients cost"
    below = "Off, unseen: by how much the line through all other models misses one, in the middle."
    return (Grid(title, head, tuple(rows), frozenset({0}), below, first="place"),) if rows else ()
