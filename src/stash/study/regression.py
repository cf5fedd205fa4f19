"""The paper's macroscopic model: a communication stall as a line through layers and gradient bytes of models.

ICDCS 2023 regresses the stall of a fixed machine against a model's number of layers (each costs a latency) and its
bytes of gradients (each costs time on the wire), and finds residual links and batch norm to matter little. Here that
is ordinary least squares with intervals, judged by predicting every model from all others (leave one out). It knows
nothing of when gradients are ready: a model between two machines, or with a longer backward pass, needs the timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from stash.analysis.attribution import attribute
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.units import counted
from stash.predict.cluster_sources import of_profile
from stash.predict.collective_times import UnknownFactError, fabric_of
from stash.predict.draws import Array, Draws
from stash.predict.exposure import AS_MEASURED, Exchanged, exchanged, exposed

TERMS: dict[str, str] = {
    "constant": "seconds",
    "layers": "seconds per layer",
    "gradients": "seconds per byte of gradient",
    "residual": "seconds, with residual links",
    "batch norm": "seconds, with batch norm",
}
LINE: tuple[str, ...] = ("constant", "layers", "gradients")
"""The terms of the paper's plain model."""


class Features(Record):
    """One model on the machine in question: what it looks like from afar, and its stall."""

    name: str
    layers: int
    """Gradients that are exchanged: one for each trained tensor."""
    gradient_bytes: float
    residual: bool | None = None
    """``None`` where unstated: then the term is left out for all."""
    batch_norm: bool | None = None
    stall: Interval
    """Seconds a step of interconnect and network together, as measured."""
    timeline: float | None = None
    """The same as the timeline model predicts it without this measurement; ``None`` if it cannot."""
    source: str = ""
    """The profile it was read from."""


def features(
    profile: Profile, draws: Draws, residual: bool | None = None, batch_norm: bool | None = None, source: str = ""
) -> Features:
    """A profile's model from afar; raises UserError, naming ``source``, where its stall or its gradients are unknown.

    The timeline's prediction takes readiness and the exchange run by itself from the profile, and nothing of how
    long steps waited for it.
    """
    named, work = source or profile.workload.name, exchanged(profile)
    breakdown = attribute(profile, named)
    communication = breakdown.communication
    if communication.exposed_seconds is None:
        raise UserError(f"{named} has no exchange stall to explain: profile on several devices, without --rungs")
    if work is None or not work.gradients:
        raise UserError(f"{named} does not hold the model's gradients; profile again with this Stash")
    return Features(
        name=profile.workload.name,
        layers=len(work.gradients),
        gradient_bytes=float(sum(work.gradients)),
        residual=residual,
        batch_norm=batch_norm,
        stall=Interval(
            value=communication.exposed_seconds,
            low=communication.exposed_low,
            high=communication.exposed_high,
            repetitions=breakdown.repetitions,
        ),
        timeline=_timeline(profile, work, draws),
        source=source,
    )


def _timeline(profile: Profile, work: Exchanged, draws: Draws) -> float | None:
    target = of_profile(profile)
    if not work.ready:
        return None
    try:
        fabric = fabric_of(target, draws)
    except UnknownFactError:
        return None
    return float(exposed(fabric, work, target.backend, AS_MEASURED).mean())


class Coefficient(Record):
    """One term of the regression, with its 95 % interval, unknown where there are no more models than terms."""

    name: str
    unit: str
    estimate: Interval


class Judged(Record):
    """One model as all others predict it."""

    name: str
    measured: float
    regression: float | None
    """``None`` where the others do not determine the line."""
    timeline: float | None


class Regression(Record):
    """A fitted line, and how far it is off where it was not fitted."""

    terms: tuple[Coefficient, ...]
    models: int
    explained: float | None
    """R²: of the variance of the stalls; ``None`` if they do not vary."""
    judged: tuple[Judged, ...]

    @property
    def error(self) -> float | None:
        """Median of the relative errors, out of sample; ``None`` if no model could be left out."""
        return _median([(each.regression, each.measured) for each in self.judged])

    @property
    def timeline_error(self) -> float | None:
        """The same of the timeline model."""
        return _median([(each.timeline, each.measured) for each in self.judged])


def regress(models: Sequence[Features], terms: Sequence[str] = LINE) -> Regression:
    """Stall against ``terms`` by least squares; raises UserError with fewer models than terms, or none that differ.

    The stall of model i is Σ c_k · x_ik; coefficients get Student's interval with n − k degrees of freedom.
    """
    design = _design(models, terms)
    if (different := len(np.unique(design, axis=0))) < len(terms):
        raise UserError(
            f"{counted(different, 'different model')} cannot determine {len(terms)} coefficients "
            f"({', '.join(terms)}); give profiles of more models"
        )
    stalls = np.array([each.stall.value for each in models])
    fitted = _solve(design, stalls)
    if fitted is None:
        raise UserError(f"the models do not differ in {', '.join(terms[1:])}: give profiles of models that do")
    coefficients, ends = fitted, _ends(design, stalls, fitted)
    residuals, spread = stalls - design @ coefficients, stalls - stalls.mean()
    explained = 1 - float(residuals @ residuals) / float(spread @ spread) if spread.any() else None
    return Regression(
        terms=tuple(
            Coefficient(name=name, unit=TERMS[name], estimate=_interval(value, arm, len(models)))
            for name, value, arm in zip(terms, coefficients.tolist(), ends, strict=True)
        ),
        models=len(models),
        explained=explained,
        judged=tuple(_judged(models, design, stalls, number) for number in range(len(models))),
    )


def by_the_line(
    found: Regression, layers: float, gradient_bytes: float, residual: bool | None, batch_norm: bool | None
) -> float | None:
    """Seconds of stall of a model that was not profiled; ``None`` where a term of the line is not known of it."""
    known = {
        "constant": 1.0,
        "layers": float(layers),
        "gradients": float(gradient_bytes),
        "residual": None if residual is None else float(residual),
        "batch norm": None if batch_norm is None else float(batch_norm),
    }
    total = 0.0
    for term in found.terms:
        value = known[term.name]
        if value is None:
            return None
        total += value * term.estimate.value
    return total


def terms_known(models: Sequence[Features]) -> tuple[str, ...]:
    """The plain line's terms, and those of residual links and batch norm that these models tell apart.

    All have to say, some to differ, and more models than such terms to be there, to tell how wrong the line is.
    """
    extra: Mapping[str, set[bool | None]] = {
        "residual": {each.residual for each in models},
        "batch norm": {each.batch_norm for each in models},
    }
    differ = [name for name, values in extra.items() if values == {True, False}]
    terms = LINE
    if len({each.name for each in models}) > len(LINE) + len(differ):
        for name in differ:
            design = _design(models, longer := (*terms, name))
            terms = terms if _solve(design, design[:, 0]) is None else longer
    return terms


def _design(models: Sequence[Features], terms: Sequence[str]) -> Array:
    columns: dict[str, list[float]] = {
        "constant": [1.0 for _ in models],
        "layers": [float(each.layers) for each in models],
        "gradients": [each.gradient_bytes for each in models],
        "residual": [float(bool(each.residual)) for each in models],
        "batch norm": [float(bool(each.batch_norm)) for each in models],
    }
    return np.column_stack([columns[name] for name in terms])


def _solve(design: Array, stalls: Array) -> Array | None:
    """Least squares; ``None`` where the columns do not determine it. Scaled: bytes and layers differ by a million."""
    scale = np.abs(design).max(axis=0)
    if not scale.all():
        return None
    solution, _, rank, _ = np.linalg.lstsq(design / scale, stalls, rcond=None)
    found: Array = solution / scale
    return found if rank == design.shape[1] else None


def _ends(design: Array, stalls: Array, coefficients: Array) -> list[float | None]:
    freedom = len(stalls) - len(coefficients)
    if freedom == 0:
        return [None] * len(coefficients)
    scale = np.abs(design).max(axis=0)
    residuals = stalls - design @ coefficients
    inverse = np.linalg.inv((design / scale).T @ (design / scale))
    errors = np.sqrt(np.diag(inverse) * float(residuals @ residuals) / freedom) / scale
    return [float(error) for error in errors * float(stdtrit(freedom, 0.975))]


def _interval(value: float, arm: float | None, count: int) -> Interval:
    if arm is None:
        return Interval(value=value, repetitions=count)
    return Interval(value=value, low=value - arm, high=value + arm, repetitions=count)


def _judged(models: Sequence[Features], design: Array, stalls: Array, left_out: int) -> Judged:
    """By every other model: further profiles of the same one are left out with it."""
    rest = np.array([each.name != models[left_out].name for each in models])
    fitted = _solve(design[rest], stalls[rest]) if rest.sum() >= design.shape[1] else None
    model = models[left_out]
    return Judged(
        name=model.name,
        measured=model.stall.value,
        regression=None if fitted is None else float(design[left_out] @ fitted),
        timeline=model.timeline,
    )


def _median(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    errors = [abs(predicted / seen - 1) for predicted, seen in pairs if predicted is not None and seen > 0]
    return float(np.median(errors)) if errors else None
