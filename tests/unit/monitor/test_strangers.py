"""Other work on a machine by hand: whose delay it is follows from who used the cores meanwhile."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import STAGES
from stash.monitor.collector import JoinedCycles
from stash.monitor.strangers import CoreUse, ProcessLooks, lost_to_strangers, strangers_cores

FORWARD, EXCHANGE = STAGES.index(StepStage.FORWARD), STAGES.index(StepStage.EXCHANGE)


def joined(delay, of_exchange=0.0):
    """A step of two ranks: a second forward, half a second of exchange; rank 1 is delayed."""
    seconds = np.zeros((1, 2, len(STAGES)))
    delays = np.zeros((1, 2, 3))
    seconds[0, :, FORWARD], seconds[0, :, EXCHANGE] = 1.0, 0.5
    delays[0, 1] = delay + of_exchange, 0.0, of_exchange
    return JoinedCycles((0, 1), [1], seconds, delays, 0.0)


def use(everybody, workers=0.0):
    return CoreUse(0, 2.0, own=0.5, workers=workers, helpers=0.0, everybody=everybody)


@pytest.mark.parametrize(
    ("workers", "on_cpu", "expected"),
    [
        pytest.param(0.0, True, 0.4, id="nobody else kept it from running"),
        pytest.param(0.5, True, 0.0, id="its own loaders did"),
        pytest.param(0.0, False, 0.0, id="its host runs ahead of its device"),
    ],
)
def test_only_what_strangers_kept_a_rank_from_is_theirs(workers, on_cpu, expected):
    uses = {rank: use(2.0, workers) for rank in (0, 1)}
    lost = lost_to_strangers(joined(0.4), uses, on_cpu)
    assert lost[0, 1, FORWARD] == pytest.approx(expected)
    assert lost.sum() == pytest.approx(expected)


def test_what_is_not_known_of_a_rank_is_not_made_up():
    assert lost_to_strangers(joined(0.4), {0: use(2.0)}, on_cpu=True) is None
    assert strangers_cores({}) is None


def test_cores_of_strangers_are_those_that_no_rank_of_the_machine_used():
    assert strangers_cores({0: use(1.5), 1: use(1.5)}) == pytest.approx(0.5)


def test_a_process_that_computes_is_seen_to():
    looks = ProcessLooks()
    assert looks.sample_processes({0: os.getpid()}, 0.0) == {}
    began = time.monotonic()
    cpu = time.process_time()
    while time.process_time() - cpu < 0.3:
        pass
    found = looks.sample_processes({0: os.getpid()}, time.monotonic() - began)[0]
    assert 0 < found.own <= 1.5
    assert found.everybody > 0


def open_files(process):
    """Of the threads of that process, which this one keeps open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(f"/{process}/task/" in os.readlink(link) for link in links if os.path.lexists(link))


def test_a_rank_that_was_started_again_leaves_nothing_open():
    """Of a job that is started again for days, whose threads' counters are kept open while it lives."""
    looks = ProcessLooks()
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        rank.stdout.readline()
        for _ in range(2):
            looks.sample_processes({0: rank.pid}, 1.0)
            time.sleep(0.1)
        assert open_files(rank.pid)
        rank.communicate(b"\n")
    looks.sample_processes({}, 1.0)
    assert not open_files(rank.pid)


THREADS = """
import threading, time
for _ in range(4):
    threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(1000)], daemon=True).start()
print(flush=True)
input()
"""


def test_what_runs_below_a_rank_is_no_stranger_on_its_gpu():
    """As a loader's worker that decodes there."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        looks = ProcessLooks()
        looks.sample_processes({0: os.getpid()}, 0.0)
        assert {os.getpid(), worker.pid} <= looks.ours
        worker.communicate(b"\n")
