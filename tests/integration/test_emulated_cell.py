"""One cell of an emulated instance, as a user runs it: real processes on shaped links, and its known truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.study.runs import model
from bench.study.truth import truth
from stash.analysis.attribution import attribute
from stash.core.artefact import load
from stash.lab.testbed import doctor
from stash.study.command import cells_of
from stash.study.study_file import read_study
from stash.study.study_folder import of_study

_obstacle = doctor.obstacle() or (None if os.geteuid() == 0 else "the testbed's tests need root")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(_obstacle is not None, reason=str(_obstacle))]
STUDY = """
workloads: [{zoo: alexnet}]
batches: 32
targets: [{engine: emulated, instance: p2.8xlarge, ranks: 2}]
settings: {budget: 3s, rungs: [solo, crowd, node]}
"""


def test_an_emulated_instance_stalls_as_its_links_must_make_it(tmp_path: Path) -> None:
    place = tmp_path / "fleet.yaml"
    place.write_text(STUDY)
    words = [sys.executable, "-m", "stash", "characterize", str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = cells_of(read_study(place), None)
    found, true = attribute(load(of_study(place).cell(cell.id).profile)), truth(cell, model(cell))
    interconnect = found.stall("interconnect")
    assert interconnect is not None
    # 42 % of the step, by hand; a link that is not shaped has 0, one of the wrong scale anything else.
    assert interconnect.share == pytest.approx(true["interconnect"] / sum(true.values()), abs=0.1)
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "1 of 1 cells are done" in again.stdout
    assert "started" not in again.stdout
