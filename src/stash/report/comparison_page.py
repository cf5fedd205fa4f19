"""Profiles before and after as a page and as JSON: what differs, by how much, and whether it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stash.analysis.comparison import (
    CONDITIONS,
    FASTER,
    NOT_SHOWN,
    RATE,
    SLOWER,
    STEP,
    Difference,
    DifferingFact,
    RunComparison,
)
from stash.analysis.limits import Decision
from stash.core.formatting import format_quantity, join_names, plus_minus
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, scale_for
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

_RATES = ((1.0, ""),)


def page(
    comparison: RunComparison,
    names: tuple[str, Sequence[str], Sequence[str]],
    changed: Sequence[DifferingFact],
    different: Sequence[DifferingFact] = (),
    network: Interval | None = None,
) -> Page:
    """The comparison of ``names``: the workload, the runs before, those after.

    ``different`` are facts in which the sides are different jobs, compared all the same; ``network`` is the paper's
    network stall, where one side has one node and the other several.
    """
    title, before, after = names
    sentences = [verdict(comparison)]
    warnings = []
    facts = [fact.text for fact in changed if fact.name in CONDITIONS]
    if facts or comparison.per_sample:
        how = "Compared per sample" if comparison.per_sample else "Compared step by step"
        causes = join_names(facts or ["batches per step"])
        sentences.append(f"{how}; the sides differ in {causes}.")
    if different:
        warnings.append("These are different jobs: their times may differ for that reason alone.")
    for missing, side in ((comparison.only_before, "before"), (comparison.only_after, "after")):
        if missing:
            warnings.append(f"Only the side {side} has {join_names(missing)}: not compared.")
    if comparison.unlike:
        warnings.append(
            f"Not compared: {join_names(comparison.unlike)}, which on one side contains another stall."
        )
    return Page(
        title=title,
        subtitle=(f"before: {join_names(before)}", f"after: {join_names(after)}"),
        verdict=tuple(sentences),
        warnings=tuple(warnings),
        chapters=chapters(comparison, "changes", "What changed", (*different, *changed), network),
    )


def chapters(
    comparison: RunComparison,
    name: str,
    title: str,
    changed: Sequence[DifferingFact],
    network: Interval | None,
) -> tuple[Chapter, ...]:
    """What changed of the step, and what else differs; ``name`` is unique on the page."""
    points = []
    if network is not None:
        measured = format_quantity(network, "fraction")
        points.append(
            "The paper's network stall, all ranks on several nodes against all of them on one: "
            f"{measured} of the step on one node (replayed batches)."
        )
    causes = tuple((fact.name, f"{fact.before} → {fact.after}") for fact in changed)
    scale = _scale(comparison)
    head = ("before", "95%", f"after, {scale.unit}", "95%", "change", "of step", "")
    rows = tuple(_row(line, scale, comparison.step.before.value) for line in comparison.lines)
    ranks = (0, 0, 2, 0, 3, 0, 1, 0)
    changes = Grid("", head, rows, frozenset({0, 2, 4, 7}), first="what", ranks=ranks)
    found = [Chapter(name, title, grids=(changes,), points=tuple(points), brief=True)]
    if causes:
        found.append(Chapter(f"{name}-causes", "What else differs", facts=causes, brief=True))
    return tuple(found)


def verdict(comparison: RunComparison) -> str:
    """What happened to the step, and which stalls did what they can be seen to have done."""
    step = comparison.step
    scale = _scale(comparison)
    what = "the time per sample" if comparison.per_sample else "the step"
    stalls = [
        line
        for line in comparison.lines
        if line.name not in (STEP, RATE) and line.verdict in (SLOWER, FASTER)
    ]
    stalls.sort(key=lambda line: -abs(line.change.value))
    parts = join_names(
        [f"{line.name} {_format_signed(line.change, scale)} {scale.unit}" for line in stalls]
    )
    amount = f"{_format_signed(step.change, scale)} {scale.unit}, {step.change.value / step.before.value:+.1%}"
    if step.verdict in (SLOWER, FASTER):
        return f"{step.verdict.capitalize()}: {what} changed by {amount}{f'; {parts}' if parts else ''}."
    if step.verdict == NOT_SHOWN:
        return f"No difference of {what} is shown ({amount}){f', but {parts}' if parts else ', nor of any stall'}."
    return f"Whether {what} differs is unknown ({amount}): a single round has no interval."


def _scale(comparison: RunComparison) -> Scale:
    return scale_for(max(comparison.step.before.value, comparison.step.after.value), SECONDS, 4)


def _format_signed(time: Interval, scale: Scale) -> str:
    return f"{time.value / scale.size:+,.{scale.decimals}f} {plus_minus(time, scale)}"


def _row(line: Difference, scale: Scale, step: float) -> tuple[str, ...]:
    if line.name == RATE:
        scale = scale_for(line.before.value, _RATES, 3)
    return (
        line.name,
        scale.number(line.before.value),
        plus_minus(line.before, scale),
        scale.number(line.after.value),
        plus_minus(line.after, scale),
        _format_signed(line.change, scale),
        "" if line.name == RATE else f"{line.change.value / step:+.1%}",
        line.verdict,
    )


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
    """Write one comparison as JSON; seconds per step or sample, samples per second, fractions; unknown is null."""
    workload, before, after = names
    return {
        "schema": SCHEMA,
        "workload": workload,
        "before": list(before),
        "after": list(after),
        "verdict": comparison.step.verdict,
        "per": "sample" if comparison.per_sample else "step",
        "lines": [
            {
                "name": line.name,
                "before": _ends(line.before),
                "after": _ends(line.after),
                "change": _ends(line.change),
                "verdict": line.verdict,
            }
            for line in comparison.lines
        ],
        "only_before": list(comparison.only_before),
        "only_after": list(comparison.only_after),
        "unlike": list(comparison.unlike),
        "changed": [fact.model_dump() for fact in changed],
        "different": [fact.model_dump() for fact in different],
        "network_stall": None if network is None else _ends(network),
    }


def decisions(found: Sequence[Decision], verdict: str) -> dict[str, Any]:
    """Write one check as JSON: every limit, and the verdict over all."""
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "limits": [decision.model_dump() for decision in found],
    }


def decisions_page(found: Sequence[Decision], verdict: str, workload: str) -> Page:
    """One check as a page: a row for every limit."""
    rows = tuple((decision.verdict, decision.limit, decision.sentence) for decision in found)
    table = Grid("", ("limit", "found"), rows, texts=frozenset({1, 2}), first="verdict")
    return Page(title=f"Stash check: {verdict}", subtitle=(workload,), grids=(table,))


def _ends(interval: Interval) -> dict[str, float | None]:
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {
        name: None if end is None else float(f"{end:.{_DIGITS}g}") for name, end in ends.items()
    }
