"""A process of the job does not outlive its launcher, nor does anything else that was started with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stash.measure.agent import last_words
from stash.measure.protocol.folder import claim
from stash.measure.protocol.orders import VARIABLE, Orders

PATIENCE = 60
SLEEPER = "import time; time.sleep(600)"
RANK = f"""
import subprocess, sys, time
from stash.measure.agent import last_words
from stash.measure.protocol.orders import current_orders
last_words._PERIOD = 0.1
last_words.end_with_launcher(current_orders())
worker = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], start_new_session=True)
print(worker.pid, flush=True)
time.sleep(600)
"""


def orders_of_a_run(run: Path) -> Orders:
    launch = run / "launch-0-0"
    launch.mkdir(parents=True)
    return Orders(str(launch), ("solo",), 1.0)


def test_it_ends_with_all_that_it_started_once_the_launcher_is_gone(tmp_path):
    orders = orders_of_a_run(tmp_path)
    owner = claim(tmp_path)
    environment = {**os.environ, VARIABLE: str(orders.write())}
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        worker = psutil.Process(int(rank.stdout.readline()))
        assert rank.poll() is None
        os.close(owner)  # as the kernel does for a launcher that dies
        assert rank.wait(PATIENCE) == 1
        psutil.wait_procs([worker], timeout=PATIENCE)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    finally:
        rank.kill()
        rank.wait(PATIENCE)


def test_where_the_launcher_is_out_of_sight_nothing_is_watched(tmp_path, monkeypatch):
    orders = orders_of_a_run(tmp_path)
    (tmp_path / "owner").write_text("of another machine")
    monkeypatch.setattr(
        last_words.threading, "Thread", lambda **_: pytest.fail("a watch was started")
    )
    last_words.end_with_launcher(orders)
