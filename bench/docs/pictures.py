"""The pictures of the documentation, drawn again: ``python -m bench.docs.pictures`` writes docs/pictures/*.svg.

Most are charts of the product's own report, of the profiles in docs/. The one idea, a step's ladder inside a run's
ledger, and what a terminal shows are drawn here. Screenshots (``report-*.png``) and the recording are not.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup
from typer.testing import CliRunner

import stash
from stash.analysis.breakdown import Breakdown
from stash.analysis.run_account import RunRow
from stash.cli.main import app
from stash.core.units import format_seconds
from stash.ui.charts.builders import BarPiece, LaneRow, lane_chart, lanes_ruler
from stash.ui.charts.chart import INK, LIGHT, MUTED, Grid
from stash.ui.charts.chart_files import render_chart
from stash.ui.elements import element

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs/pictures"
TRAIN = "docs/pictures/train.stash.json"
SQUEEZENET = "docs/pictures/squeezenet1_0.stash.json"
TESTBED = "bench/predict/data/testbed/2-x-{}-4-MiB.stash.json"
MOST_BYTES = 60_000
CHARTS = {
    "tutorial": ("report docs/profiles/resnet18.stash.json --format svg", "ladder"),
    "pipeline": ("report docs/profiles/pipeline.stash.json --format svg", "ladder"),
    "watch": ("report docs/profiles/train.watch.jsonl --format svg", "course"),
    "compare": (
        f"report {TESTBED.format('100mbit')} {TESTBED.format('1600mbit')} --format svg",
        "runs",
    ),
    "sweep": ("whatif docs/profiles/resnet50.stash.json --sweep nodes=1..64", "sweep"),
    **{name: (f"report {SQUEEZENET} --format svg", name) for name in ("ladder", "ranks")},
}
"""Pictures that commands draw: what is typed, and which of the files it writes."""
_FONT_FACE = re.compile(r"@font-face\{[^}]*\}")
"""Thirty kilobytes that a page's own fonts stand in for."""
_SANS, _MONO = (
    "Roboto, Helvetica, Arial, sans-serif",
    "DejaVu Sans Mono, Menlo, Consolas, monospace",
)


def draw_chart(command: str, name: str) -> str:
    """Run a command that writes charts, and read the one of this name."""
    with tempfile.TemporaryDirectory() as folder:
        to = f"{folder}/{name}.svg" if command.startswith("whatif") else f"{folder}/"
        words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in command.split()]
        result = CliRunner().invoke(app, [*words, "-o", to])
        if result.exit_code:
            raise SystemExit(f"stash {command}: {result.output}")
        return _FONT_FACE.sub("", (Path(folder) / f"{name}.svg").read_text())


def draw_epoch(breakdown: Breakdown) -> str:
    """The ledger of an epoch, row by row."""
    assert breakdown.run is not None
    rows, reached = [], 0.0
    for row in breakdown.run.rows:
        if row.time is not None and row.share is not None and row.share >= 0.001:
            piece = BarPiece(reached, reached + row.time.value, _series_of(row), row.name)
            rows.append(
                LaneRow(row.name, f"{format_seconds(row.time.value)} · {row.share:.1%}", (piece,))
            )
            reached += row.time.value
    rows.append(
        LaneRow("epoch", format_seconds(reached), (BarPiece(0.0, reached, "plain", "epoch"),))
    )
    across = lanes_ruler(rows, "ms of a step", 1e-3)
    drawn = render_chart(
        lane_chart("epoch", "An epoch, row by row", rows, across, Grid("", (), (), frozenset())),
        "svg",
        170,
    )
    assert isinstance(drawn, str)
    return _FONT_FACE.sub("", drawn)


def _series_of(row: RunRow) -> str:
    return {"epoch start": "start"}.get(row.name, row.name if row.name in LIGHT else "plain")


def draw_terminal(command: str, end: str) -> str:
    """What a command prints, down to the line that begins with ``end``, as a terminal of 80 columns shows it."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, command.split()[1:])
    shown = result.output.partition(f"\n{end}")[0].rstrip().splitlines()
    lines = [f"$ {command}", "", *shown]
    wide, high, top = 7.8, 18.0, 26.0
    width, height = 80 * wide + 32, len(lines) * high + top + 8
    texts = [
        element(
            "text",
            line.replace(" ", "\u00a0"),
            x=16,
            y=top + number * high,
            textLength=len(line) * wide,
            fill="#9cdcfe" if number == 0 else "#e6e6e6",
        )
        for number, line in enumerate(lines)
        if line
    ]
    ground = element("rect", width=width, height=height, rx=8, fill="#1e2430")
    group = element("g", *texts, font_family=_MONO, font_size=13)
    return _wrap(width, height, f"Terminal: {command}", (ground, group))


def _wrap(width: float, height: float, label: str, inside: Sequence[str]) -> str:
    return str(
        element(
            "svg",
            *inside,
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            aria_label=label,
            viewBox=f"0 0 {width:g} {height:g}",
            width=width,
            height=height,
        )
    )


LEFT, RIGHT = 24.0, 736.0
EPOCH = (
    ("start", "epoch start", 0.0, 0.16),
    ("compute", "100 steps", 0.16, 0.74),
    ("evaluation", "evaluation", 0.74, 0.87),
    ("checkpoint", "checkpoint", 0.87, 1.0),
)
"""Of the ledger's bar: series, words, and where each part begins and ends. Not to any job's scale."""
RUNGS = (
    ("compute", "one device, a batch already on it", "compute", 0.46),
    ("transfer", "+ the batch copied to the device", "transfer", 0.52),
    ("contention", "+ all devices at once", "contention", 0.57),
    ("interconnect", "+ gradients exchanged in the node", "interconnect", 0.68),
    ("network", "+ and between nodes", "network", 0.80),
    ("prep", "+ real batches, files in memory", "prep", 0.92),
    ("fetch", "+ files read from disk", "fetch", 1.0),
)
"""Of the ladder: series, what the rung adds, what the stall is called, and how long the step is by then."""


def draw_idea() -> str:
    """The ledger of an epoch, and below it one of its steps on the ladder: what Stash is."""
    width, foot = 760.0, 412.0
    parts: list[Markup] = [element("rect", width=width, height=foot, rx=10, fill="#ffffff")]
    parts.append(
        _words(LEFT, 30, "A run's ledger: every second has one row", size=15, weight="bold")
    )
    for series, words, start, end in EPOCH:
        x, wide = _across(start), _across(end) - _across(start)
        parts.append(
            element("rect", x=x, y=44, width=wide - 2, height=34, rx=3, fill=LIGHT[series])
        )
        parts.append(_words(x + wide / 2 - 1, 66, words, fill="#ffffff", anchor="middle"))
    one = _across(0.7)
    parts.append(
        element("rect", x=one - 4, y=44, width=8, height=34, fill="#ffffff", fill_opacity=0.6)
    )
    corners = f"{one - 4:g},78 {one + 4:g},78 {RIGHT:g},138 {_step(0.0):g},138"
    parts.append(element("polygon", points=corners, fill=LIGHT["compute"], fill_opacity=0.15))
    parts.append(_words(LEFT, 116, "One step, on the ladder:", size=15, weight="bold"))
    parts.append(_words(LEFT, 134, "each rung adds one thing"))
    top, high, reached = 146.0, 30.0, 0.0
    for number, (series, adds, stall, end) in enumerate(RUNGS):
        y = top + number * high
        x, wide = _step(reached), _step(end) - _step(reached)
        parts.append(_words(LEFT, y + 16, adds))
        if reached:
            parts.append(
                element("rect", x=_step(0.0), y=y, width=x - _step(0.0), height=22, fill="#eef0f4")
            )
        parts.append(element("rect", x=x, y=y, width=wide, height=22, rx=3, fill=LIGHT[series]))
        beside, anchor = (x + wide / 2, "middle") if number == 0 else (x - 8, "end")
        parts.append(
            _words(beside, y + 16, stall, fill="#ffffff" if number == 0 else INK, anchor=anchor)
        )
        reached = end
    y = top + len(RUNGS) * high + 6
    parts.append(element("line", x1=_step(0.0), x2=_step(1.0), y1=y - 4, y2=y - 4, stroke=MUTED))
    parts.append(_words(LEFT, y + 16, "the step: the sum, exactly", weight="bold"))
    reached = 0.0
    for series, _, _, end in RUNGS:
        wide = _step(end) - _step(reached)
        parts.append(
            element("rect", x=_step(reached), y=y, width=wide, height=22, fill=LIGHT[series])
        )
        reached = end
    label = "The ledger of an epoch: its start, its steps, evaluation, checkpoint; below, one step as a ladder"
    return _wrap(width, foot, label, parts)


def _words(
    x: float,
    y: float,
    text: str,
    size: float = 13,
    weight: str = "",
    fill: str = INK,
    anchor: str = "",
) -> Markup:
    attributes = {
        "font_family": _SANS,
        "font_size": size,
        "font_weight": weight,
        "text_anchor": anchor,
    }
    return element("text", text, x=x, y=y, fill=fill, **attributes)


def _across(fraction: float) -> float:
    return LEFT + fraction * (RIGHT - LEFT)


def _step(fraction: float) -> float:
    return 270.0 + fraction * (RIGHT - 270.0)


def list_pictures() -> dict[str, Callable[[], str]]:
    """Every picture that is drawn, by its file's name."""
    charts = {name: lambda found=found: draw_chart(*found) for name, found in CHARTS.items()}
    return {
        "idea": draw_idea,
        "epoch": lambda: draw_epoch(stash.attribute(stash.load(ROOT / TRAIN))),
        "fix": lambda: draw_terminal("stash show docs/profiles/train.fix.json", "  1 launch"),
        **charts,
    }


def main() -> None:
    for name, draw in list_pictures().items():
        drawn = draw()
        assert len(drawn.encode()) <= MOST_BYTES, f"{name} has {len(drawn):,} characters"
        (PICTURES / f"{name}.svg").write_text(drawn)
        print(f"{name}.svg  {len(drawn):,}")


if __name__ == "__main__":
    main()
