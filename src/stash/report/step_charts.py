"""Charts of a step and of how it was measured: the ladder, runs and ranks side by side, every block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stash.analysis.breakdown import Breakdown
from stash.analysis.bubble import PlayedPass, PlayedStep, typical_step
from stash.analysis.seen import HANDED_ON
from stash.analysis.step_figures import figures, slower
from stash.analysis.step_times import Course, RankTime, RoundTime
from stash.core.formatting import plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import BUBBLE, STALLS, stall_names
from stash.core.records.profile import Profile
from stash.core.units import Scale, counted
from stash.report.profile_page import UNKNOWN, WORTH_SAYING, table_rows, unknown_stalls
from stash.ui.charts.builders import (
    BarPiece,
    LaneRow,
    PlotCurve,
    PlotPoint,
    Ruler,
    Value,
    lane_chart,
    lanes_ruler,
    plane_chart,
    ruler,
)
from stash.ui.charts.chart import Axis, Blank, Chart, Extent, Grid, Legend, Tick, time_scale
from stash.ui.page import Row

# The step as a ladder: a stall below zero goes back, one within the noise is faint.


def ladder(breakdown: Breakdown) -> Chart:
    """A row for each stall that the job can have, known or not, and one for the step."""
    scale, step = figures(breakdown.stalls).scale, breakdown.step
    texts, total = table_rows(breakdown.stalls, breakdown.skipped, step)
    known = {stall.name: stall for stall in breakdown.stalls}
    rows, reached = [], 0.0
    for row in texts:
        stall = known.get(row.name)
        if stall is None:
            rows.append(LaneRow(row.name, unknown=row.why or ""))
            continue
        tip = f"{row.name}: {row.time} {row.interval}, {row.share} of the step"
        low, high = (None if end is None else reached + end for end in (stall.low, stall.high))
        piece = BarPiece(reached, reached + stall.seconds, row.name, tip, faint=row.within_noise)
        rows.append(LaneRow(row.name, _end(row), (piece,), low, high))
        reached += stall.seconds
    piece = BarPiece(0.0, breakdown.step_seconds, "plain", f"step: {total.time} {total.interval}")
    rows.append(LaneRow(total.name, f"{total.time} {total.interval}".strip(), (piece,), step.low, step.high))
    how = (
        "Each bar begins where the one before ends, so together they are the step. Thin lines are 95% intervals; a "
        "faint bar is within the noise."
    )
    across = lanes_ruler(rows, f"{scale.unit} of a step", scale.size)
    return lane_chart("ladder", "The step, stall by stall", rows, across, _ladder_table(breakdown, scale), how)


def _end(row: Row) -> str:
    return " · ".join(part for part in (f"{row.time} {row.interval}".strip(), row.share) if part)


def _ladder_table(breakdown: Breakdown, scale: Scale) -> Grid:
    written, step = figures(breakdown.stalls), breakdown.step

    def number(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else scale.number(seconds)

    found: dict[str, tuple[str, ...]] = {
        stall.name: (
            stall.name, f"{written.times[stall.name]:,.{scale.decimals}f}", number(stall.low), number(stall.high),
            written.share(stall.name), "within noise" if stall.within_noise else "",
        )
        for stall in breakdown.stalls
    }  # fmt: skip
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
        written, pieces, reached = figures(run.stalls), [], 0.0
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
        return UNKNOWN if stall is None else f"{scale.number(stall.seconds)} {plus_minus(stall.time, scale)}"

    table = tuple(
        (name, scale.number(run.step_seconds), plus_minus(run.step, scale), *(cell(run, each) for each in present))
        for name, run in runs
    )
    head = (f"step, {scale.unit}", "95%", *present)
    return lane_chart(
        "runs", "The runs, side by side", rows, lanes_ruler(rows, f"{scale.unit} of a step", scale.size),
        Grid("Steps and stalls of the runs", head, table, frozenset({0}), first="run"),
        how="One step of each run, made of its stalls; thin lines are the 95% intervals of the steps.",
        keys=[Legend(name, name) for name in present],
    )  # fmt: skip


# How a profile was measured: every block of every round, and the ranks side by side.

_TREND_NEEDS = 6
"""Rounds, as ``core.rounds.drift`` does."""
_MAX_LANES = 32
"""Ranks that have a row each; of more, every rung has one."""


def rounds(course: Course, rungs: Sequence[str]) -> Chart:
    """A dot for what a step took under each rung in each round, hollow where the round was dropped."""
    series = dict(zip(rungs, stall_names(rungs), strict=True))
    counting = [time for time in course.times if time.round not in course.incomplete] or list(course.times)
    ends = [end for time in counting for end in (time.fastest_seconds, time.slowest_seconds)]
    scale = time_scale(ruler(ends, "", zero=False).shown.high)
    y = ruler(ends, f"{scale.unit} of a step", scale.size, zero=False)
    curves = []
    for name in rungs:
        times = [time for time in course.times if time.rung == name]
        kept = tuple(_block(time, course) for time in times if time.round not in course.incomplete)
        curves.append(PlotCurve(series[name], kept, line=True, dots=False))
        curves.append(PlotCurve(series[name], tuple(_block(time, course) for time in times)))
    beyond = [time for time in course.times if not y.holds(time.step_seconds)]
    text = "What a step took under every rung, block by block."
    if any(time.ranks > 1 for time in course.times):
        text += " Upright lines reach from the fastest rank to the slowest."
    head = ("rung", f"step, {scale.unit}", "fastest rank", "slowest rank", "ranks", "dropped")
    rows = tuple(
        (
            str(t.round + 1), t.rung, scale.number(t.step_seconds), scale.number(t.fastest_seconds),
            scale.number(t.slowest_seconds), str(t.ranks), _dropped(t.round, course),
        )
        for t in course.times
    )  # fmt: skip
    return plane_chart(
        "rounds", "Round after round", curves, rounds_ruler([time.round + 1 for time in course.times]), y,
        Grid("Every block", head, rows, frozenset({1, 6}), first="round"),
        how=f"{text} Hollow dots are of dropped rounds." if course.incomplete else text,
        caption=_course_in_words(course, beyond),
        keys=[Legend(series[name], name) for name in rungs],
    )  # fmt: skip


def _block(time: RoundTime, course: Course) -> PlotPoint:
    low, high = (time.fastest_seconds, time.slowest_seconds) if time.ranks > 1 else (None, None)
    gone, took = _dropped(time.round, course), time_scale(time.step_seconds).text(time.step_seconds)
    tip = f"round {time.round + 1}, {time.rung}: {took}{f', {gone}' if gone else ''}"
    return PlotPoint(time.round + 1, time.step_seconds, tip, low, high, hollow=bool(gone))


def _dropped(number: int, course: Course) -> str:
    return "incomplete" if number in course.incomplete else ""


def rounds_ruler(numbers: Sequence[int]) -> Ruler:
    """An axis of rounds, about a dozen of them labelled."""
    first, last = min(numbers), max(numbers)
    shown = Extent(first - 0.5, last + 0.5)
    ticks = range(first, last + 1, max(1, round((last - first) / 12)))
    return Ruler(shown, Axis("round", tuple(Tick(shown.at(number), str(number)) for number in ticks)))


def _course_in_words(course: Course, beyond: Sequence[RoundTime]) -> str:
    complete = len({time.round for time in course.times}) - len(course.incomplete)
    if course.drift is not None:
        text = f"The step changed by {course.drift:+.1%} from the first round to the last."
    elif complete < _TREND_NEEDS:
        text = f"{counted(complete, 'complete round')}: too few to see a trend."
    else:
        text = "No drift of the step is shown."
    if course.incomplete:
        text += f" Dropped rounds: {len(course.incomplete)} incomplete."
    if beyond:
        worst = max(beyond, key=lambda time: time.step_seconds)
        took = time_scale(worst.step_seconds).text(worst.step_seconds)
        text += f" Of those {len(beyond)} blocks lie beyond the axis, at whose edge they stand: {worst.rung} took "
        text += f"{took}."
    return text


def ranks(breakdown: Breakdown, times: Sequence[RankTime], profile: Profile) -> Chart | Blank:
    """The ranks' steps under every rung that all of them ran: a row each, or of very many a row for each rung."""
    title = "Ranks side by side"
    shared = [name for name in breakdown.rungs if sum(time.rung == name for time in times) > 1]
    if profile.world_size == 1 or not shared:
        return Blank("ranks", title, "no rung was run by several ranks")
    series = dict(zip(breakdown.rungs, stall_names(breakdown.rungs), strict=True))
    scale = time_scale(breakdown.step_seconds)
    ordered = sorted(profile.ranks, key=lambda rank: rank.rank)
    names = {each.rank: f"rank {each.rank}{f', node {each.node}' if profile.nodes > 1 else ''}" for each in ordered}
    many = len(names) > _MAX_LANES
    lanes: dict[str, list[Value]] = {name: [] for name in (shared if many else names.values())}
    for each in (time for time in times if time.rung in shared):
        time, name = each.time, names[each.rank]
        tip = f"{name}, {each.rung}: {scale.number(time.value)} {scale.unit}"
        low, high = (None, None) if many else (time.low, time.high)
        lanes[each.rung if many else name].append(Value(time.value, series[each.rung], tip, low, high))
    rows = [LaneRow(name, values=tuple(values)) for name, values in lanes.items()]
    slow = breakdown.slow_rank
    across = lanes_ruler(rows, f"{scale.unit} of a step", scale.size, zero=False)
    return lane_chart(
        "ranks", title, rows, across, _ranks_table(times, names, shared, scale),
        how="What a step takes each rank by its own clock: means over rounds, with 95% intervals.",
        caption="No rank stands out from the others." if slow is None else f"Rank {slow.rank} is {slower(slow)}.",
        keys=[Legend(series[name], name) for name in shared],
    )  # fmt: skip


def _ranks_table(found: Sequence[RankTime], names: Mapping[int, str], shared: Sequence[str], scale: Scale) -> Grid:
    by = {(time.rank, time.rung): time.time for time in found}
    rows = tuple(
        (name, *(f"{scale.number(by[rank, each].value)} {plus_minus(by[rank, each], scale)}" if (rank, each) in by
                 else UNKNOWN for each in shared))
        for rank, name in names.items()
    )  # fmt: skip
    return Grid(f"Steps of each rank, {scale.unit}", tuple(shared), rows, frozenset({0}), first="rank")


# One step of a pipeline, a row for each rank: its passes where the schedule lets them begin.

_SHADES = {"F": 0.3, "B": 0.9, "I": 0.9, "W": 0.6}
_PASSES = {"F": "forward pass", "B": "backward pass", "I": "gradients of inputs", "W": "gradients of weights"}
_REST = "outside of passes"
_MAX_BOXES = 3000


def stages(breakdown: Breakdown, profile: Profile) -> Chart | Blank:
    """Passes of every microbatch in a typical step, the bubble between them, and at the end what came late.

    Stamps say how long passes take, not when they begin by a clock of all ranks, so each begins as early as it can.
    """
    title, found = "A step of the pipeline", None if breakdown.seen is None else breakdown.seen.bubble
    step = typical_step(profile, breakdown.rungs[0])
    if breakdown.seen is None or found is None or step is None:
        return Blank("stages", title, "no round has the same passes, step after step, of every stage")
    boxes = sum(map(len, step.ranks.values()))
    if boxes > _MAX_BOXES:
        return Blank("stages", title, f"it has {boxes:,} passes, and a drawing shows at most {_MAX_BOXES:,}")
    scale = time_scale(breakdown.step_seconds)
    late = next((each.stall for each in breakdown.seen.waits if each.kind in HANDED_ON), "interconnect")
    rows, table = [], []
    for rank, passes in step.ranks.items():
        held = sorted({each.stage for each in passes if each.stage >= 0})
        name = f"rank {rank}, {'stage' if len(held) == 1 else 'stages'} {', '.join(map(str, held))}"
        pieces = [*_lane(passes, step.seconds, len(held) > 1)]
        if found.late > 0:
            words = "messages that came late, all of the step"
            pieces.append(BarPiece(step.seconds, step.seconds + found.late, late, words))
        for piece in pieces:
            begins, ends = scale.number(piece.start), scale.number(piece.end)
            table.append((name, piece.tip, begins, ends, scale.number(piece.end - piece.start)))
        pieces = [replace(each, tip=f"{name}, {each.tip}: {scale.number(each.end - each.start)} {scale.unit} from "
                                    f"{scale.number(each.start)}") for each in pieces]  # fmt: skip
        rows.append(LaneRow(name, pieces=tuple(pieces)))
    keys = [(BUBBLE, "bubble"), ("plain", _REST), (late, f"{late}: messages that came late")]
    used = {piece.series for row in rows for piece in row.pieces if piece.level is None}
    head = ("what", f"begins, {scale.unit}", "ends", "takes")
    return lane_chart(
        "stages", title, rows, lanes_ruler(rows, f"{scale.unit} of a step", scale.size),
        Grid("What each rank does in the step", head, tuple(table), frozenset({0, 1}), first="rank", filters=(0,)),
        how="Faint boxes are forward passes (F), strong ones backward passes (B; in halves, I for inputs and W for "
        "weights), with the numbers of their microbatches, and of stages where a rank has several.",
        caption=_stages_in_words(step, found.late, breakdown, scale),
        keys=[Legend(name, text) for name, text in keys if name in used],
    )  # fmt: skip


def _lane(passes: Sequence[PlayedPass], seconds: float, several: bool) -> Iterator[BarPiece]:
    """A rank's passes, and the bubble before, between and after them."""
    reached = 0.0
    for each in passes:
        if each.begins > reached + 1e-9:
            yield BarPiece(reached, each.begins, BUBBLE, "bubble")
        if each.stage < 0:
            yield BarPiece(each.begins, each.ends, "plain", _REST)
        else:
            tip = f"{_PASSES[each.kind]} of microbatch {each.batch} through stage {each.stage}"
            short = f"{each.kind}{each.batch}"
            texts = (f"{each.stage}{short}" if several else short, short, str(each.batch))
            yield BarPiece(each.begins, each.ends, "shade", tip, level=_SHADES[each.kind], texts=texts)
        reached = each.ends
    if seconds > reached + 1e-9:
        yield BarPiece(reached, seconds, BUBBLE, "bubble")


def _stages_in_words(step: PlayedStep, late: float, breakdown: Breakdown, scale: Scale) -> str:
    """How it was drawn, and that what is drawn is about what was measured."""
    drawn, stall = step.seconds, breakdown.stall(BUBBLE)
    assert stall is not None, "where it is known it is a row of the ladder"
    idle = drawn - sum(each.ends - each.begins for own in step.ranks.values() for each in own) / len(step.ranks)
    lost = 0.0 if breakdown.disturbed is None else breakdown.disturbed.time.value
    beside = f", and {scale.number(lost)} lost to other work" if lost >= WORTH_SAYING * breakdown.step_seconds else ""

    def measured(seconds: float, time: Interval) -> str:
        return f"measured: {scale.number(seconds)} {plus_minus(time, scale)}".strip()

    text = (
        "Reconstructed from how long passes take (the step of median length): each begins as early as its order and "
        f"messages that take no time allow. It takes {scale.number(drawn + max(0.0, late))} {scale.unit} "
        f"({measured(breakdown.step_seconds, breakdown.step)}{beside}), {scale.number(idle)} of them bubble, mean "
        f"over ranks ({measured(stall.seconds, stall.time)})."
    )
    if late > 0:
        text += " When messages came late is unknown: all of it stands at the end."
    return text if step.pipelines == 1 else f"{text} One pipeline of {step.pipelines}."
