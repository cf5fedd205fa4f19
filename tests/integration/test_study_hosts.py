"""A study on the two machines of a hosts file, which are this one twice: a shell stands for ``ssh``."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from characterized import SMALL_MODEL, Controller

import stash
from stash.measure.linux.processes import carrying

pytestmark = pytest.mark.slow

STUDY = """
workloads: [{{name: net, command: [-m, stash.lab.testbed.train_emulated, --model, model.yaml]}}]
targets: [{{engine: hosts, file: hosts.txt, devices: 1, nodes: 2, run: "{run}"}}]
settings: {{budget: {budget}, noise: 5, rungs: [solo, crowd, cluster]}}
"""
SHELL = "env GLOO_SOCKET_IFNAME=lo REACHED={host} sh -c"


def start(folder: Path, run: str = SHELL, budget: str = "2s") -> Controller:
    (folder / "model.yaml").write_text(SMALL_MODEL)
    (folder / "hosts.txt").write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    return Controller(folder, STUDY.format(run=run, budget=budget))


def test_a_cell_on_two_hosts_from_end_to_end(tmp_path: Path) -> None:
    start(tmp_path).ended()
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
    assert "ssh: connect to host 127.0.0.2 port 22: Connection refused" in start(tmp_path, run=shell).ended(1)
    (own,) = (tmp_path / "grid.study" / "cells").iterdir()
    assert carrying("STASH_CELL", str(own)) == []


def test_ctrl_c_leaves_nothing_on_any_host(tmp_path: Path) -> None:
    controller = start(tmp_path, budget="600s")
    controller.wait_until(lambda: any("round 1 " in log for log in controller.logs()))
    controller.popen.send_signal(signal.SIGINT)
    controller.ended(130)
    (own,) = (tmp_path / "grid.study" / "cells").iterdir()
    assert carrying("STASH_CELL", str(own)) == []
    assert "the profile holds the rounds measured until then" in (own / "output.log").read_text()
