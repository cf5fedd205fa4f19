"""The paper's regression as a page and as JSON: coefficients, and each model as all others predict it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from stash.core.formatting import quantity
from stash.core.intervals import Interval
from stash.core.units import counted, format_bytes, format_seconds
from stash.study.feature_study import PlaceFeatures
from stash.study.regression import Features, Regression
from stash.ui.charts.chart import Grid
from stash.ui.page import Page

SCHEMA = 1
_MEGABYTE = 1e6


class Supposed(NamedTuple):
    """A model that was not profiled here, and its stall by the fitted line."""

    name: str
    layers: int
    gradient_bytes: float
    seconds: float


class FittedLine(NamedTuple):
    """The regression of some models, and what it says of others."""

    models: tuple[Features, ...]
    found: Regression
    supposed: tuple[Supposed, ...] = ()
    place: str = ""
    """Of a study; empty where the models' profiles were named."""


def page(line: FittedLine) -> Page:
    """How well layers and bytes explain the stalls, what each term costs, and every model against the line."""
    models, found, supposed, place = line
    terms = tuple((term.name, *cost(term.estimate, term.unit)) for term in found.terms)
    known = tuple(
        (
            _called(model, models),
            quantity(model.stall, "seconds"),
            _against(judged.regression, judged.measured),
            _against(judged.timeline, judged.measured),
            str(model.layers),
            format_bytes(model.gradient_bytes),
        )
        for model, judged in zip(models, found.judged, strict=True)
    )
    others = tuple(
        (each.name, str(each.layers), format_bytes(each.gradient_bytes), format_seconds(each.seconds))
        for each in supposed
    )
    head = ("stall", "the line without it", "timeline", "layers", "gradients")
    grids = [
        Grid("", ("costs", ""), terms, frozenset({0, 2}), first="term"),
        Grid("", head, known, frozenset({0}), first="model", ranks=(0, 0, 1, 2, 3, 4)),
    ]
    if others:
        heads = ("layers", "gradients", "stall by the line")
        grids.append(Grid("", heads, others, frozenset({0}), first="not profiled"))
    return Page(
        title=f"Communication stall against layers and gradients{', ' if place else ''}{place}",
        verdict=(_summary(found, len({model.name for model in models})),),
        grids=tuple(grids),
    )


def document(line: FittedLine) -> dict[str, Any]:
    """What ``--json`` prints: seconds, bytes, fractions; null where unknown."""
    models, found, supposed, _ = line
    return {
        "schema": SCHEMA,
        "models": [model.model_dump() for model in models],
        "terms": [term.model_dump() for term in found.terms],
        "explained": found.explained,
        "error": found.error,
        "timeline_error": found.timeline_error,
        "judged": [judged.model_dump() for judged in found.judged],
        "zoo": [each._asdict() for each in supposed],
    }


def document_of_places(study: str, lines: Sequence[tuple[PlaceFeatures, FittedLine]]) -> dict[str, Any]:
    """The same of every place of a study."""
    places = [{"place": at.place, "nodes": at.nodes, "batch": at.batch, **document(line)} for at, line in lines]
    return {"schema": SCHEMA, "study": study, "places": places}


def _called(model: Features, models: Sequence[Features]) -> str:
    """By its profile too, where several are of a model of this name."""
    alone = [each.name for each in models].count(model.name) == 1
    return model.name if alone or not model.source else f"{model.name} ({PurePath(model.source).parts[-1]})"


def _summary(found: Regression, models: int) -> str:
    line = counted(models, "model")
    line += f" in {found.models} profiles" if found.models > models else ""
    if found.explained is not None:
        line += f": the line explains {found.explained:.0%} of the stalls"
    if found.error is None:
        return f"{line}. With no model to spare, how wrong it is on another is unknown."
    text = f"{line}. Of a model it has not seen it is {found.error:.0%} off (median)"
    if found.timeline_error is None:
        return f"{text}; the timeline model needs readiness of gradients, which these profiles do not hold."
    return f"{text}; the timeline model, which fits nothing, {found.timeline_error:.0%}."


def cost(estimate: Interval, unit: str) -> tuple[str, str]:
    """A coefficient and of what it is; per megabyte rather than per byte, so that people can read it."""
    if unit == "seconds per byte of gradient":
        return quantity(estimate.scaled(_MEGABYTE), "seconds"), "per MB of gradient"
    return quantity(estimate, "seconds"), unit.removeprefix("seconds").removeprefix(", ").strip()


def _against(predicted: float | None, seen: float) -> str:
    if predicted is None:
        return "unknown"
    return f"{format_seconds(predicted)} ({predicted / seen - 1:+.0%})" if seen > 0 else format_seconds(predicted)
