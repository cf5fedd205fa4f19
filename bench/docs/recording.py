"""The terminal recording of the README: a real run of ``stash profile train.py``, as a moving drawing.

``python -m bench.docs.recording`` runs the command in a terminal of its own, in a folder with ``recorded/train.py``,
keeps what the screen showed second by second, and writes ``docs/pictures/profile.svg``: pictures of the screen, each
visible in its turn, the last for the longest. It begins with the first table of stalls: until then, while the job
starts and warms up, the screen is all but empty. Time passes faster than it did. Whoever asks for less motion sees
the last one. What that job's stall is to be follows from the job: a sample takes 12 ms to arrive, and a step has
eight.
"""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import pyte

from bench.machine import ROOT

PICTURE = ROOT / "docs" / "pictures" / "profile.svg"
JOB = Path(__file__).parent / "recorded" / "train.py"
COMMAND = "stash profile train.py"
COLUMNS, ROWS, SHOWN = 80, 120, 30
"""The screen is tall, so that nothing scrolls away; of a longer answer the upper part is drawn, and a … says so."""
MOST_FRAMES, SECONDS_A_FRAME, SECONDS_AT_THE_END = 8, 0.8, 12.0
_FILLED_ROWS = 8
"""Of the screen, with the first table."""
_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 16
"""Of a character, and around all of them, in pixels."""
_COLOURS = {
    "default": "#d8dee9", "black": "#4c566a", "red": "#e0606a", "green": "#8fbf72", "brown": "#e5c07b",
    "blue": "#7aa2d8", "magenta": "#b48ead", "cyan": "#7ec4cf", "white": "#eceff4",
}  # fmt: skip
Frame = tuple[tuple[pyte.screens.Char, ...], ...]


def recorded(command: Sequence[str], folder: Path) -> Iterator[tuple[float, Frame]]:
    """What the screen shows while the command runs, whenever it changes: seconds since the start, and its rows."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
    environment |= {"COLORTERM": "truecolor"}
    environment["PATH"] = f"{os.path.dirname(sys.executable)}:{environment['PATH']}"
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as job:
        os.close(theirs)
        begun, shown, going = time.monotonic(), (), True
        while going:
            ready = select.select([ours], [], [], 0.2)[0]
            try:
                output = os.read(ours, 65536) if ready else b""
            except OSError:  # the last one that had the terminal open has closed it
                output, going = b"", False
            going = going and (bool(output) or job.poll() is None)
            stream.feed(output)
            now = tuple(tuple(screen.buffer[row][column] for column in range(COLUMNS)) for row in range(ROWS))
            if now != shown and not (going and select.select([ours], [], [], 0.02)[0]):
                shown = now
                yield time.monotonic() - begun, now
    os.close(ours)
    if job.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {job.returncode}")


def thinned(frames: Sequence[tuple[float, Frame]]) -> list[Frame]:
    """At most ``MOST_FRAMES``, evenly over the time from the first filled screen on, that and the last among them."""
    begin = next((moment for moment, frame in frames if _filled_rows(frame) >= _FILLED_ROWS), 0.0)
    shown, pause = [each for each in frames if each[0] >= begin], (frames[-1][0] - begin) / (MOST_FRAMES - 1)
    wanted = [begin + pause * number for number in range(MOST_FRAMES - 1)]
    kept = [max((each for each in shown if each[0] <= moment), default=shown[0]) for moment in wanted]
    return [frame for frame, _ in groupby([*(frame for _, frame in kept), frames[-1][1]])]


def _filled_rows(frame: Frame) -> int:
    return sum(any(cell.data.strip() for cell in row) for row in frame)


def _row(cells: Sequence[pyte.screens.Char], top: float) -> Iterator[str]:
    left = 0
    for (colour, bold), group in groupby(cells, lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in group)
        if text.strip():
            fill = _COLOURS.get(colour) or f"#{colour}"
            weight = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{_MARGIN + left * _WIDTH:.1f}" y="{top:.0f}" fill="{fill}"{weight}'
                f' textLength="{len(text) * _WIDTH:.1f}">{escape(text)}</text>'
            )
        left += len(text)


def drawing(command: str, frames: Sequence[Frame]) -> str:
    """The frames as one SVG that needs no script and no font of its own."""
    used = 1 + max(number for frame in frames for number, row in enumerate(frame) if any(c.data.strip() for c in row))
    rows = min(used, SHOWN) + 1
    width, height = COLUMNS * _WIDTH + 2 * _MARGIN, (rows + 1) * _HEIGHT + 2 * _MARGIN
    whole = SECONDS_A_FRAME * (len(frames) - 1) + SECONDS_AT_THE_END
    style = ["text{white-space:pre;font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"]
    groups = []
    for number, frame in enumerate(frames):
        begin = 100 * number * SECONDS_A_FRAME / whole
        end = 100 if number == len(frames) - 1 else begin + 100 * SECONDS_A_FRAME / whole
        hidden = f"{end:.2f}%{{visibility:hidden}}" if end < 100 else ""
        style.append(f"@keyframes f{number}{{0%{{visibility:hidden}}{begin:.2f}%{{visibility:visible}}{hidden}}}")
        style.append(f"#f{number}{{visibility:hidden;animation:f{number} {whole:.1f}s step-end infinite}}")
        lines = (line for at, row in enumerate(frame[:SHOWN]) for line in _row(row, _MARGIN + (at + 2) * _HEIGHT))
        cut = any(cell.data.strip() for row in frame[SHOWN:] for cell in row)
        below = f'<text x="{_MARGIN}" y="{_MARGIN + (rows + 1) * _HEIGHT}" fill="{_COLOURS["default"]}">…</text>'
        groups.append(f'<g id="f{number}">' + "\n".join([*lines, *[below] * cut]) + "</g>")
    last = len(frames) - 1
    style.append(f"@media(prefers-reduced-motion){{g{{animation:none!important}}#f{last}{{visibility:visible}}}}")
    prompt = f'<text x="{_MARGIN}" y="{_MARGIN + _HEIGHT - 4}" fill="{_COLOURS["white"]}">$ {escape(command)}</text>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">',
            f"<title>A recording of {escape(command)}</title>",
            f"<style>{''.join(style)}</style>",
            f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#1f2430"/>',
            *(prompt, *groups, "</svg>\n"),
        ]
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(JOB, folder)
        frames = thinned(list(recorded(shlex.split(COMMAND), Path(folder))))
    PICTURE.write_text(drawing(COMMAND, frames), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(frames)} frames, {PICTURE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
