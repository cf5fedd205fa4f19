"""The data pipeline, drawn: how fast devices and loaders are, and where data blocks read from."""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.words.units import format_bytes, format_seconds
from stash.derive.stalls import Breakdown, DataBlock
from stash.derive.stalls.figures import pace
from stash.show.charts.axes import Extent, extent, plain_axis
from stash.show.charts.chart import Axis, Bar, Blank, Chart, Dot, Drawn, Lane, Legend, Tick, band
from stash.show.grid import Grid

_SERIES = {"warm": "prep", "cold": "fetch"}
_UNKNOWN = "unknown"


def rates(breakdown: Breakdown) -> Chart | Blank:
    """DS-Analyzer's three rates: of the devices (G), and of the loaders alone (P and F)."""
    title = "How fast the parts are"
    known = breakdown.rates
    named = (
        ("devices (G)", known.device, "compute", "no replayed rung of all ranks, or samples not counted"),
        ("loaders, files in memory (P)", known.prep, "prep", "the loaders were not measured alone"),
        ("loaders, files on disk (F)", known.fetch, "fetch", "the loaders were not measured alone on cold files"),
    )  # fmt: skip
    if all(rate is None for _, rate, *_ in named):
        return Blank("rates", title, "neither devices nor loaders were measured by themselves")
    speed = breakdown.samples_per_second
    x = extent([*(rate for _, rate, *_ in named), speed])
    marks: list[Drawn] = []
    lanes, rows = [], []
    every = (*named, ("the job, as it runs", speed, "plain", "samples were not counted"))
    for number, (name, rate, series, why) in enumerate(every):
        if rate is None:
            lanes.append(Lane(name, f"{_UNKNOWN}: {why}", quiet=True))
            rows.append((name, _UNKNOWN, why))
            continue
        marks.append(Bar(x.span(0.0, rate), band(number, len(every)), series, f"{name}: {pace(rate)} samples/s"))
        lanes.append(Lane(name, f"{pace(rate)} samples/s"))
        rows.append((name, pace(rate), ""))
    return Chart(
        name="rates",
        title=title,
        caption=_limit(breakdown),
        how="Each part by itself, measured once in this profile; a job is no faster than its slowest part.",
        x=plain_axis(x, "samples/s of the whole job"),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid("Rates", ("samples/s", "remark"), tuple(rows), frozenset({0, 2}), first="part"),
    )


def _limit(breakdown: Breakdown) -> str:
    known = {"devices": breakdown.rates.device, "loaders that prepare": breakdown.rates.prep,
             "loaders that read and prepare": breakdown.rates.fetch}  # fmt: skip
    measured = {name: rate for name, rate in known.items() if rate is not None}
    if len(measured) < 2:
        return ""
    slowest = min(measured, key=lambda name: measured[name])
    return f"Slowest are the {slowest}, with {pace(measured[slowest])} samples/s."


def residency(blocks: Sequence[DataBlock]) -> Chart | Blank:
    """How much of the files was in memory before each data block: the proof that cold was cold and warm was warm."""
    title = "Were cold files cold?"
    if not blocks:
        return Blank("residency", title, "no rung that reads data was climbed")
    seen = [(block, block.resident) for block in blocks if block.resident is not None]
    if not seen:
        return Blank("residency", title, "no block recorded how much of its files was in memory")
    numbers = [block.round + 1 for block in blocks]
    x, y = Extent(min(numbers) - 0.5, max(numbers) + 0.5), Extent(0.0, 1.0)
    marks = tuple(
        Dot(x.at(block.round + 1), y.at(resident), _SERIES[block.rung],
            f"round {block.round + 1}, {block.rung}: {resident:.1%} of the pages in memory")
        for block, resident in seen
    )  # fmt: skip
    every = max(1, round((max(numbers) - min(numbers)) / 12))
    ticks = tuple(Tick(x.at(number), str(number)) for number in range(min(numbers), max(numbers) + 1, every))
    return Chart(
        name="residency",
        title=title,
        caption="",
        how="Pages of the files that were in the page cache just before each block, of the rank that had most. Cold "
        "blocks belong near 0%, warm ones near 100%. Caches below the operating system's are not seen.",
        x=Axis("round", ticks),
        y=Axis("of the files' pages in memory", tuple(Tick(part / 4, f"{25 * part}%") for part in range(5))),
        marks=marks,
        keys=tuple(Legend(_SERIES[name], name) for name in dict.fromkeys(block.rung for block, _ in seen)),
        table=_reading(blocks),
    )


def _reading(blocks: Sequence[DataBlock]) -> Grid:
    return Grid(
        title="What every data block read",
        first="round",
        head=("rung", "in memory before", "fetched from storage, a sample", "files opened, a sample", "step waited"),
        rows=tuple(map(_row, blocks)),
        texts=frozenset({1}),
    )


def _row(block: DataBlock) -> tuple[str, ...]:
    return (
        str(block.round + 1),
        block.rung,
        _UNKNOWN if block.resident is None else f"{block.resident:.1%}",
        _UNKNOWN if block.fetched_bytes is None else format_bytes(block.fetched_bytes),
        _UNKNOWN if block.file_bytes is None else format_bytes(block.file_bytes),
        _UNKNOWN if block.wait_seconds is None else format_seconds(block.wait_seconds),
    )
