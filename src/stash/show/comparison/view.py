"""A comparison made ready to be shown: every string that a renderer needs, all times in the unit of the step.

Knows nothing of terminals or colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.stats.intervals import Interval
from stash.base.words.quantities import listed, plus_minus, quantity
from stash.base.words.rounding import Scale, scale_for
from stash.base.words.units import SECONDS
from stash.derive.comparison import FASTER, NOT_SHOWN, SLOWER, Difference, DifferingFact, RunComparison
from stash.derive.comparison.differences import RATE, STEP

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
