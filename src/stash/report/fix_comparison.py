"""Records of ``stash fix`` held against each other: the step as typed, what is kept, and what each change saves.

Two records are of fresh launches each, so that a change's savings differ by chance as their intervals say.
"""

from __future__ import annotations

import math
from typing import Any

from stash.core.fix_records import Fix, Tried
from stash.core.formatting import listed
from stash.core.intervals import Interval
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

NAMES = tuple[str, str]
"""Of the record before and the one after."""


def page(before: Fix, after: Fix, names: NAMES) -> Page:
    """What differs between two records."""
    rows = tuple(
        (name, _standing(first), _standing(second), _text(difference(first, second)))
        for name, first, second in _changes(before, after)
    )
    grid = Grid("Changes", ("before", "after", "saves more"), rows, frozenset({0, 1, 2}), first="change", prose=True)
    other = _other_job(before, after)
    return Page(
        title=before.workload,
        subtitle=(f"before: {names[0]}", f"after: {names[1]}"),
        verdict=(_verdict(before, after),),
        warnings=(f"these are different jobs, in {listed(other)}",) if other else (),
        chapters=(Chapter("changes", "What changed", grids=(grid,), brief=True),),
    )


def document(before: Fix, after: Fix, names: NAMES) -> dict[str, Any]:
    """The same as JSON; its keys are a contract (docs/format.md)."""
    found = []
    for name, first, second in _changes(before, after):
        more = difference(first, second)
        standings = {"before": first.standing if first else None, "after": second.standing if second else None}
        found.append(
            {
                "name": name, **standings,
                "saves_more": None if more is None else more.model_dump(mode="json"),
            }
        )  # fmt: skip
    return {
        "schema": 1, "before": names[0], "after": names[1], "same_job": not _other_job(before, after),
        "step_seconds": [before.step_seconds, after.step_seconds],
        "after_seconds": [before.after_seconds, after.after_seconds], "changes": found,
    }  # fmt: skip


def difference(before: Tried | None, after: Tried | None) -> Interval | None:
    """Seconds of a step that the change saves more in the record after; ``None`` where one does not say."""
    if before is None or after is None or before.saves is None or after.saves is None:
        return None
    value = after.saves.value - before.saves.value
    halves = before.saves.half_width, after.saves.half_width
    if halves[0] is None or halves[1] is None:
        return Interval(value=value)
    half = math.hypot(halves[0], halves[1])
    return Interval(value=value, low=value - half, high=value + half)


def _changes(before: Fix, after: Fix) -> list[tuple[str, Tried | None, Tried | None]]:
    first, second = ({each.name: each for each in record.tried} for record in (before, after))
    return [(name, first.get(name), second.get(name)) for name in dict.fromkeys((*first, *second))]


def _standing(each: Tried | None) -> str:
    if each is None:
        return "-"
    saves = "" if each.saves is None else f", {_text(each.saves)}"
    return f"{each.standing}{saves if each.standing == 'kept' else ''}"


def _text(found: Interval | None) -> str:
    if found is None:
        return ""
    half = "" if found.half_width is None else f" ± {found.half_width * 1e3:.1f}"
    return f"{found.value * 1e3:+.1f}{half} ms"


def _verdict(before: Fix, after: Fix) -> str:
    names = [{each.name for each in record.kept} for record in (before, after)]
    new, gone = sorted(names[1] - names[0]), sorted(names[0] - names[1])
    steps = f"A step as typed takes {after.step_seconds * 1e3:.1f} ms instead of {before.step_seconds * 1e3:.1f}"
    if not new and not gone:
        return f"{steps}; the same changes are kept."
    parts = [f"{what} {listed(each)}" for what, each in (("now kept:", new), ("no more:", gone)) if each]
    return f"{steps}; {'; '.join(parts)}."


def _other_job(before: Fix, after: Fix) -> list[str]:
    facts = (
        ("workload", before.workload, after.workload),
        ("ranks", before.ranks, after.ranks),
        ("command", " ".join(before.command), " ".join(after.command)),
    )
    return [f"{name} ({first} and {second})" for name, first, second in facts if first != second]
