"""Processes of this machine, and the cores that each has."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stash.core.end_tree import end_at_once, end_tree, freeze
from stash.measure.linux import processes
from stash.measure.linux.processes import find_by_variable, list_descendants, pin_rank, status_of


def test_live_processes_with_the_setting_are_found_and_no_others():
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
        env={**os.environ, "OF_THIS_TEST": "yes"},
        stdout=subprocess.PIPE,
    )
    try:
        sleeper.stdout.readline()
        assert find_by_variable("OF_THIS_TEST", "yes") == [sleeper.pid]
        assert find_by_variable("OF_THIS_TEST", "ye") == []
    finally:
        sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet forgotten
    assert find_by_variable("OF_THIS_TEST", "yes") == []
    sleeper.wait()


def test_what_may_not_be_read_is_left_out(tmp_path):
    (tmp_path / "12" / "environ").mkdir(parents=True)
    (tmp_path / "13").mkdir()
    (tmp_path / "13" / "environ").write_bytes(b"A=1\0B=2\0")
    assert find_by_variable("B", "2", tmp_path) == [13]


TREE = """
import os, subprocess, sys, time
code = "import time; print(flush=True); time.sleep(600)"
middle = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], env={}); os.wait()"
subprocess.run([sys.executable, "-c", middle, code], env={}, start_new_session=True)
"""


@pytest.fixture
def tree():
    """A process, its child in another session, and that one's child, both without an environment."""
    top = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE)
    top.stdout.readline()
    yield top
    end_at_once(lambda: list_descendants(top.pid))
    top.kill()
    top.wait()


def test_where_the_kernel_lists_no_children_all_are_asked_for_their_parent(tree, tmp_path):
    for folder in Path("/proc").glob("[0-9]*"):
        (tmp_path / folder.name).symlink_to(folder)
    assert list_descendants(tree.pid, tmp_path) == list_descendants(tree.pid)


def test_what_a_process_starts_is_below_it_whichever_thread_started_it():
    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(
            subprocess.Popen, [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
        ).result()
        assert child.pid in list_descendants(os.getpid())
        child.communicate(b"\n")
    assert child.pid not in list_descendants(os.getpid())


def test_those_that_are_frozen_do_not_notice_that_another_ended(tree):
    parent, child = list_descendants(tree.pid)
    freeze(lambda: list_descendants(tree.pid), spared=[child])
    os.kill(child, signal.SIGTERM)
    while not status_of(child).ended:
        time.sleep(0.01)
    assert status_of(child).code == -signal.SIGTERM  # its parent would have forgotten it at once
    assert list_descendants(tree.pid) == [parent]
    end_at_once(lambda: list_descendants(tree.pid))
    assert list_descendants(tree.pid) == []


def test_what_cannot_be_asked_to_end_is_ended_by_force():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    process.stdout.readline()

    def find():
        status = status_of(process.pid)
        return [process.pid] if status is not None and not status.ended else []

    end_tree(find, 0.2)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("cores", "ranks", "shares", "siblings"),
    [
        ({0, 1, 2, 3}, 2, [{0, 1}, {2, 3}], ""),
        ({5, 1, 9, 7}, 2, [{1, 5}, {7, 9}], ""),  # not all are ours, and they are taken in order
        ({0, 1, 2, 3, 4}, 2, [{0, 1}, {2, 3}], ""),  # alike for all, so one is left over
        ({0, 1, 2}, 2, [None, None], ""),  # on one core a rank would compete with its own exchange
        ({0}, 2, [None, None], ""),
        (
            {0, 1, 2, 3},
            2,
            [{0, 2}, {1, 3}],
            "0,2 1,3 0,2 1,3",
        ),  # else both ranks had half of either core
        ({0, 1, 2, 3}, 2, [{0, 1}, {2, 3}], "0-1 0-1 2-3 2-3"),
    ],
)
def test_ranks_share_the_cores_evenly_or_keep_them_all(
    tmp_path,
    monkeypatch,
    cores,
    ranks,
    shares,
    siblings,
):
    for number, threads in enumerate(siblings.split()):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{threads}\n")
    monkeypatch.setattr(processes, "_CPUS", tmp_path)
    given = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, some: given.__setitem__(-1, set(some)))
    for rank in range(ranks):
        given.append(None)
        pin_rank(rank, ranks)
    assert given == shares
