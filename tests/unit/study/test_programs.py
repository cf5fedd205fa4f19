"""Real processes through the study's one seam to them: found again, ended whole, their exit codes kept."""

import os
import signal
import time

import pytest

from stash.measure.linux.processes import status_of
from stash.study.programs import SystemPrograms
from stash.study.study_folder import CellFolder


@pytest.fixture
def cell(tmp_path):
    found = CellFolder(tmp_path / "cell")
    found.path.mkdir()
    return found


def wait(programs, cell, seconds=20.0):
    deadline = time.monotonic() + seconds
    while programs.alive(cell) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not programs.alive(cell)


def test_another_controller_finds_it_and_ends_it_in_order(cell):
    first = SystemPrograms()
    second = SystemPrograms()
    script = 'trap "echo saved; exit 130" TERM; echo ready; while true; do sleep 0.05; done'
    first.start(("sh", "-c", script), cell.path, cell)
    while not cell.log.read_text():
        time.sleep(0.02)
    assert second.alive(cell)
    second.interrupt(cell)
    wait(first, cell)
    assert not second.alive(cell)
    assert cell.log.read_text().split()[0] == "ready"
    assert cell.log.read_text().split()[-1] == "saved"
    assert cell.status.read_text().strip() == "130"


def test_all_that_it_started_ends_with_it(cell):
    programs = SystemPrograms()
    script = 'trap "" INT TERM; setsid sleep 600 & echo $!; sleep 600'
    programs.start(("sh", "-c", script), cell.path, cell)
    while not cell.log.read_text():
        time.sleep(0.02)
    child = int(cell.log.read_text())
    programs.kill(cell)
    assert not SystemPrograms().alive(cell)
    left = status_of(child)
    assert left is None or left.ended
    assert not cell.status.exists()


def test_a_number_that_is_another_processs_by_now_is_left_alone(cell):
    cell.process.write_text(str(os.getpid()))
    handler = signal.signal(signal.SIGINT, lambda *_: pytest.fail("it was not ours"))
    try:
        SystemPrograms().interrupt(cell)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_its_clock_goes_on_though_somebody_sets_this_machines(
    monkeypatch,
):
    programs = SystemPrograms()
    before = programs.now()
    assert before == pytest.approx(time.time(), abs=60)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= programs.now() < before + 60
