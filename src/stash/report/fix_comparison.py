"""Records of ``stash fix`` held against each other: the step as typed, what is kept, and what each change saves.

Two records are of fresh launches each, so that a change's savings differ by chance as their intervals say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stash.core.fix_records import Fix, Tried
from stash.core.formatting import listed
from stash.core.intervals import Interval, change
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

NAMES = tuple[str, str]
"""Of the record before and the one after."""
LEAST = 0.05
"""Milliseconds: a difference that is shown as none."""


def page(before: Fix, after: Fix, names: NAMES) -> Page:
    """What differs between two records."""
    rows = tuple(
        (name, _standing(first), _standing(second), "" if more is None else _signed(more))
        for name, first, second, more in _changes(before, after)
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
    found = [
        {
            "name": name, "before": first and first.standing, "after": second and second.standing,
            "saves_more": more and more.model_dump(mode="json"),
        }
        for name, first, second, more in _changes(before, after)
    ]  # fmt: skip
    return {
        "schema": 1, "before": names[0], "after": names[1], "same_job": not _other_job(before, after),
        "step_seconds": [before.step_seconds, after.step_seconds],
        "after_seconds": [before.after_seconds, after.after_seconds], "changes": found,
    }  # fmt: skip


def difference(before: Tried | None, after: Tried | None) -> Interval | None:
    """Seconds of a step that the change saves more in the record after; ``None`` where one does not say."""
    if before is None or after is None or before.saves is None or after.saves is None:
        return None
    return change(before.saves, after.saves)


def in_ms(seconds: float) -> str:
    """Milliseconds of a step or a part of it, without the unit."""
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.{0 if abs(milliseconds) >= 1000 else 1 if abs(milliseconds) >= 1 else 2}f}"


def saved(saves: Interval | None) -> str:
    """What a change does to the step: ``-58.1 ± 4.0 ms``; empty where it is not known."""
    return "" if saves is None else _signed(saves.model_copy(update={"value": -saves.value}))


def _signed(found: Interval) -> str:
    half = "" if found.half_width is None else f" ± {in_ms(found.half_width)}"
    value = found.value if abs(found.value) * 1e3 >= LEAST else 0.0
    return f"{'+' if value > 0 else ''}{in_ms(value)}{half} ms"


def _changes(before: Fix, after: Fix) -> Iterator[tuple[str, Tried | None, Tried | None, Interval | None]]:
    first, second = ({each.name: each for each in record.tried} for record in (before, after))
    for name in dict.fromkeys((*first, *second)):
        yield name, first.get(name), second.get(name), difference(first.get(name), second.get(name))


def _standing(each: Tried | None) -> str:
    if each is None:
        return "-"
    return ", ".join(filter(None, (each.standing, saved(each.saves) if each.standing == "kept" else "")))


def _verdict(before: Fix, after: Fix) -> str:
    names = [{each.name for each in record.kept} for record in (before, after)]
    new, gone = sorted(names[1] - names[0]), sorted(names[0] - names[1])
    steps = f"A step as typed takes {in_ms(after.step_seconds)} ms instead of {in_ms(before.step_seconds)}"
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
