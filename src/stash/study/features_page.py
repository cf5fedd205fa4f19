"""The paper's regression as text for a terminal and as JSON: coefficients, and each model as all others predict
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from stash.core.formatting import quantity
from stash.core.intervals import Interval
from stash.core.units import counted, format_bytes, format_seconds
from stash.study.feature_study import PlaceFeatures
from stash.study.regression import Features, Regression
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

SCHEMA = 1
_GAP = "  "
_MEGABYTE = 1e6


@dataclass(frozen=True)
class FeaturesView:
    """A table's rows, head first, in each part; ends of intervals in words."""

    title: str
    summary: str
    terms: tuple[tuple[str, ...], ...]
    models: tuple[tuple[str, ...], ...]
    others: tuple[tuple[str, ...], ...]


class Supposed(NamedTuple):
    """A model that nobody profiled here, and its stall by the fitted line."""

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


def view(line: FittedLine) -> FeaturesView:
    """Everything that is said, in the order in which it is."""
    models, found, supposed, place = line
    return FeaturesView(
        title=f"Communication stall against layers and gradients{', ' if place else ''}{place}",
        summary=_summary(found, len({model.name for model in models})),
        terms=(
            ("term", "costs", ""),
            *((term.name, *cost(term.estimate, term.unit)) for term in found.terms),
        ),
        models=(
            ("model", "stall", "the line without it", "timeline", "layers", "gradients"),
            *(
                (
                    _called(model, models),
                    quantity(model.stall, "seconds"),
                    _against(judged.regression, judged.measured),
                    _against(judged.timeline, judged.measured),
                    str(model.layers),
                    format_bytes(model.gradient_bytes),
                )
                for model, judged in zip(models, found.judged, strict=True)
            ),
        ),
        others=(
            ("not profiled", "layers", "gradients", "stall by the line"),
            *(
                (each.name, str(each.layers), format_bytes(each.gradient_bytes), format_seconds(each.seconds))
                for each in supposed
            ),
        )
        if supposed
        else (),
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
        return f"{line}. With no model to spare, nobody can tell how wrong it is on another."
    says = f"{line}. Of a model it has not seen it is {found.error:.0%} off (median)"
    if found.timeline_error is None:
        return f"{says}; the timeline model needs readiness of gradients, which these profiles do not hold."
    return f"{says}; the timeline model, which fits nothing, {found.timeline_error:.0%}."


def cost(estimate: Interval, unit: str) -> tuple[str, str]:
    """A coefficient and of what it is; per megabyte rather than per byte, so that people can read it."""
    if unit == "seconds per byte of gradient":
        return quantity(estimate.scaled(_MEGABYTE), "seconds"), "per MB of gradient"
    return quantity(estimate, "seconds"), unit.removeprefix("seconds").removeprefix(", ").strip()


def _against(said: float | None, seen: float) -> str:
    if said is None:
        return "unknown"
    return f"{format_seconds(said)} ({said / seen - 1:+.0%})" if seen > 0 else format_seconds(said)


def _report(view: FeaturesView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    parts += [*paragraph(view.summary, width, "", ""), Text(), *_table(view.terms, width), Text()]
    parts += _table(view.models, width)
    return [*parts, Text(), *_table(view.others, width)] if view.others else parts


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[Text]:
    """As many columns as fit, the first ones."""
    columns = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    while len(columns) > 2 and INDENT + sum(columns) + len(_GAP) * (len(columns) - 1) > width:
        columns.pop()
    lines = []
    for number, row in enumerate(rows):
        numbers = (text.rjust(size) for text, size in zip(row[1:], columns[1:], strict=False))
        line = _GAP.join([row[0].ljust(columns[0]), *numbers]).rstrip()
        lines.append(Text(" " * INDENT + line, style="dim" if number == 0 else ""))
    return lines


render: Renderer[FeaturesView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
