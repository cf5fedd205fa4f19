"""A started launch: its output, its signs of life, and that nothing of it is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil

from stash.measure.launch.process import Process
from stash.measure.launch.request import Request
from stash.measure.run.beats import Heart
from stash.measure.run.folder import RunFolder
from stash.measure.run.orders import VARIABLE

ORPHAN = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print('left')"
)


def started(tmp_path: Path, program: str) -> Process:
    return Process(
        Request((sys.executable, "-c", program), {VARIABLE: str(tmp_path / "orders.json")}), RunFolder(tmp_path)
    )


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_output_and_exit_status_are_kept(tmp_path: Path) -> None:
    process = started(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    wait_for(lambda: process.poll() is not None)
    assert process.poll() == 3
    assert set(process.output().split()) == {"out", "err"}


def test_stopping_ends_also_what_lost_its_parent(tmp_path: Path) -> None:
    process = started(tmp_path, ORPHAN)
    wait_for(lambda: process.poll() is not None)

    def mine() -> list[psutil.Process]:
        found = []
        for other in psutil.process_iter():
            try:
                if other.environ().get(VARIABLE) == str(tmp_path / "orders.json"):
                    found.append(other)
            except psutil.Error:
                continue
        return [other for other in found if other.status() != psutil.STATUS_ZOMBIE]

    assert len(mine()) == 1
    process.stop()
    assert mine() == []


def test_crashes_come_the_earliest_first_and_beats_by_rank(tmp_path: Path) -> None:
    process = started(tmp_path, "pass")
    for rank, words in (("1", "first"), ("0", "second")):
        process.folder.crash(rank).write_text(words)
    Heart(process.folder).beat(2, 11)
    assert process.crashes() == ["first", "second"]
    assert process.beats()[2].steps == 11
    process.stop()
