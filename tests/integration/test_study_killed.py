"""A study whose controller is killed at five moments, on emulated devices, ends with an undisturbed one's cells."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import PATIENCE

import stash
from stash.core.artefact import load_probe
from stash.measure.linux.processes import carrying

pytestmark = pytest.mark.slow

MODEL = "layers:\n- {name: only, bytes: 100kB, forward_seconds: 5ms, backward_seconds: 10ms}\n"
STUDY = """
workloads: [{name: net, command: [-m, stash.lab.testbed.train, --model, model.yaml, --batch, "{batch}"]}]
batches: [8, 16, 32]
targets: [{engine: local, devices: 2}]
settings: {budget: 3s, precision: 50, rungs: [solo, crowd]}
"""
WORDS = (sys.executable, "-m", "stash", "characterize", "grid.yaml")


def made(folder: Path) -> Path:
    folder.mkdir()
    (folder / "grid.yaml").write_text(STUDY)
    (folder / "model.yaml").write_text(MODEL)
    return folder


def start(folder: Path) -> subprocess.Popen[str]:
    """A controller, whose cells find each other on loopback."""
    environment = {**os.environ, "STASH_HOME": str(folder / "home"), "NO_COLOR": "1"}
    return subprocess.Popen(
        WORDS, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(controller: subprocess.Popen[str]) -> str:
    said, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 0, said
    return said


def events(folder: Path) -> list[dict[str, object]]:
    journal = folder / "grid.study" / "journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def count(what: str, number: int) -> Callable[[Path], bool]:
    """A moment: the journal has so many of these events."""
    return lambda folder: sum(event["what"] == what for event in events(folder)) >= number


def measuring(number: int) -> Callable[[Path], bool]:
    """A moment: a cell after the so-manieth has shown its first round, or is over."""

    def moment(folder: Path) -> bool:
        logs = (folder / "grid.study" / "cells").glob("*/output.log")
        return sum("round" in log.read_text() for log in logs) > number

    return moment


MOMENTS = {
    "something is about to begin": count("opened", 1),
    "the first cell measures": measuring(0),
    "the first cell is over": count("ended", 1),
    "the second cell begins": count("started", 2),
    "the last cell measures": measuring(2),
}


def cells(folder: Path) -> dict[str, tuple[str, ...]]:
    """Every finished cell by its id, with the rungs of its artefact in the study's folder."""
    done = [str(event["cell"]) for event in events(folder) if event.get("ending") == "done"]
    assert len(done) == len(set(done)), "a finished cell was run again"
    found = {id: stash.load(folder / "grid.study" / "cells" / id / "profile.stash.json") for id in done}
    return {id: profile.settings.rungs for id, profile in found.items()}


def test_a_study_killed_at_five_moments_ends_with_the_cells_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole, killed = made(tmp_path / "whole"), made(tmp_path / "killed")
    ended(start(whole))
    for moment in MOMENTS.values():
        controller = start(killed)
        deadline = time.monotonic() + PATIENCE
        while not moment(killed):
            assert controller.poll() is None, controller.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        controller.send_signal(signal.SIGKILL)
        controller.communicate()
    ended(start(killed))
    assert cells(killed) == cells(whole)
    assert len(cells(whole)) == 3
    kept = [
        sorted(path.name for path in (each / "grid.study" / "results").rglob("*.stash.json"))
        for each in (whole, killed)
    ]
    assert [len(names) for names in kept] == [3, 3]


def test_a_cell_that_dies_with_its_controller_is_measured_anew(tmp_path: Path) -> None:
    folder = made(tmp_path / "study")
    controller = start(folder)
    while not measuring(0)(folder):
        assert controller.poll() is None, controller.communicate()[0]
        time.sleep(0.01)
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    (own,) = (folder / "grid.study" / "cells").iterdir()
    for process in carrying("STASH_CELL", str(own)):  # as a power cut does
        os.kill(process, signal.SIGKILL)
    shutil.rmtree(own)  # and what was written had not reached the disk
    ended(start(folder))
    assert len(cells(folder)) == 3
    assert carrying("STASH_CELL", str(own)) == []


def test_the_machine_is_probed_once_for_all_cells_and_is_in_their_profiles(tmp_path: Path) -> None:
    folder = made(tmp_path / "study")
    text = STUDY.replace("budget: 3s", "budget: 3s, probe: 5s").replace("[8, 16, 32]", "[8, 16]")
    (folder / "grid.yaml").write_text(text)
    ended(start(folder))
    (probe,) = (folder / "grid.study" / "probes").glob("*.host.json")
    measured = load_probe(probe).hosts[0].links
    assert measured is not None
    for id in cells(folder):
        profile = stash.load(folder / "grid.study" / "cells" / id / "profile.stash.json")
        assert [host.links for host in profile.hosts] == [measured]
    stored = [path.name for path in (folder / "grid.study" / "results").rglob("*.json")]
    assert sum(name.endswith(".host.json") for name in stored) == 1, stored
