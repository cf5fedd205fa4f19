"""What ``stash fix`` found as a page: what is kept and what it saves, what is not, and how to take it over."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from stash.core.fix_records import Fix, Tried
from stash.core.formatting import join_names
from stash.core.intervals import Interval
from stash.core.units import format_bytes, format_count, format_minutes
from stash.fix.decision import ARMS, LOOKS, SCREENED, is_proven
from stash.fix.search_state import LARGE
from stash.report.profile_contract import job_words
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

_DAY = 10
_BECAUSE = {
    "no difference": "no measurable gain",
    "slower": "slower",
    "failed": "the job failed with it: ",
    "other training": "it changes training: ",
}
"""By standing, what is said of a change that has no reason of its own, or before it."""
_UNDECIDED = ("no difference", "unproven")
"""What was measured, and may be faster for all that is known."""
_LEAST = 0.05
"""Milliseconds: a difference that is shown as none."""


def page(fix: Fix, record: str = "", patch: str = "") -> Page:
    """The whole report; ``record`` and ``patch`` are the files that there are of it."""
    tried = [each for each in fix.tried if each.standing != "left out"]
    kept = format_count(len(fix.kept), "change")
    launches = sum(each.elapsed_seconds > 0 for each in fix.launches)
    return Page(
        title=(
            f"{fix.workload} | {format_count(fix.ranks, 'rank')} | {ms_of(fix.step_seconds)} ms a step; {kept} "
            f"kept of "
            f"{len(tried)} tried, in {format_minutes(fix.elapsed_seconds)}"
        ),
        source=record,
        verdict=(
            _verdict(fix),
            *((f"No setting changes this: {fix.by_hand}",) if fix.by_hand else ()),
        ),
        grids=tuple(_grids(fix)),
        warnings=tuple(_warnings(fix)),
        next_steps=tuple(_next_steps(fix, record, patch)),
        chapters=tuple(_chapters(fix)),
        footer=(
            f"{launches} launch{'' if launches == 1 else 'es'} of the script, each with only the named changes; "
            f"intervals come from fresh rounds alone, with one error rate of {fix.error_rate:.0%} for the whole "
            "search. What other processes cost a step is subtracted."
        ),
        again=_again(fix),
        made=f"{fix.created[:_DAY]}, Stash {fix.stash_version}",
    )


def document(fix: Fix) -> dict[str, Any]:
    """The record as JSON; its keys are a contract (docs/format.md)."""
    return fix.model_dump(mode="json")


def _verdict(fix: Fix) -> str:
    if fix.together is not None and fix.after_seconds:
        where = "of one launch" if fix.final_in_turns else "side by side"
        times = fix.step_seconds / fix.after_seconds
        trained = "" if fix.proof is None else f"; {fix.proof.text}"
        return (
            f"A step takes {ms_of(fix.after_seconds)} ms instead of {ms_of(fix.step_seconds)}: {times:.2f} times as "
            f"fast, shown in {fix.final_rounds} rounds {where}{trained}."
        )
    if fix.interrupted:
        return "Interrupted before anything was proven: nothing is kept."
    nothing = "No change was proven to make this script faster"
    sure = [
        each.text
        for each in fix.tried
        if each.why and each.standing in _UNDECIDED and _looked_faster(each, fix.step_seconds)
    ]
    if sure:
        return f"{nothing}, but {join_names(sure)} looked faster at first. To decide: `{_again(fix, longer=True)}`"
    if any(each.why.startswith("no time") for each in fix.tried):
        return f"{nothing}, and some were not tried for lack of time. To try them: `{_again(fix, longer=True)}`"
    return f"{nothing}: leave it as it is."


def _looked_faster(each: Tried, step: float) -> bool:
    """Beyond noise, or by so much that one launch tells."""
    return is_proven(each.saves) or (each.saves is not None and each.saves.value >= LARGE * step)


def _again(fix: Fix, longer: bool = False) -> str:
    """The command that made this record; ``longer``: with twice the time that it took."""
    ranks = [f"--nproc-per-node {fix.ranks}"] if fix.engine == "torchrun" else []
    minutes = _needed_minutes(fix) or math.ceil(2 * fix.elapsed_seconds / 60)
    budget = [f"--budget {minutes}m"] if longer else []
    return " ".join(("stash fix", *ranks, *budget, *job_words(fix.command)))


def _grids(fix: Fix) -> Iterator[Grid]:
    if fix.kept:
        rows = [
            (each.text, format_saving(each.saves), _describe_writing(each)) for each in fix.kept
        ]
        if fix.together is not None and fix.after_seconds and len(rows) > 1:
            after = f"{ms_of(fix.after_seconds)} ms a step, {fix.step_seconds / fix.after_seconds:.2f} times as fast"
            rows.append(("together", format_saving(fix.together), after))
        yield _grid(("a step", "how to apply"), rows, "Kept")
    for title, standings in (
        ("Needs your consent", {"asks"}),
        ("Tried, not kept", {*_BECAUSE, "unproven"}),
    ):
        rows = []
        for each in fix.tried:
            if each.standing in standings:
                because = _BECAUSE.get(each.standing, "")
                why = because + each.why if because.endswith(" ") else each.why or because
                rows.append((each.text, format_saving(each.saves), why))
        if rows:
            yield _grid(("a step", "why"), rows, title)


def ms_of(seconds: float) -> str:
    """Milliseconds of a step or a part of it, without the unit."""
    milliseconds = 1e3 * seconds
    return (
        f"{milliseconds:.{0 if abs(milliseconds) >= 1000 else 1 if abs(milliseconds) >= 1 else 2}f}"
    )


def format_saving(saves: Interval | None) -> str:
    """What a change does to the step: ``-58.1 ± 4.0 ms``; empty where it is not known."""
    if saves is None:
        return ""
    half = "" if saves.half_width is None else f" ± {ms_of(saves.half_width)}"
    value = -saves.value if abs(saves.value) * 1e3 >= _LEAST else 0.0
    return f"{'+' if value > 0 else ''}{ms_of(value)}{half} ms"


def _grid(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], title: str = "") -> Grid:
    """A row for each change; the last column is text."""
    return Grid(title, head, tuple(rows), frozenset({0, len(head)}), first="change", prose=True)


def _describe_writing(each: Tried) -> str:
    """How to apply it; of what makes starting longer, how many steps pay for that."""
    way = {"setting": "in the environment", "command": "by its setting"}
    text = f"{way.get(each.written or '', 'by hand')}: {each.how}"
    if each.written == "command" and each.how.startswith("-"):
        text = f"on the command line: {each.how}"
    if each.written == "patch":
        place = each.place
        where = "" if place is None else f" at {place.file.rpartition('/')[2]}:{place.line}"
        text = f"in the patch{where}" + (f"; {each.how}" if each.how else "")
    if each.compile_seconds and each.saves is not None and each.saves.value > 0:
        steps = math.ceil(each.compile_seconds / each.saves.value)
        text += (
            f"; compiling takes {each.compile_seconds:.0f} s longer to start, paid back after "
            f"{steps:,} steps"
        )
    return text


def _warnings(fix: Fix) -> Iterator[str]:
    if fix.interrupted and fix.together is not None:
        yield "interrupted: what was proven by then is kept; the rest was not tried to the end"
    if fix.repeats is False:
        yield (
            "two unmodified launches with the same seeds gave different losses: what a change does to training is "
            "known no better than they agree"
        )
    late, took, minutes = _list_late(fix), _launch_seconds(fix), _needed_minutes(fix)
    if minutes is not None:
        yield (
            f"no time was left for {join_names(late)} (a launch takes {fmean(took):.0f} s); to try them, allow "
            f"--budget {minutes}m"
        )
    yield from fix.notes


def _list_late(fix: Fix) -> list[str]:
    return [each.name for each in fix.tried if each.why.startswith("no time")]


def _launch_seconds(fix: Fix) -> list[float]:
    return [
        each.elapsed_seconds
        for each in fix.launches
        if each.stage != "turns" and each.elapsed_seconds
    ]


def _needed_minutes(fix: Fix) -> int | None:
    """The ``--budget`` that would have let it try all; ``None`` where it did, or no launch was timed."""
    late, took = _list_late(fix), _launch_seconds(fix)
    if not late or not took:
        return None
    needed = fix.elapsed_seconds + fmean(took) * (SCREENED * len(late) + ARMS * LOOKS[0])
    return math.ceil(needed / 60)


def _next_steps(fix: Fix, record: str, patch: str) -> Iterator[str]:
    if fix.patch and patch:
        outside = any(f"+++ b/{file.lstrip('/')}" in fix.patch for file in fix.sources)
        named = shlex.quote(patch)
        yield f"`patch -d / -p1 < {named}`" if outside else f"`git apply {named}`"
    named = " ".join(
        f"{name}={value}" for each in fix.kept for name, value in each.variables.items()
    )
    if named and record:
        job = " ".join(job_words(fix.command))
        yield f"to apply the environment settings {named}: `stash run --with {shlex.quote(record)} {job}`"
    options = [
        each.how for each in fix.kept if each.written == "command" and each.how.startswith("-")
    ]
    if options:
        yield f"add to the script's own options: `{' '.join(options)}`"
    for each in fix.kept:
        if each.written == "explained":
            yield f"{each.text}: {each.how.splitlines()[0] if each.how else 'as the record says'}"


def _chapters(fix: Fix) -> Iterator[Chapter]:
    if fix.advice:
        yield Chapter(
            "outside",
            "Outside the script, by forecast",
            points=fix.advice,
            brief=True,
            most=3,
            text="Forecasts only: none of these was tried.",
        )
    shown = [] if fix.proof is None else [("together, in longer launches", fix.proof.text)]
    shown += [(each.text, each.proof.text) for each in fix.tried if each.proof is not None]
    if shown:
        grid = _grid(("against the unmodified script",), shown)
        yield Chapter("training", "What each change does to training", grids=(grid,))
    left = [(each.text, each.why) for each in fix.tried if each.standing == "left out"]
    if left:
        yield Chapter("left", "Not tried", grids=(_grid(("why",), left),), folded=True)
    if fix.left:
        yield Chapter("none", "Not applicable", points=fix.left, folded=True)
    launched: tuple[tuple[str, ...], ...] = tuple(
        (
            each.stage,
            str(each.round + 1),
            " + ".join(each.changes) or "unmodified",
            "" if each.step_seconds is None else ms_of(each.step_seconds),
            *(
                (str(each.steps), f"{each.elapsed_seconds:.0f}")
                if each.elapsed_seconds
                else ("", "")
            ),
            "" if each.resident_bytes is None else format_bytes(each.resident_bytes),
        )
        for each in fix.launches
    )
    head = ("round", "changed", "step, ms", "steps", "launch, s", "memory")
    yield Chapter(
        "launches",
        "Every launch",
        grids=(Grid("", head, launched, frozenset({0, 2}), first="stage"),),
        folded=True,
    )
    if fix.patch:
        yield Chapter("patch", "The patch", points=tuple(fix.patch.splitlines()), folded=True)
