"""What ``stash fix`` found as a page: what is kept and what it saves, what is not, and how to take it over."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from statistics import fmean
from typing import Any

from stash.core.fix_records import Fix, Tried
from stash.core.formatting import listed
from stash.core.intervals import Interval
from stash.core.units import counted, format_bytes
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page, Row

_DAY = 10
_LEAST = 0.05
"""Milliseconds: a difference that is shown as none."""
_UNDECIDED = ("no difference", "unproven")
"""What was measured, and may be faster for all that is known."""


def page(fix: Fix, record: str = "", patch: str = "") -> Page:
    """The whole report; ``record`` and ``patch`` are the files that there are of it."""
    tried = [each for each in fix.tried if each.standing != "left out"]
    kept = counted(len(fix.kept), "change")
    return Page(
        title=(
            f"{fix.workload} | {counted(fix.ranks, 'rank')} | {_ms(fix.step_seconds)} ms a step; {kept} kept of "
            f"{len(tried)} tried, in {_minutes(fix.elapsed_seconds)}"
        ),
        source=record,
        verdict=(_verdict(fix),),
        bar=tuple(_waterfall(fix)),
        bar_title="A step as it was typed: what is saved, and what is left",
        grids=tuple(_grids(fix)),
        warnings=tuple(_warnings(fix)),
        next_steps=tuple(_next(fix, record, patch)),
        chapters=tuple(_chapters(fix)),
        footer=_footer(fix),
        again=shlex.join(("stash", "fix", *fix.command)),
        made=f"{fix.created[:_DAY]}, Stash {fix.stash_version}",
    )


def document(fix: Fix) -> dict[str, Any]:
    """The record as JSON; its keys are a contract (docs/format.md)."""
    return fix.model_dump(mode="json")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _ms(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.{0 if abs(milliseconds) >= 1000 else 1 if abs(milliseconds) >= 1 else 2}f}"


def saved(saves: Interval | None) -> str:
    """What a change does to the step: ``-58.1 ± 4.0 ms``; empty where it is not known."""
    if saves is None:
        return ""
    half = "" if saves.half_width is None else f" ± {_ms(saves.half_width)}"
    value = -saves.value if abs(saves.value) * 1e3 >= _LEAST else 0.0
    return f"{'+' if value > 0 else ''}{_ms(value)}{half} ms"


def _verdict(fix: Fix) -> str:
    if fix.together is not None and fix.after_seconds:
        times = fix.step_seconds / fix.after_seconds
        return (
            f"A step takes {_ms(fix.after_seconds)} ms instead of {_ms(fix.step_seconds)}: {times:.2f} times as "
            f"fast, shown in {fix.final_rounds} rounds side by side{_trained(fix)}."
        )
    if fix.interrupted:
        return "Interrupted before anything was proven: nothing is kept."
    nothing = "Nothing that was tried makes this script faster, as far as could be shown"
    sure = [
        each.text for each in fix.tried if each.why and each.standing in _UNDECIDED and _looked_faster(each.saves)
    ]
    if sure:
        return f"{nothing}, but {listed(sure)} looked faster at first: give more time with --within."
    if any(each.standing == "left out" and each.why.startswith("no time") for each in fix.tried):
        return f"{nothing}, and not all was tried: give more time with --within."
    return f"{nothing}: leave it as it is."


def _looked_faster(saves: Interval | None) -> bool:
    return saves is not None and saves.low is not None and saves.low > 0


def _trained(fix: Fix) -> str:
    """What is known of the losses of all that is kept."""
    return "" if fix.proof is None else f"; {fix.proof.text}"


def _waterfall(fix: Fix) -> Iterator[Row]:
    """What each kept change takes off, and what is left of the step."""
    if fix.together is None or fix.after_seconds is None:
        return
    own = sum(max(0.0, each.saves.value) for each in fix.kept if each.saves is not None)
    factor = fix.together.value / own if own > fix.together.value > 0 else 1.0
    for each in fix.kept:
        if each.saves is not None:
            part = factor * each.saves.value
            share = part / fix.step_seconds
            yield Row(each.name, f"{_ms(part)} ms", share=f"{share:.0%}", fraction=share, series="plain")
    share = fix.after_seconds / fix.step_seconds
    yield Row("left", f"{_ms(fix.after_seconds)} ms", share=f"{share:.0%}", fraction=share, series="compute")


def _grids(fix: Fix) -> Iterator[Grid]:
    if fix.kept:
        rows = [(each.text, saved(each.saves), _how(each)) for each in fix.kept]
        if fix.together is not None and fix.after_seconds and len(rows) > 1:
            after = f"{_ms(fix.after_seconds)} ms a step, {fix.step_seconds / fix.after_seconds:.2f} times as fast"
            rows.append(("together", saved(fix.together), after))
        yield Grid("Kept", ("a step", "how it gets in"), tuple(rows), frozenset({0, 2}), first="change", prose=True)
    asks = [each for each in fix.tried if each.standing == "asks"]
    if asks:
        rows = [(each.text, saved(each.saves), each.why) for each in asks]
        yield Grid("Asks you", ("a step", "why"), tuple(rows), frozenset({0, 2}), first="change", prose=True)
    others = [each for each in fix.tried if each.standing not in ("kept", "asks", "left out")]
    if others:
        rows = [(each.text, saved(each.saves), _why(each)) for each in others]
        yield Grid(
            "Tried, and not kept", ("a step", "why"), tuple(rows), frozenset({0, 2}), first="change", prose=True
        )


def _how(each: Tried) -> str:
    return _way(each) + _paid_back(each)


def _paid_back(each: Tried) -> str:
    """Of what makes starting longer: how many steps pay for it."""
    if not each.compile_seconds or each.saves is None or each.saves.value <= 0:
        return ""
    steps = math.ceil(each.compile_seconds / each.saves.value)
    return f"; compiling takes {each.compile_seconds:.0f} s longer to start, paid back after {steps:,} steps"


def _way(each: Tried) -> str:
    where = f" at {each.place.file.rpartition('/')[2]}:{each.place.line}" if each.place is not None else ""
    if each.written == "patch":
        return f"in the patch{where}" + (f"; {each.how}" if each.how else "")
    if each.written == "command":
        return f"on the command line: {each.how}" if each.how.startswith("-") else f"by its setting: {each.how}"
    if each.written == "setting":
        return f"set from outside: {each.how}"
    return f"by hand: {each.how}"


def _why(each: Tried) -> str:
    if each.standing == "no difference":
        return each.why or "no difference worth it"
    if each.standing == "failed":
        return f"the job failed with it: {each.why}"
    if each.standing == "other training":
        return f"it changes training: {each.why}"
    if each.standing == "slower":
        return each.why or "slower"
    return each.why


def _warnings(fix: Fix) -> Iterator[str]:
    if fix.interrupted:
        yield "interrupted: what was proven until then is kept, the rest was not tried to its end"
    if fix.repeats is False:
        yield (
            "two launches as typed with the same seeds gave other losses: what changes do to training is known only "
            "as far as those differ"
        )
    late = [each.name for each in fix.tried if each.why.startswith("no time")]
    if late:
        took = [each.elapsed_seconds for each in fix.launches if each.stage != "turns"]
        each_one = f"; a launch takes {fmean(took):.0f} s" if took else ""
        yield f"no time was left for {listed(late)}: give more with --within{each_one}"
    yield from fix.notes


def _next(fix: Fix, record: str, patch: str) -> Iterator[str]:
    if fix.patch and patch:
        outside = any(f"+++ b/{file.lstrip('/')}\n" in fix.patch for file in fix.sources)
        named = shlex.quote(patch)
        yield f"`patch -d / -p1 < {named}`" if outside else f"`git apply {named}`"
    if any(each.written == "setting" for each in fix.kept) and record:
        yield f"`stash run --with {shlex.quote(record)} {shlex.join(fix.command)}` sets what is set from outside"
    options = [each.how for each in fix.kept if each.written == "command" and each.how.startswith("-")]
    if options:
        yield f"add to the script's own options: `{' '.join(options)}`"
    for each in fix.kept:
        if each.written == "explained":
            yield f"{each.text}: {each.how.splitlines()[0] if each.how else 'as the record says'}"


def _chapters(fix: Fix) -> Iterator[Chapter]:
    if fix.advice:
        yield Chapter(
            "outside", "Outside the script, by forecast", points=fix.advice, brief=True, most=3,
            text="Nothing of this was tried.",
        )  # fmt: skip
    shown = [] if fix.proof is None else [("together, in longer launches", fix.proof.text)]
    shown += [(each.text, each.proof.text) for each in fix.tried if each.proof is not None]
    if shown:
        rows = tuple((text, what) for text, what in shown)
        yield Chapter(
            "training",
            "What each change does to training",
            grids=(_texts("", ("against the script as typed",), rows),),
        )
    left = [(each.text, each.why) for each in fix.tried if each.standing == "left out"]
    if left:
        yield Chapter("left", "Not tried", grids=(_texts("", ("why",), tuple(left)),), folded=True)
    if fix.left:
        yield Chapter("none", "Nothing to try of", points=fix.left, folded=True)
    launched: tuple[tuple[str, ...], ...] = tuple(
        (
            each.stage, str(each.round + 1), " + ".join(each.changes) or "as typed",
            "" if each.step_seconds is None else _ms(each.step_seconds), str(each.steps),
            f"{each.elapsed_seconds:.0f}", "" if each.resident_bytes is None else format_bytes(each.resident_bytes),
        )
        for each in fix.launches
    )  # fmt: skip
    head = ("round", "changed", "step, ms", "steps", "launch, s", "memory")
    yield Chapter(
        "launches", "Every launch", grids=(Grid("", head, launched, frozenset({0, 2}), first="stage"),), folded=True
    )
    if fix.patch:
        yield Chapter("patch", "The patch", points=tuple(fix.patch.splitlines()), folded=True)


def _texts(title: str, head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Grid:
    return Grid(title, head, rows, frozenset(range(len(head) + 1)), first="change", prose=True)


def _footer(fix: Fix) -> str:
    launches = sum(each.elapsed_seconds > 0 for each in fix.launches)
    return (
        f"{launches} launches of the script, each as typed but for what is named; intervals hold "
        f"together with an error rate of {fix.error_rate:.0%} for the whole search, of fresh rounds only. Steps are "
        "without what other work on the machine cost."
    )
