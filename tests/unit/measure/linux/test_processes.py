"""Processes found by what they were started with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stash.measure.linux.processes import carrying


def test_live_processes_with_the_setting_are_found_and_no_others() -> None:
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
        env={**os.environ, "OF_THIS_TEST": "yes"},
        stdout=subprocess.PIPE,
    )
    try:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        assert carrying("OF_THIS_TEST", "yes") == [sleeper.pid]
        assert carrying("OF_THIS_TEST", "ye") == []
    finally:
        sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet forgotten
    assert carrying("OF_THIS_TEST", "yes") == []
    sleeper.wait()


def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "12" / "environ").mkdir(parents=True)
    (tmp_path / "13").mkdir()
    (tmp_path / "13" / "environ").write_bytes(b"A=1\0B=2\0")
    assert carrying("B", "2", tmp_path) == [13]
