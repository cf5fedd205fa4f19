"""A study on the two machines of a hosts file, which are this one twice: a shell stands for ``ssh``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import PATIENCE

import stash
from stash.measure.linux.processes import carrying

pytestmark = pytest.mark.slow

MODEL = "layers:\n- {name: only, bytes: 100kB, forward_seconds: 5ms, backward_seconds: 10ms}\n"
STUDY = """
workloads: [{{name: net, command: [-m, stash.lab.testbed.train, --model, model.yaml]}}]
targets: [{{engine: hosts, file: hosts.txt, devices: 1, nodes: 2, run: "{run}"}}]
settings: {{budget: {budget}, precision: 5, rungs: [solo, crowd, cluster]}}
"""
SHELL = "env GLOO_SOCKET_IFNAME=lo REACHED={host} sh -c"


def start(folder: Path, run: str = SHELL, budget: str = "2s") -> subprocess.Popen[str]:
    (folder / "grid.yaml").write_text(STUDY.format(run=run, budget=budget))
    (folder / "model.yaml").write_text(MODEL)
    (folder / "hosts.txt").write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    return subprocess.Popen(
        (sys.executable, "-m", "stash", "characterize", "grid.yaml"),
        cwd=folder,
        env={**os.environ, "STASH_HOME": str(folder / "home"), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_cell_on_two_hosts_from_end_to_end(tmp_path: Path) -> None:
    controller = start(tmp_path)
    said, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 0, said
    (path,) = tmp_path.glob("grid.study/cells/*/profile.stash.json")
    profile = stash.load(path)
    assert [(rank.rank, rank.node) for rank in profile.ranks] == [(0, 0), (1, 1)]
    assert {block.rung for block in profile.blocks} == {"solo", "crowd", "cluster"}
    assert carrying("STASH_CELL", str(path.parent)) == []


def test_a_host_that_cannot_be_reached_is_one_sentence_and_ends_the_others(tmp_path: Path) -> None:
    refused = "ssh: connect to host $REACHED port 22: Connection refused"
    shell = (
        f"sh -c 'export REACHED={{host}}; [ $REACHED = 127.0.0.1 ] || {{ echo {refused} >&2; exit 255; }}; eval $1' -"
    )
    controller = start(tmp_path, run=shell)
    said, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 1, said
    assert "ssh: connect to host 127.0.0.2 port 22: Connection refused" in said
    (own,) = (tmp_path / "grid.study" / "cells").iterdir()
    assert carrying("STASH_CELL", str(own)) == []


def test_ctrl_c_leaves_nothing_on_any_host(tmp_path: Path) -> None:
    controller = start(tmp_path, budget="600s")
    deadline = time.monotonic() + PATIENCE
    while not any("round 1 " in log.read_text() for log in tmp_path.glob("grid.study/cells/*/output.log")):
        assert controller.poll() is None, controller.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    controller.send_signal(signal.SIGINT)
    said, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 130, said
    (own,) = (tmp_path / "grid.study" / "cells").iterdir()
    assert carrying("STASH_CELL", str(own)) == []
    assert "the profile holds the rounds measured until then" in (own / "output.log").read_text()
