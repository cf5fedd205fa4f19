"""The paper's figures of a study: a chart of stalls for each workload; its four stalls, time and cost as matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.core.formatting import format_dollars, format_span
from stash.core.ladder import STALLS
from stash.core.units import format_seconds
from stash.study.overview import missing_word
from stash.study.results import NetworkTwin, StudyResult, find_twins
from stash.study.status import StudyReading
from stash.ui.charts.builders import BarPiece, Chart, LaneRow, lane_chart, make_ruler
from stash.ui.charts.chart import Grid, Legend

UNKNOWN = "–"
_SPENT = (
    "Of a million samples, with files in the page cache → from storage where both were measured."
)
_FIGURES = {
    "interconnect": (
        "Interconnect stall",
        "What all devices of a node add to the step of one: (T all − T one) / T all.",
    ),
    "network": (
        "Network stall, against one node of the same job",
        "What several nodes add to the step of one node: (T all nodes − T one node) / T one node.",
    ),
    "twin": (
        "Network stall, against one machine with as many of the same GPUs",
        "(T several machines − T one) / T one; 400% is five times slower.",
    ),
    "prep": (
        "Prep stall",
        "What real data from the page cache add to the step: (T warm − T replayed) / T warm.",
    ),
    "fetch": (
        "Fetch stall",
        "What reading them from storage adds to it: (T cold − T warm) / T cold.",
    ),
    "time": ("Time", _SPENT),
    "cost": ("Cost", _SPENT),
}
_SIGNS = "–: unknown there. A point: not part of the study."


def make_matrix(reading: StudyReading, found: Sequence[StudyResult], name: str) -> Grid | str:
    """A row a workload at a batch, a column a place, in each cell the figure's text; where none has any, why."""
    (title, how), singles = _FIGURES[name], find_twins(found)
    known = {
        (each.cell.row_name, each.cell.column_name): text
        for each in found
        if (text := _text(each, name, singles))
    }
    if not known:
        reasons = dict.fromkeys(
            each.why_unknown[name] for each in found if name in each.why_unknown
        )
        return f"{title}: {'; '.join(reasons) or 'no cell that is done has it'}."
    cells = sorted(reading.cells, key=lambda cell: cell.size_order)
    done = {(each.cell.row_name, each.cell.column_name): UNKNOWN for each in found}
    texts = (
        {
            (cell.row_name, cell.column_name): missing_word(reading.standings[cell.id].state)
            for cell in cells
        }
        | done
        | known
    )
    shown = {column for (_, column), text in texts.items() if text != UNKNOWN}
    columns = tuple(
        dict.fromkeys(cell.column_name for cell in reading.cells if cell.column_name in shown)
    )
    rows = dict.fromkeys(cell.row_name for cell in cells)
    lines = tuple((row, *(texts.get((row, column), ".") for column in columns)) for row in rows)
    return Grid(title, columns, lines, frozenset({0}), f"{how} {_SIGNS}", first="workload")


def _text(result: StudyResult, name: str, singles: Mapping[str, NetworkTwin]) -> str | None:
    if name in ("time", "cost"):
        whole = result.seconds_per_million if name == "time" else result.dollars_per_million
        write = format_span if name == "time" else format_dollars
        if whole is None or "prep" not in result.seconds or "fetch" not in result.seconds:
            return None if whole is None else write(whole)
        return f"{write(whole * result.warm_seconds / result.step.value)} → {write(whole)}"
    if name == "twin":
        twin = singles.get(result.cell.id)
        return None if twin is None else f"{twin.share:.0%} of {twin.one.cell.column_name}"
    if name not in result.paper:
        return None
    # stalls in the paper's difference
    held = ("contention", "interconnect") if name == "interconnect" else (name,)
    return f"{result.paper[name]:.0f}% {format_seconds(sum(result.seconds.get(each, 0.0) for each in held))}"


def draw_stalls(found: Sequence[StudyResult]) -> tuple[Chart, ...]:
    """Each workload's steps as bars of their stalls, a row for each place and batch."""
    present = [stall for stall in STALLS if any(stall in each.shares for each in found)]
    charts: list[Chart] = []
    for workload in dict.fromkeys(each.cell.workload for each in found):
        own = [each for each in found if each.cell.workload == workload]
        title = f"Stalls of {workload}"
        names = [f"{each.cell.column_name} {each.cell.batch or ''}".strip() for each in own]
        rows = tuple(
            (name, *write_shares(each, present)) for name, each in zip(names, own, strict=True)
        )
        charts.append(
            lane_chart(
                f"stalls-{len(charts) + 1}",
                title,
                [_row(name, each) for name, each in zip(names, own, strict=True)],
                make_ruler([0.0, 1.0], "% of the step", 0.01),
                Grid(title, tuple(present), rows, frozenset({0}), first="place and batch"),
                keys=[Legend(stall, stall) for stall in present],
            )
        )
    return tuple(charts)


def write_shares(result: StudyResult, present: Sequence[str]) -> tuple[str, ...]:
    """Each stall's share of the step, in words."""
    return tuple(
        f"{result.shares[stall]:.1%}" if stall in result.shares else UNKNOWN for stall in present
    )


def _row(name: str, result: StudyResult) -> LaneRow:
    """What is measured as negative has no place in it."""
    pieces = []
    reached = 0.0
    for stall, share in result.shares.items():
        if share > 0:
            pieces.append(
                BarPiece(
                    reached, reached + share, stall, f"{name}: {stall} {share:.1%} of the step"
                )
            )
            reached += share
    return LaneRow(name, format_seconds(result.step.value), tuple(pieces))
