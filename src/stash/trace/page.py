"""What traces say of a job as a page, and as the document of ``--json``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stash.core.formatting import format_dollars, format_quantity, plus_minus
from stash.core.trace_records import Trace
from stash.core.units import (
    SECONDS,
    Scale,
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    round_to_sum,
    scale_for,
)
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page, Row

_SMALL = 0.03
"""Share of a step below which a part deserves no sentence."""
_DAY = 10
_MANY_RANKS = 16


def page(trace: Trace, source: str = "") -> Page:
    """The whole account."""
    scale = scale_for(trace.step_seconds, SECONDS, 4)
    counted_steps = [step for step in trace.steps if not step.why_left_out]
    left_out = len(trace.steps) - len(counted_steps)
    where = "" if trace.nodes is None else f" on {format_count(trace.nodes, 'node')}"
    what = [
        f"{format_count(len(trace.ranks), 'rank')}{where}",
        format_count(len(trace.steps), "step")
        + (f", {left_out} of them left out" if left_out else ""),
        *([trace.backend] if trace.backend else []),
    ]
    return Page(
        title=" | ".join((trace.workload, *what)),
        source=source,
        verdict=tuple(sentences(trace)),
        bar=tuple(_rows(trace, scale)[:-1]),
        bar_title="a step",
        rows=tuple(_rows(trace, scale)),
        grids=tuple(_grids(trace, scale)),
        warnings=tuple(trace.warnings),
        chapters=tuple(_chapters(trace, scale)),
        footer=(
            f"From what {trace.tool} recorded: mean over ranks, 95 % intervals over steps. Time is compute, else "
            "exchange, else waiting, else copies, else what the training thread did."
        ),
        made=f"{trace.created[:_DAY]}, Stash {trace.stash_version}",
    )


def sentences(trace: Trace) -> Iterator[str]:
    """What dominates, and which rank is to blame."""
    largest = trace.largest_stall
    compute = trace.part("compute")
    if largest is None or largest.share < _SMALL:
        yield "The step is compute: no stall takes 3% of it."
    else:
        hidden = (
            ""
            if largest.hidden_share is None or largest.hidden_share < _SMALL
            else f", and {largest.hidden_share:.0%} is hidden"
        )
        at = f" in {largest.place}" if largest.place else ""
        share = "" if compute is None else f"; compute is {compute.share:.0%}"
        yield (
            f"The largest stall is {largest.name}, {format_quantity(largest.time, 'seconds')} a step "
            f"({largest.share:.0%})"
            f"{at}{hidden}{share}."
        )
    late = max(trace.ranks, key=lambda rank: rank.late_seconds or 0.0)
    if (
        late.late_seconds
        and late.late_seconds > _SMALL * trace.step_seconds
        and late.last_share is not None
    ):
        scale = scale_for(late.late_seconds, SECONDS, 3)
        by = f"; it spends more than the others on {late.late_by}" if late.late_by else ""
        yield (
            f"Rank {late.rank} arrives last at {late.last_share:.0%} of collectives, and the others wait "
            f"{scale.text(late.late_seconds)} a step for it{by}."
        )


def _rows(trace: Trace, scale: Scale) -> list[Row]:
    shown = round_to_sum([part.seconds / scale.size for part in trace.traced], scale.decimals)
    rows = [
        Row(
            name=part.name,
            time=f"{number:,.{scale.decimals}f} {scale.unit}",
            interval=plus_minus(part.time, scale),
            share=f"{part.share:.1%}",
            fraction=part.share,
            strong=part.name != "compute" and part.share >= _SMALL,
        )
        for part, number in zip(trace.traced, shown, strict=True)
    ]
    rows += [Row(name=name, why=why) for name, why in trace.unknown.items()]
    total = sum(shown)
    time = f"{total:,.{scale.decimals}f} {scale.unit}"
    return [*rows, Row("step", time, plus_minus(trace.step, scale), "100%", 1.0)]


def _grids(trace: Trace, scale: Scale) -> Iterator[Grid]:
    has_path = any(part.path_seconds is not None for part in trace.traced)
    head = (
        f"whole time, {scale.unit}",
        "in the step",
        "hidden",
        *(["on the path"] if has_path else []),
    )
    rows = tuple(
        (
            part.name,
            "" if not part.whole_seconds else scale.number(part.whole_seconds),
            scale.number(part.seconds),
            "" if part.hidden_share is None else f"{part.hidden_share:.0%}",
            *([] if part.path_seconds is None else [scale.number(part.path_seconds)]),
        )
        for part in trace.traced
        if has_path or part.whole_seconds
    )
    if rows:
        title = "Hidden behind compute" + (", and on the critical path" if has_path else "")
        below = "The path: what the end of the step waited for, from rank to rank. Only less of it makes steps shorter."
        yield Grid(title, head, rows, frozenset({0}), first="part", below=below if has_path else "")
    placed = tuple((part.name, part.place) for part in trace.traced if part.place)
    if placed:
        yield Grid("Where in the script", ("function",), placed, frozenset({0, 1}), first="part")


def _chapters(trace: Trace, scale: Scale) -> Iterator[Chapter]:
    if len(trace.ranks) > 1:
        names = [part.name for part in trace.traced]
        rows = tuple(
            (
                str(rank.rank),
                scale.number(rank.step_seconds),
                *(scale.number(rank.parts.get(name, 0.0)) for name in names),
                "" if rank.last_share is None else f"{rank.last_share:.0%}",
                "" if rank.late_seconds is None else scale.number(rank.late_seconds),
                rank.late_by,
            )
            for rank in trace.ranks
        )
        head = (f"step, {scale.unit}", *names, "last", "others wait", "by")
        yield Chapter(
            "ranks",
            "Ranks",
            grids=(Grid("", head, rows, frozenset({0, len(head)}), first="rank"),),
            brief=len(trace.ranks) <= _MANY_RANKS,
        )
    if trace.collectives:
        yield Chapter("collectives", "Collectives", grids=(_collectives(trace),), brief=True)
    if trace.checks:
        yield Chapter(
            "against", f"Against {trace.against}", grids=(_checks(trace, scale),), brief=True
        )
    if trace.suppositions:
        yield Chapter(
            "what-if", "What a step would take", grids=(_suppositions(trace, scale),), brief=True
        )
    points = [
        f"step {step.number}: {step.why_left_out}" for step in trace.steps if step.why_left_out
    ]
    if points:
        yield Chapter("left-out", "Steps left out", points=tuple(points), brief=True, most=4)
    if trace.like_exchange:
        named = tuple((f"{share:.1%}", name) for name, share in trace.like_exchange.items())
        text = "These count as compute. If they communicate, say so: --comm-kernel REGEX."
        yield Chapter(
            "sounding", "Kernels that sound like communication", text=text, facts=named, brief=True
        )


def _suppositions(trace: Trace, scale: Scale) -> Grid:
    price = trace.price
    rows = tuple(
        (
            each.name,
            scale.number(each.step_seconds),
            f"{each.step_seconds / trace.step_seconds - 1:+.1%}",
            *(
                []
                if each.saved_dollars_per_day is None
                else [format_dollars(each.saved_dollars_per_day)]
            ),
            each.text,
        )
        for each in trace.suppositions
    )
    head = (f"step, {scale.unit}", "change", *([] if price is None else ["saved a day"]), "")
    below = "Each alone, if nothing appears that is hidden now."
    if price is not None:
        below += (
            f" The machines ({price.instance}) cost {format_dollars(price.dollars_per_hour)} an hour "
            f"({price.source})."
        )
    return Grid("", head, rows, frozenset({0, len(head)}), first="if", prose=True, below=below)


def _checks(trace: Trace, scale: Scale) -> Grid:
    rows = tuple(
        (
            each.name,
            scale.number(each.traced.value),
            f"{scale.number(each.ladder.value)} {plus_minus(each.ladder, scale)}",
            each.text,
        )
        for each in trace.checks
    )
    return Grid(
        "",
        ("traces", f"ladder, {scale.unit}", ""),
        rows,
        frozenset({0, 3}),
        first="stall",
        prose=True,
    )


def _collectives(trace: Trace) -> Grid:
    rows = tuple(
        (
            each.op,
            str(each.ranks),
            each.where,
            f"{each.each_step:.4g}",
            "" if each.bytes is None else format_bytes(each.bytes),
            format_seconds(each.seconds),
            format_seconds(each.wait_seconds),
            "" if each.bus_bytes_per_second is None else format_rate(each.bus_bytes_per_second),
        )
        for each in trace.collectives
    )
    head = ("ranks", "where", "a step", "size", "transfer", "waiting", "bus")
    return Grid("", head, rows, frozenset({0, 2}), first="collective")


def document(trace: Trace) -> dict[str, Any]:
    """The account as JSON, its first keys those of ``stash show --json``; a contract (docs/format.md)."""
    largest = trace.largest_stall
    dominant = largest.name if largest is not None and largest.share >= _SMALL else "compute"
    whole = trace.model_dump(mode="json", exclude={"traced", "unknown", "step"})
    return {
        "schema": trace.trace_schema,
        "kind": "trace",
        "workload": whole.pop("workload"),
        "verdict": {"text": " ".join(sentences(trace)), "stall": dominant, "next_steps": []},
        "step_seconds": trace.step.value,
        "step_low": trace.step.low,
        "step_high": trace.step.high,
        "stalls": [
            {
                "name": part.name,
                "seconds": part.seconds,
                "low": part.time.low,
                "high": part.time.high,
                "share": part.share,
                "within_noise": part.time.within_noise,
                "whole_seconds": part.whole_seconds,
                "hidden": part.hidden_share,
                "path_seconds": part.path_seconds,
                "place": part.place,
            }
            for part in trace.traced
        ],
        "skipped": [{"name": name, "why": why} for name, why in trace.unknown.items()],
        "stability": {"ok": not trace.warnings, "warnings": list(trace.warnings)},
        **{
            name: value for name, value in whole.items() if name not in ("trace_schema", "warnings")
        },
    }
