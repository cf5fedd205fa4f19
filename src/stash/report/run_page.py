"""An epoch in a report: a table of its rows, the lines they were seen at, a bar of it, and the same for programs."""

from __future__ import annotations

from typing import Any

from stash.advice.run_words import each_time, steps_in_words
from stash.analysis.run_account import COMPUTE, RUN_ROWS, RunAccount, RunRow
from stash.analysis.slow_lines import SlowLine
from stash.core.formatting import join_names, plus_minus
from stash.core.ledger_rows import COLLECTOR, EPOCH_END, EPOCH_START, LOOP, NOW_AND_THEN
from stash.core.units import Scale, format_seconds
from stash.report.model_facts import round_digits
from stash.ui.charts.chart import Grid, time_scale
from stash.ui.page import Row

UNKNOWN = "unknown"
_MOST_PLACES = 6
_WORTH_SAYING = 0.01
"""Of an epoch: lines that take less are in the JSON alone."""
_ALWAYS = tuple(name for name in NOW_AND_THEN if name != EPOCH_END)
_SERIES = {EPOCH_START: "shade", EPOCH_END: "heat", LOOP: "heat", COLLECTOR: "slower"}
"""Colours of rows that are no stall; others are plain."""
_DIGITS = 6


def epoch_grids(run: RunAccount | None) -> tuple[Grid, ...]:
    """The account's table, and that of its places; without an account none."""
    if run is None:
        return ()
    scale = time_scale(run.step_seconds)
    rows = _rows(run, scale)
    is_longer = any(row.name in NOW_AND_THEN and row.time is not None for row in run.rows)
    total = ("epoch" if is_longer else "step", scale.text(run.step_seconds), "", "100.0%", "")
    below = " ".join((f"Start-up, once: {format_seconds(run.startup_seconds)}.", *run.unseen))
    head = ("a step", "95%", "share", "each time")
    account = Grid(
        epoch_title(run),
        head,
        (*rows, total),
        frozenset({0, 2, 4}),
        below,
        first="",
        ranks=(0, 1, 4, 2, 3),
        total=True,
    )
    computes = max(run.rows, key=lambda row: row.seconds).name == COMPUTE
    passes = run.lines.forward if computes and run.computes_on_host else ()
    named = (*run.lines.computing, *run.lines.frozen, *run.lines.logging, *passes)
    shares = [
        (place, _share_of(run, place))
        for place in run.places
        if place.row in RUN_ROWS or place in named
    ]
    large = sorted((pair for pair in shares if pair[1] >= _WORTH_SAYING), key=lambda pair: -pair[1])
    places = [place for place, _ in large[:_MOST_PLACES]]
    lines = tuple(
        (
            place.where,
            _place_time(place),
            place.row,
            f"{place.words} (in {place.inside})" if place.inside else place.words,
        )
        for place in places
    )
    where = Grid("Where", ("takes", "row", "line"), lines, frozenset({0, 1, 2, 3}), prose=True)
    return (account, where) if lines else (account,)


def _rows(run: RunAccount, scale: Scale) -> list[tuple[str, ...]]:
    """Rows that add up to the total: several small ones share a line, unless that would show as zero."""
    small = [row for row in run.rows if row.time is not None and not _is_worth_a_line(row)]
    seconds = sum(row.seconds for row in small)
    is_zero = scale.text(seconds) == scale.text(0.0)
    alone = small if len(small) == 1 and not is_zero else []
    rows = [_row(row, scale) for row in run.rows if _is_worth_a_line(row) or row in alone]
    if is_zero or alone:
        return rows
    names = join_names([row.name for row in small])
    share = seconds / run.step_seconds
    return [*rows, ("others", scale.text(seconds), "", f"{share:.1%}", names)]


def _is_worth_a_line(row: RunRow) -> bool:
    return row.name in _ALWAYS or abs(row.share or 0.0) >= _WORTH_SAYING


def epoch_title(run: RunAccount) -> str:
    return (
        "An epoch"
        if run.epoch_steps is None
        else f"An epoch of {steps_in_words(run.epoch_steps)} steps"
    )


def _row(row: RunRow, scale: Scale) -> tuple[str, ...]:
    if row.time is None:
        return row.name, UNKNOWN, "", "", row.why
    often = "" if row.each is None else each_time(row)
    alone = "" if row.rank is None else f"rank {row.rank}"
    remark = ", ".join(part for part in (often, alone) if part)
    return (
        row.name,
        scale.text(row.seconds),
        plus_minus(row.time, scale),
        f"{row.share or 0.0:.1%}",
        remark,
    )


def _share_of(run: RunAccount, place: SlowLine) -> float:
    row = run.row(place.row)
    each = 0.0 if row is None or place.each is None or not row.every else place.each / row.every
    return max(place.seconds, each) / run.step_seconds


def _place_time(place: SlowLine) -> str:
    return (
        f"{format_seconds(place.seconds)} a step"
        if place.each is None
        else f"{format_seconds(place.each)} each time"
    )


def epoch_bar(run: RunAccount) -> tuple[Row, ...]:
    """The parts of an epoch, for a bar with a legend."""
    scale = time_scale(run.step_seconds)
    return tuple(
        Row(
            row.name,
            time=scale.text(row.seconds),
            share=f"{row.share or 0.0:.1%}",
            fraction=row.share or 0.0,
            series=_SERIES.get(row.name, "plain") if row.is_between_steps else row.name,
        )
        for row in run.rows
        if row.time is not None and row.seconds > 0
    )


def epoch_document(run: RunAccount | None) -> dict[str, Any] | None:
    """``run`` of ``stash show --json``; null is unknown, and all of it without ledgers."""
    if run is None:
        return None
    return {
        "epoch_steps": run.epoch_steps,
        "step_seconds": round_digits(run.step_seconds, _DIGITS),
        "startup_seconds": round_digits(run.startup_seconds),
        "rows": [
            {
                "name": row.name,
                "seconds": None if row.time is None else round_digits(row.seconds, _DIGITS),
                "low": None if row.time is None else round_digits(row.time.low, _DIGITS),
                "high": None if row.time is None else round_digits(row.time.high, _DIGITS),
                "share": None if row.share is None else round(row.share, 4),
                "each_seconds": None if row.each is None else round_digits(row.each.value),
                "every_steps": row.every,
                "times": row.times or None,
                "rank": row.rank,
                "why": row.why or None,
            }
            for row in run.rows
        ],
        "places": [
            {
                "row": place.row,
                "file": place.file,
                "line": place.line,
                "text": place.text,
                "inside": place.inside or None,
                "called_at": place.caller or None,
                "seconds": round_digits(place.seconds),
                "each_seconds": round_digits(place.each),
            }
            for place in run.places
        ],
        "unseen": list(run.unseen),
    }
