"""The recording of a terminal: what the screen showed is drawn, in its turn, and nothing of it is markup."""

from __future__ import annotations

import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.docs.recording import COLUMNS, MOST_FRAMES, SHOWN, Frame, drawing, recorded, thinned

SVG = "{http://www.w3.org/2000/svg}"


def frames_of(program: str) -> list[tuple[float, Frame]]:
    return list(recorded([sys.executable, "-c", program], Path.cwd()))


def text_of(frame: Frame) -> list[str]:
    lines = ["".join(cell.data for cell in row).rstrip() for row in frame]
    return [line for line in lines if line]


def test_each_state_of_the_screen_is_recorded_once() -> None:
    wait = "flush=True); time.sleep(0.5)"
    program = f"import time; print('one', end='\\r', {wait}; print('two', end='\\r', {wait}; print('three')"
    shown = [text_of(frame) for _, frame in frames_of(program)]
    assert [line for line in shown if line] == [["one"], ["two"], ["three"]]


def test_a_command_that_fails_makes_no_recording() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        frames_of("raise SystemExit(3)")


def test_frames_are_thinned_evenly_and_the_last_stays() -> None:
    blank = frames_of("print()")[0][1]
    screens = [
        (float(second), (*blank[:-1], tuple(cell._replace(data=chr(65 + second)) for cell in blank[0])))
        for second in range(26)
    ]
    kept = [frame[-1][0].data for frame in thinned(screens)]
    assert len(kept) == MOST_FRAMES
    assert kept[:3] == ["C", "E", "G"]  # at 25/12, 50/12 and 75/12 seconds
    assert kept[-1] == "Z"


def test_every_frame_is_drawn_with_its_colours() -> None:
    program = f"print('\\x1b[32mgreen\\x1b[0m <b>&'); print('\\n' * {SHOWN} + 'below')"
    last = frames_of(program)[-1][1]
    command = shlex.join(["stash", "profile", "a<b.py"])
    root = ET.fromstring(drawing(command, [last, last]))
    groups = root.findall(f"{SVG}g")
    assert [group.get("id") for group in groups] == ["f0", "f1"]
    words = [(text.text, text.get("fill")) for text in groups[1].findall(f"{SVG}text")]
    assert words[0] == ("green", "#8fbf72")
    assert (words[1][0] or "").strip() == "<b>&"
    assert words[-1][0] == "…"
    assert all(len(text.text or "") <= COLUMNS for text in root.iter(f"{SVG}text"))
