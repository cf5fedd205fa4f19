"""Charts of a run: every block of every round, ranks beside each other, and what links carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.analysis.breakdown import Breakdown, slower
from stash.analysis.findings.probe_reading import Reading
from stash.analysis.findings.rates import Curve, Link
from stash.analysis.step_times import Course, RankTime, RoundTime
from stash.core.formatting import bits_parts, listed, parts, plus_minus
from stash.core.ladder import stall_names
from stash.core.records.profile import Profile
from stash.core.units import Scale, counted, format_bits, format_bytes, format_rate
from stash.ui.charts.chart import (
    Axis,
    Blank,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Lane,
    Legend,
    Tick,
    Trail,
    Whisker,
    axis,
    centre,
    extent,
    logarithmic,
    plain_axis,
    time_scale,
    whisker,
)

# Measuring -------------------------------------------------------------------------------------------------
# How a profile was measured, drawn: every block of every round, and the ranks beside each other.

_TREND_NEEDS = 6
"""Rounds, as ``base.stats.rounds.drift`` does."""
_MAX_LANES = 32
"""Ranks that have a row each; of more, every rung has one."""
_MAX_TOLD = 1000
"""Dots that say what they are when pointed at: with more, nobody can point at one."""


def rounds(course: Course, rungs: Sequence[str]) -> Chart:
    """A dot for what a step took under each rung in each round, hollow where the round was dropped."""
    series = dict(zip(rungs, stall_names(rungs), strict=True))
    y, beyond = _heights(course)
    scale = time_scale(y.high)
    numbers = [time.round + 1 for time in course.times]
    x = Extent(min(numbers) - 0.5, max(numbers) + 0.5)
    marks: list[Drawn] = []
    for name in rungs:
        times = [time for time in course.times if time.rung == name]
        kept = [time for time in times if time.round not in course.dropped]
        if len(kept) > 1:
            marks.append(Trail(tuple((x.at(t.round + 1), y.at(t.step_seconds)) for t in kept), series[name]))
        for time in times:
            marks += _dot(time, course, x, y, series[name], len(course.times) <= _MAX_TOLD)
    return Chart(
        name="rounds",
        title="Round after round",
        caption=_course_in_words(course, beyond, scale),
        how=_how(course),
        x=_round_axis(x),
        y=plain_axis(y, f"{scale.unit} of a step", scale.size),
        marks=tuple(marks),
        keys=tuple(Legend(series[name], name) for name in rungs),
        table=Grid(
            title="Every block",
            first="round",
            head=("rung", f"step, {scale.unit}", "fastest rank", "slowest rank", "ranks", "dropped"),
            rows=tuple(
                (
                    str(t.round + 1), t.rung, scale.number(t.step_seconds), scale.number(t.fastest_seconds),
                    scale.number(t.slowest_seconds), str(t.ranks), _dropped(t.round, course),
                )
                for t in course.times
            ),
            texts=frozenset({1, 6}),
        ),
    )  # fmt: skip


def _dot(time: RoundTime, course: Course, x: Extent, y: Extent, series: str, told: bool) -> list[Drawn]:
    at = x.at(time.round + 1)
    found: list[Drawn] = []
    if time.ranks > 1:
        low, high = (_within(end) for end in y.span(time.fastest_seconds, time.slowest_seconds))
        found.append(Whisker((at, at), (low, high), series))
    gone = _dropped(time.round, course)
    scale = time_scale(time.step_seconds)
    says = f"round {time.round + 1}, {time.rung}: {scale.text(time.step_seconds)}{f', {gone}' if gone else ''}"
    return [*found, Dot(at, _within(y.at(time.step_seconds)), series, says if told else "", hollow=bool(gone))]


def _within(place: float) -> float:
    """The place of a dropped round's block: at the axis' edge if it is beyond."""
    return min(1.0, max(0.0, place))


def _dropped(number: int, course: Course) -> str:
    return "disturbed" if number in course.disturbed else "incomplete" if number in course.incomplete else ""


def _round_axis(x: Extent) -> Axis:
    first, last = round(x.low + 0.5), round(x.high - 0.5)
    every = max(1, round((last - first) / 12))
    return Axis("round", tuple(Tick(x.at(number), str(number)) for number in range(first, last + 1, every)))


def _heights(course: Course) -> tuple[Extent, list[RoundTime]]:
    """The axis of the rounds that count, and the blocks of dropped ones that lie beyond it."""
    counted = [time for time in course.times if time.round not in course.dropped] or list(course.times)
    y = extent([end for time in counted for end in (time.fastest_seconds, time.slowest_seconds)], zero=False)
    return y, [time for time in course.times if not y.low <= time.step_seconds <= y.high]


def _how(course: Course) -> str:
    text = "What a step took under every rung, block by block."
    if any(time.ranks > 1 for time in course.times):
        text += " Upright lines reach from the fastest rank to the slowest."
    return f"{text} Hollow dots are of dropped rounds." if course.dropped else text


def _course_in_words(course: Course, beyond: Sequence[RoundTime], scale: Scale) -> str:
    complete = len({time.round for time in course.times}) - len(course.incomplete)
    if course.drift is not None:
        text = f"The step changed by {course.drift:+.1%} from the first round to the last."
    elif complete < _TREND_NEEDS:
        text = f"Of {counted(complete, 'complete round')} no trend can be told."
    else:
        text = "No drift of the step is shown."
    gone = [f"{len(numbers)} {word}" for numbers, word in
            ((course.disturbed, "disturbed"), (course.incomplete, "incomplete")) if numbers]  # fmt: skip
    if gone:
        text += f" Dropped rounds: {listed(gone)}."
    if beyond:
        worst = max(beyond, key=lambda time: time.step_seconds)
        text += f" Of those {len(beyond)} blocks lie beyond the axis, at whose edge they stand: {worst.rung} took "
        text += f"{scale.text(worst.step_seconds)}."
    return text


def ranks(breakdown: Breakdown, times: Sequence[RankTime], profile: Profile) -> Chart | Blank:
    """The ranks' steps under every rung that all of them climb: a row each, or of very many a row for each rung."""
    title = "Ranks side by side"
    shared = [name for name in breakdown.rungs if sum(time.rung == name for time in times) > 1]
    if profile.world_size == 1 or not shared:
        why = "the job has one rank" if profile.world_size == 1 else "no rung was climbed by all ranks"
        return Blank("ranks", title, why)
    series = dict(zip(breakdown.rungs, stall_names(breakdown.rungs), strict=True))
    found = [time for time in times if time.rung in shared]
    scale = time_scale(breakdown.step_seconds)
    x = extent([end for time in found for end in (time.time.value, time.time.low, time.time.high)], zero=False)
    names = _rank_names(profile)
    many = len(names) > _MAX_LANES
    rows = shared if many else list(names.values())
    place = {name: number for number, name in enumerate(rows)}
    marks: list[Drawn] = []
    for time in found:
        y = centre(place[time.rung if many else names[time.rank]], len(rows))
        if not many:
            marks += whisker(x, time.time.low, time.time.high, y, series[time.rung])
        says = f"{names[time.rank]}, {time.rung}: {scale.number(time.time.value)} {scale.unit}"
        told = says if len(found) <= _MAX_TOLD else ""
        marks.append(Dot(x.at(time.time.value), y, series[time.rung], told))
    slow = breakdown.slow_rank
    seen = f"Rank {slow.rank} is {slower(slow)}." if slow is not None else "No rank stands out from the others."
    return Chart(
        name="ranks",
        title=title,
        caption=seen,
        how="What a step takes each rank by its own clock: means over rounds, with 95% intervals.",
        x=plain_axis(x, f"{scale.unit} of a step", scale.size),
        marks=tuple(marks),
        lanes=tuple(Lane(name) for name in rows),
        keys=tuple(Legend(series[name], name) for name in shared),
        table=_ranks_table(found, names, shared, scale),
    )


def _ranks_table(found: Sequence[RankTime], names: Mapping[int, str], shared: Sequence[str], scale: Scale) -> Grid:
    by = {(time.rank, time.rung): time.time for time in found}
    cells = (
        (name, *(f"{scale.number(by[rank, each].value)} {plus_minus(by[rank, each], scale)}" if (rank, each) in by
                 else "unknown" for each in shared))
        for rank, name in names.items()
    )  # fmt: skip
    return Grid(
        title=f"Steps of each rank, {scale.unit}",
        first="rank",
        head=tuple(shared),
        rows=tuple(cells),
        texts=frozenset({0}),
    )


def _rank_names(profile: Profile) -> dict[int, str]:
    several = profile.nodes > 1
    ordered = sorted(profile.ranks, key=lambda rank: rank.rank)
    return {rank.rank: f"rank {rank.rank}{f', node {rank.node}' if several else ''}" for rank in ordered}


# Linking ---------------------------------------------------------------------------------------------------
# What a machine's links carry, drawn: every group's rate beside the catalog's, and all-reduce by message size.

_CURVES = ("contention", "network", "compute", "prep", "interconnect", "fetch", "transfer")
"""Colours that curves take in turn."""


def links(reading: Reading, several: bool) -> Chart | Blank:
    """A row for each group of links, of all machines: its members' rates, on one logarithmic axis."""
    title = "What the links carry"
    groups: dict[str, list[Link]] = {}
    for link in reading.links:
        if link.unit == "bytes/s" and link.rate.value > 0:
            groups.setdefault(link.group, []).append(link)
    if not groups:
        return Blank("links", title, "no link was measured")
    ends = ((link.rate.value, link.rate.low, link.rate.high) for members in groups.values() for link in members)
    x = logarithmic([end for each in ends for end in each if end is not None])
    marks: list[Drawn] = []
    lanes = []
    for number, (name, members) in enumerate(groups.items()):
        y = centre(number, len(groups))
        for link in members:
            low, high = link.rate.low, link.rate.high
            if low is not None and low > 0:
                marks += whisker(x, low, high, y, "plain")
            says = f"{name}, {_which(link, several)}: {_rate(link)}"
            marks.append(Dot(x.at(link.rate.value), y, "contention", says))
        slowest = min(members, key=lambda link: link.rate.value)
        lanes.append(Lane(name, _rate(slowest)))
    rows = tuple((name, _which(link, several), *_cells(link)) for name, members in groups.items() for link in members)
    return Chart(
        name="links",
        title=title,
        caption="",
        how="Each dot is a link, with its 95% interval; beside a row stands the slowest one's rate. The axis is "
        "logarithmic: from line to line it is ten times as much.",
        x=axis(x, "bytes a second", format_rate),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid("Every measured link", ("link", "rate", "95%"), rows, frozenset({0, 1}), first="group"),
    )


def _which(link: Link, several: bool) -> str:
    return ", ".join(part for part in (link.hostname if several else "", link.member) if part) or "the only one"


def _cells(link: Link) -> tuple[str, str]:
    return bits_parts(link.rate) if link.part == "streams" else parts(link.rate, link.unit)


def _rate(link: Link) -> str:
    return " ".join(_cells(link))


def all_reduce(curves: Sequence[Curve]) -> Chart | Blank:
    """Bus bandwidth against message size, both logarithmic; a line for each exchange that was measured."""
    title = "All-reduce, by message size"
    known = [curve for curve in curves if curve.sizes]
    if not known:
        return Blank("all-reduce", title, "no exchange was measured")
    x = logarithmic([float(size.bytes) for curve in known for size in curve.sizes])
    rates = [size.bus_bytes_per_second for curve in known for size in curve.sizes]
    y = logarithmic([8 * end for rate in rates for end in (rate.value, rate.low, rate.high) if end is not None])
    marks: list[Drawn] = []
    keys, rows = [], []
    for number, curve in enumerate(known):
        series = _CURVES[number % len(_CURVES)]
        where = f"across {curve.nodes} nodes" if curve.nodes > 1 else f"inside {curve.hostname}"
        name = f"{curve.backend}, {curve.ranks} ranks {where}"
        keys.append(Legend(series, name))
        points = [(x.at(size.bytes), y.at(8 * size.bus_bytes_per_second.value)) for size in curve.sizes]
        marks.append(Trail(tuple(points), series))
        for size, (across, up) in zip(curve.sizes, points, strict=True):
            bus = size.bus_bytes_per_second
            if bus.low is not None and bus.high is not None and bus.low > 0:
                marks.append(Whisker((across, across), y.span(8 * bus.low, 8 * bus.high), series))
            says = f"{name}: {format_bytes(size.bytes)} at {format_bits(bus.value)}"
            marks.append(Dot(across, up, series, says))
            rows.append((name, format_bytes(size.bytes), *parts(size.seconds, "seconds"), format_bits(bus.value)))
    return Chart(
        name="all-reduce",
        title=title,
        caption="",
        how="Bus bandwidth as nccl-tests defines it: payload / time × 2(p−1)/p for p ranks, with 95% intervals.",
        x=axis(x, "message", format_bytes),
        y=axis(y, "bus bandwidth", lambda bits: format_bits(bits / 8)),
        marks=tuple(marks),
        keys=tuple(keys),
        table=Grid(title, ("message", "time", "95%", "bus bandwidth"), tuple(rows), frozenset({0}), first="exchange"),
    )
