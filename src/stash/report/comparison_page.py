"""A comparison made ready to be shown: both sides as a table for a terminal, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.analysis.comparison import FASTER, NOT_SHOWN, RATE, SLOWER, STEP, Difference, DifferingFact, RunComparison
from stash.analysis.limits import Decision
from stash.core.formatting import listed, plus_minus, quantity
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, scale_for
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

# View ------------------------------------------------------------------------------------------------------
# A comparison made ready to be shown: every string that a renderer needs, all times in the unit of the step.
#
# Knows nothing of terminals or colours.

_RATES = ((1.0, ""),)


@dataclass(frozen=True)
class Line:
    """One line of the table: what each side says, what lies between, and the word for it."""

    name: str
    before: str
    before_spread: str
    after: str
    after_spread: str
    change: str
    share: str
    """Of the step of the side before; empty of the rate."""
    word: str


@dataclass(frozen=True)
class ComparisonView:
    """Everything a comparison says, in the order in which it says it."""

    title: str
    sides: tuple[str, str]
    verdict: str
    unit: str
    lines: tuple[Line, ...]
    changed: tuple[tuple[str, str], ...]
    """Label and ``before → after``."""
    notes: tuple[str, ...] = ()


def view(
    comparison: RunComparison,
    names: tuple[str, Sequence[str], Sequence[str]],
    changed: Sequence[DifferingFact],
    different: Sequence[DifferingFact] = (),
    network: Interval | None = None,
) -> ComparisonView:
    """The view of a comparison of ``names``: the workload, the runs before, those after.

    ``different`` are facts in which the sides are different jobs, compared all the same; ``network`` is the paper's
    network stall, where one side has one node and the other several.
    """
    title, before, after = names
    step = comparison.step
    scale = scale_for(max(step.before.value, step.after.value), SECONDS, 4)
    return ComparisonView(
        title=title,
        sides=(f"before: {listed(before)}", f"after: {listed(after)}"),
        verdict=_verdict(comparison, scale),
        unit=scale.unit,
        lines=tuple(_line(line, scale, step.before.value) for line in comparison.lines),
        changed=tuple((fact.name, f"{fact.before} → {fact.after}") for fact in (*different, *changed)),
        notes=tuple(_notes(comparison, different, network)),
    )


def _line(line: Difference, scale: Scale, step: float) -> Line:
    if line.name == RATE:
        scale = scale_for(line.before.value, _RATES, 3)
    return Line(
        name=line.name,
        before=scale.number(line.before.value), before_spread=plus_minus(line.before, scale),
        after=scale.number(line.after.value), after_spread=plus_minus(line.after, scale),
        change=_apart(line.change, scale),
        share="" if line.name == RATE else f"{line.change.value / step:+.1%}",
        word=line.verdict,
    )  # fmt: skip


def _apart(time: Interval, scale: Scale) -> str:
    return f"{time.value / scale.size:+,.{scale.decimals}f} {plus_minus(time, scale)}"


def _verdict(comparison: RunComparison, scale: Scale) -> str:
    """What happened to the step, and which stalls did what they can be seen to have done."""
    step = comparison.step
    stalls = [line for line in comparison.lines if line.name not in (STEP, RATE) and line.verdict in (SLOWER, FASTER)]
    stalls.sort(key=lambda line: -abs(line.change.value))
    parts = listed([f"{line.name} {_apart(line.change, scale)} {scale.unit}" for line in stalls])
    amount = f"{_apart(step.change, scale)} {scale.unit}, {step.change.value / step.before.value:+.1%}"
    if step.verdict in (SLOWER, FASTER):
        return f"{step.verdict.capitalize()}: the step changed by {amount}{f'; {parts}' if parts else ''}."
    if step.verdict == NOT_SHOWN:
        return f"No difference of the step is shown ({amount}){f', but {parts}' if parts else ', nor of any stall'}."
    return f"Nobody can tell whether the step differs ({amount}): a single round has no interval."


def _notes(comparison: RunComparison, different: Sequence[DifferingFact], network: Interval | None) -> list[str]:
    notes = []
    if different:
        notes.append("These are different jobs, so a difference of their times may be theirs and nobody's fault.")
    for names, side in ((comparison.only_before, "before"), (comparison.only_after, "after")):
        if names:
            notes.append(f"Only the side {side} has {listed(names)}: not compared.")
    if network is not None:
        measured = quantity(network, "fraction")
        notes.append(
            "The paper's network stall, all ranks on several nodes against all of them on one: "
            f"{measured} of the step on one node (replayed batches)."
        )
    return notes


# Contract --------------------------------------------------------------------------------------------------
# The documents that ``stash compare --json`` and ``stash check --json`` print: contracts, see docs/format.md.

SCHEMA = 1
_DIGITS = 6


def document(
    comparison: RunComparison,
    names: tuple[str, Sequence[str], Sequence[str]],
    changed: Sequence[DifferingFact],
    different: Sequence[DifferingFact] = (),
    network: Interval | None = None,
) -> dict[str, Any]:
    """Of one comparison; seconds per step, samples per second, fractions; what is not known is null."""
    workload, before, after = names
    return {
        "schema": SCHEMA,
        "workload": workload,
        "before": list(before),
        "after": list(after),
        "verdict": comparison.step.verdict,
        "lines": [
            {
                "name": line.name, "before": _ends(line.before), "after": _ends(line.after),
                "change": _ends(line.change), "verdict": line.verdict,
            }
            for line in comparison.lines
        ],
        "only_before": list(comparison.only_before),
        "only_after": list(comparison.only_after),
        "changed": [fact.model_dump() for fact in changed],
        "different": [fact.model_dump() for fact in different],
        "network_stall": None if network is None else _ends(network),
    }  # fmt: skip


def decisions(found: Sequence[Decision], verdict: str) -> dict[str, Any]:
    """Of one check: every limit, and the verdict over all."""
    return {"schema": SCHEMA, "verdict": verdict, "limits": [decision.model_dump() for decision in found]}


def _ends(interval: Interval) -> dict[str, float | None]:
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: None if end is None else float(f"{end:.{_DIGITS}g}") for name, end in ends.items()}


# Sides -----------------------------------------------------------------------------------------------------
# A table of two sides and what changed between them, as lines for a terminal.
#
# Knows names, numbers and the word that judges each line; both checks and comparisons lay out theirs with it.

STYLES = {SLOWER: "color(167)", FASTER: "color(72)"}
_GAP = "  "

Cells = Sequence[str]
"""A line of the table: its name, its numbers, its word."""


def widest_that_fits(layouts: Sequence[Sequence[Cells]], width: int) -> list[Text]:
    """The first of the layouts (heads first, then lines) that is at most ``width`` columns wide, else the last."""
    for lines in layouts:
        columns = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if INDENT + sum(columns) + len(_GAP) * (len(columns) - 1) <= width:
            break
    return [_side_line(line, columns, dim=not number) for number, line in enumerate(lines)]


def _side_line(cells: Cells, columns: Sequence[int], dim: bool) -> Text:
    name, *numbers, word = cells
    line = Text(" " * INDENT + name.ljust(columns[0]), style="dim" if dim else "")
    for text, size in zip(numbers, columns[1:-1], strict=True):
        line.append(_GAP + text.rjust(size))
    return line.append(_GAP + word, style=STYLES.get(word, "dim"))


# Terminal --------------------------------------------------------------------------------------------------
# A comparison as text for a terminal: the verdict, a table of both sides, what else differs.


def _report(view: ComparisonView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold")
    sides = [Text(" " * INDENT + side, style="dim") for side in view.sides]
    return [
        head, *sides, Text(), *paragraph(view.verdict, width, "", "", bold=True), Text(),
        *_table(view, width), *_changed(view, width), *_note_lines(view, width),
    ]  # fmt: skip


render: Renderer[ComparisonView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole comparison."""


def _table(view: ComparisonView, width: int) -> list[Text]:
    """As much of each line as fits: first the sides' own spread goes, then the change as a share."""
    heads = Line("", "before", "", f"after, {view.unit}", "", "change", "of step", "")
    layouts = (_whole, _without_spread, _without_share)
    return widest_that_fits([[shown(line) for line in (heads, *view.lines)] for shown in layouts], width)


def _whole(line: Line) -> tuple[str, ...]:
    before, after = f"{line.before} {line.before_spread}".strip(), f"{line.after} {line.after_spread}".strip()
    return (line.name, before, after, line.change, line.share, line.word)


def _without_spread(line: Line) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change, line.share, line.word)


def _without_share(line: Line) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change, line.word)


def _changed(view: ComparisonView, width: int) -> list[Text]:
    if not view.changed:
        return []
    labels = max(len(label) for label, _ in view.changed) + 2
    parts = [Text(), Text(" " * INDENT).append("What else differs", style="bold")]
    for label, text in view.changed:
        parts += paragraph(text, width, label.ljust(labels), "dim")
    return parts


def _note_lines(view: ComparisonView, width: int) -> list[Text]:
    return [Text()] * bool(view.notes) + [line for note in view.notes for line in paragraph(note, width, "! ", "dim")]
