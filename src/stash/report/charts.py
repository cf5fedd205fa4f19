"""The charts of a report: the step, how it was measured, its machines' links.

A step's are drawn from a ``Breakdown``; what blocks saw besides stands in two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from stash.analysis.breakdown import Breakdown
from stash.analysis.findings.rates import Curve
from stash.analysis.step_figures import make_figures, slower_text
from stash.analysis.step_times import RankTime
from stash.analysis.usage import DataBlock
from stash.core.formatting import plus_minus, split_spread
from stash.core.ladder import STALLS, stall_names
from stash.core.records.profile import Profile
from stash.core.units import (
    Scale,
    format_bits,
    format_bytes,
    format_seconds,
)
from stash.report.profile_page import UNKNOWN, table_rows, unknown_stalls
from stash.ui.charts.builders import (
    CURVES,
    BarPiece,
    Chart,
    LaneRow,
    PlotCurve,
    PlotPoint,
    Value,
    lane_chart,
    lanes_ruler,
    plane_chart,
    power_ruler,
)
from stash.ui.charts.chart import Blank, Grid, Legend, time_scale

# The step as a ladder: a stall below zero goes back, one within the noise is faint.


def ladder_chart(breakdown: Breakdown) -> Chart:
    """A row for each stall that the job can have, known or not, and one for the step."""
    scale = make_figures(breakdown.stalls).scale
    step = breakdown.step
    texts, total = table_rows(breakdown.stalls, breakdown.skipped, step)
    known = {stall.name: stall for stall in breakdown.stalls}
    rows = []
    reached = 0.0
    for row in texts:
        stall = known.get(row.name)
        if stall is None:
            rows.append(LaneRow(row.name, unknown=row.why or ""))
            continue
        tip = f"{row.name}: {row.time} {row.interval}, {row.share} of the step"
        low, high = (None if end is None else reached + end for end in (stall.low, stall.high))
        piece = BarPiece(reached, reached + stall.seconds, row.name, tip, faint=row.within_noise)
        end = " · ".join(filter(None, (f"{row.time} {row.interval}".strip(), row.share)))
        rows.append(LaneRow(row.name, end, (piece,), low, high))
        reached += stall.seconds
    piece = BarPiece(0.0, breakdown.step_seconds, "plain", f"step: {total.time} {total.interval}")
    rows.append(
        LaneRow(total.name, f"{total.time} {total.interval}".strip(), (piece,), step.low, step.high)
    )
    how = (
        "Each bar begins where the one before ends, so together they are the step. Thin lines are 95% intervals; a "
        "faint bar is within the noise."
    )
    across = lanes_ruler(rows, f"{scale.unit} of a step", scale.size)
    return lane_chart(
        "ladder", "The step, stall by stall", rows, across, _ladder_table(breakdown, scale), how
    )


def _ladder_table(breakdown: Breakdown, scale: Scale) -> Grid:
    written = make_figures(breakdown.stalls)
    step = breakdown.step

    def number(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else scale.number(seconds)

    found: dict[str, tuple[str, ...]] = {
        stall.name: (
            stall.name,
            f"{written.times[stall.name]:,.{scale.decimals}f}",
            number(stall.low),
            number(stall.high),
            written.share(stall.name),
            "within noise" if stall.within_noise else "",
        )
        for stall in breakdown.stalls
    }
    for why, names in unknown_stalls(breakdown.skipped).items():
        found[names[0]] = (", ".join(names), UNKNOWN, "", "", "", why)
    total = ("step", scale.number(step.value), number(step.low), number(step.high), "100.0%", "")
    head = (f"time, {scale.unit}", "95% from", "to", "share", "remark")
    rows = (*(found[name] for name in STALLS if name in found), total)
    return Grid("Stalls of a step", head, rows, frozenset({0, 5}), first="stall", total=True)


def steps_side_by_side(runs: Sequence[tuple[str, Breakdown]]) -> Chart:
    """A row for each run, its step made of its stalls; what was measured as negative has no place in it."""
    scale = time_scale(max(run.step_seconds for _, run in runs))
    rows = []
    for name, run in runs:
        written = make_figures(run.stalls)
        pieces = []
        reached = 0.0
        for stall in run.stalls:
            if stall.seconds > 0:
                tip = f"{name}, {stall.name}: {written.quantity(stall.name)}, {written.share(stall.name)}"
                pieces.append(BarPiece(reached, reached + stall.seconds, stall.name, tip))
                reached += stall.seconds
        text = f"{scale.number(run.step_seconds)} {plus_minus(run.step, scale)} {scale.unit}"
        rows.append(LaneRow(name, text, tuple(pieces), run.step.low, run.step.high))
    present = [name for name in STALLS if any(run.stall(name) is not None for _, run in runs)]

    def cell(run: Breakdown, name: str) -> str:
        stall = run.stall(name)
        return (
            UNKNOWN
            if stall is None
            else f"{scale.number(stall.seconds)} {plus_minus(stall.time, scale)}"
        )

    table = tuple(
        (
            name,
            scale.number(run.step_seconds),
            plus_minus(run.step, scale),
            *(cell(run, each) for each in present),
        )
        for name, run in runs
    )
    head = (f"step, {scale.unit}", "95%", *present)
    return lane_chart(
        "runs",
        "The runs, side by side",
        rows,
        lanes_ruler(rows, f"{scale.unit} of a step", scale.size),
        Grid("Steps and stalls of the runs", head, table, frozenset({0}), first="run"),
        how="One step of each run, made of its stalls; thin lines are the 95% intervals of the steps.",
        keys=[Legend(name, name) for name in present],
    )


# The ranks side by side.

_MAX_LANES = 32
"""Ranks that have a row each; of more, every rung has one."""


def ranks_chart(breakdown: Breakdown, times: Sequence[RankTime], profile: Profile) -> Chart | Blank:
    """The ranks' steps under every rung that all of them ran: a row each, or of very many a row for each rung."""
    title = "Ranks side by side"
    shared = [name for name in breakdown.rungs if sum(time.rung == name for time in times) > 1]
    if profile.world_size == 1 or not shared:
        return Blank("ranks", title, "no rung was run by several ranks")
    series = dict(zip(breakdown.rungs, stall_names(breakdown.rungs), strict=True))
    scale = time_scale(breakdown.step_seconds)
    ordered = sorted(profile.ranks, key=lambda rank: rank.rank)
    names = {
        each.rank: f"rank {each.rank}{f', node {each.node}' if profile.nodes > 1 else ''}"
        for each in ordered
    }
    many = len(names) > _MAX_LANES
    lanes: dict[str, list[Value]] = {name: [] for name in (shared if many else names.values())}
    for each in (time for time in times if time.rung in shared):
        time = each.time
        name = names[each.rank]
        tip = f"{name}, {each.rung}: {scale.number(time.value)} {scale.unit}"
        low, high = (None, None) if many else (time.low, time.high)
        lanes[each.rung if many else name].append(
            Value(time.value, series[each.rung], tip, low, high)
        )
    rows = [LaneRow(name, values=tuple(values)) for name, values in lanes.items()]
    slow = breakdown.slow_rank
    across = lanes_ruler(rows, f"{scale.unit} of a step", scale.size, zero=False)
    return lane_chart(
        "ranks",
        title,
        rows,
        across,
        _ranks_table(times, names, shared, scale),
        how="What a step takes each rank by its own clock: means over rounds, with 95% intervals.",
        caption="No rank stands out from the others."
        if slow is None
        else f"Rank {slow.rank} is {slower_text(slow)}.",
        keys=[Legend(series[name], name) for name in shared],
    )


def _ranks_table(
    found: Sequence[RankTime], names: Mapping[int, str], shared: Sequence[str], scale: Scale
) -> Grid:
    cells = {
        (each.rank, each.rung): f"{scale.number(each.time.value)} {plus_minus(each.time, scale)}"
        for each in found
    }
    rows = tuple(
        (name, *(cells.get((rank, rung), UNKNOWN) for rung in shared))
        for rank, name in names.items()
    )
    return Grid(
        f"Steps of each rank, {scale.unit}", tuple(shared), rows, frozenset({0}), first="rank"
    )


# The data pipeline: where data blocks read from.


def residency_grid(blocks: Sequence[DataBlock]) -> Grid | Blank:
    """What blocks of each rung that reads data found in memory, and read: the proof that cold was cold."""
    title = "Were cold files cold?"
    if not blocks:
        return Blank("residency", title, "no rung that reads data was run")
    if all(block.resident is None for block in blocks):
        return Blank("residency", title, "no block recorded how much of its files was in memory")
    head = (
        "in memory before",
        "fetched from storage, a sample",
        "files opened, a sample",
        "step waited",
    )
    rows = []
    for rung in dict.fromkeys(block.rung for block in blocks):
        own = [block for block in blocks if block.rung == rung]
        shares = [block.resident for block in own if block.resident is not None]
        rows.append(
            (
                rung,
                f"{min(shares):.1%} to {max(shares):.1%}" if shares else UNKNOWN,
                _mean([block.fetched_bytes for block in own], format_bytes),
                _mean([block.file_bytes for block in own], format_bytes),
                _mean([block.wait_seconds for block in own], format_seconds),
            )
        )
    below = (
        "In memory before: pages of the files in the page cache just before each block, of the rank that had most. "
        "Cold blocks belong near 0%, warm ones near 100%. Caches below the operating system's are not seen."
    )
    return Grid(title, head, tuple(rows), frozenset({0}), below, "rung")


def _mean(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return write(fmean(known)) if known else UNKNOWN


# All-reduce by message size.


def all_reduce(exchanges: Sequence[Curve]) -> Chart | Blank:
    """Bus bandwidth against message size, both logarithmic; a line for each exchange that was measured."""
    title = "All-reduce, by message size"
    known = [each for each in exchanges if each.sizes]
    if not known:
        return Blank("all-reduce", title, "no exchange was measured")
    curves = []
    keys = []
    rows = []
    for number, each in enumerate(known):
        series = CURVES[number % len(CURVES)]
        where = f"across {each.nodes} nodes" if each.nodes > 1 else f"inside {each.hostname}"
        name = f"{each.backend}, {each.ranks} ranks {where}"
        points = []
        for size in each.sizes:
            bus = size.bus_bytes_per_second.scale(8)
            low, high = (bus.low, bus.high) if bus.low is not None and bus.low > 0 else (None, None)
            tip = f"{name}: {format_bytes(size.bytes)} at {format_bits(bus.value / 8)}"
            points.append(PlotPoint(size.bytes, bus.value, tip, low, high))
            rows.append(
                (
                    name,
                    format_bytes(size.bytes),
                    *split_spread(size.seconds, "seconds"),
                    format_bits(bus.value / 8),
                )
            )
        curves.append(PlotCurve(series, tuple(points), line=True))
        keys.append(Legend(series, name))
    every = [point for curve in curves for point in curve.points]
    upright = [end for point in every for end in (point.y, point.low, point.high)]
    return plane_chart(
        "all-reduce",
        title,
        curves,
        power_ruler([point.x for point in every], "message", format_bytes),
        power_ruler(upright, "bus bandwidth", lambda bits: format_bits(bits / 8)),
        Grid(
            title,
            ("message", "time", "95%", "bus bandwidth"),
            tuple(rows),
            frozenset({0}),
            first="exchange",
        ),
        how="Bus bandwidth as nccl-tests defines it: payload / time × 2(p−1)/p for p ranks, with 95% intervals.",
        keys=keys,
    )
