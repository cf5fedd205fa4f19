"""A process of the job does not outlive its launcher, nor do its children."""

from __future__ import annotations

import subprocess
import sys

import psutil

PATIENCE = 60
SLEEPER = "import time; time.sleep(600)"
RANK = f"""
import subprocess, sys, time
from stash.measure.agent.lifeline import outlive_not
outlive_not(int(sys.argv[1]))
worker = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
print(worker.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_children_once_the_launcher_is_gone() -> None:
    launcher = subprocess.Popen([sys.executable, "-c", SLEEPER])
    rank = subprocess.Popen([sys.executable, "-c", RANK, str(launcher.pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert rank.stdout is not None
        worker = psutil.Process(int(rank.stdout.readline()))
        assert rank.poll() is None
        launcher.kill()
        launcher.wait(PATIENCE)
        assert rank.wait(PATIENCE) == 1
        psutil.wait_procs([worker], timeout=PATIENCE)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    finally:
        for process in (launcher, rank):
            process.kill()
            process.wait(PATIENCE)
