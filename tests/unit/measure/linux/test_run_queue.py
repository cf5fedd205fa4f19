"""Delays as the kernel counts them: of this thread, of helpers that work, of processes; and limits of a group."""

import os
import subprocess
import sys
import threading
import time

import pytest

from stash.measure.agent.runner.timed_steps import Usage
from stash.measure.linux import run_queue
from stash.measure.linux.run_queue import (
    Helpers,
    RunQueue,
    quota_periods,
    sum_processes,
    throttled_seconds,
)

PATIENCE = 60.0
known = pytest.mark.skipif(not RunQueue().is_supported, reason="this kernel counts no delays")


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@known
def test_a_script_that_closes_every_file_stops_the_delay_and_nothing_else():
    queue = RunQueue()
    before = queue.delay()
    assert queue._file is not None
    os.close(queue._file)
    assert queue.delay() == before
    assert not queue.is_supported


@known
def test_a_thread_that_shares_its_only_core_is_delayed():
    """Two threads that never sleep on one core: each waits for about as long as the other runs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        found = []

        def work():  # the interpreter lets one thread run at a time: the other process competes
            queue = RunQueue()
            before = queue.delay()
            spin(0.2)
            found.append(queue.delay() - before)

        other = os.fork()
        if other == 0:
            spin(0.6)
            os._exit(0)
        work()
        os.waitpid(other, 0)
    finally:
        os.sched_setaffinity(0, allowed)
    assert found[0] > 0.02


@known
def test_only_threads_that_work_are_followed():
    helpers = Helpers(threading.get_native_id())
    go, done, over = (threading.Event() for _ in range(3))

    def work():
        go.wait()
        time.sleep(0.01)
        done.set()
        over.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    helpers.find_threads()
    assert helpers.loop_delays() == {}
    go.set()
    done.wait()
    helpers.find_threads()
    assert thread.native_id in helpers.loop_delays()
    assert helpers.read_exchange() == (0.0, 0.0)
    over.set()
    thread.join()


@known
def test_what_a_worker_runs_in_its_second_thread_is_its_own_and_not_strangers():
    before, over = sum_processes([os.getpid()]), threading.Event()

    def work():  # until it was seen: a thread that has ended keeps nothing
        while not over.is_set():
            pass

    first, thread = time.thread_time(), threading.Thread(target=work)
    thread.start()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(0.01)
        others = (sum_processes([os.getpid()]) - before).ran - (time.thread_time() - first)
        if others > 0.1:
            break
    over.set()
    thread.join()
    assert others > 0.1


@known
def test_what_a_block_starts_and_waits_for_is_its_jobs_own():
    usage = Usage([])
    program = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", program], check=True)  # as a sample that ffmpeg decodes
    assert 0.28 < usage.until_now()["worker_cpu_seconds"] < 1.0


@known
def test_processes_that_are_gone_have_run_nothing():
    own, gone = sum_processes([os.getpid()]), sum_processes([2**22 + 1])
    assert own.ran > 0
    assert (gone.ran, gone.delayed) == (0.0, 0.0)


def test_what_no_limit_kept_from_running_is_nothing_or_unknown():
    found = throttled_seconds()
    assert found is None or found >= 0


@pytest.mark.parametrize(
    ("mount", "group", "counts", "seconds"),
    [
        # version 1, in a container whose own group is mounted at the top
        ("cgroup cgroup rw,cpu", "3:cpu:/docker/abc", {"": "throttled_time 2000000000"}, 2.0),
        # version 2, where the limit is that of a group above
        (
            "cgroup2 cgroup2 rw",
            "0::/user/job",
            {"user/job": "usage_usec 5", "user": "throttled_usec 3000000"},
            3.0,
        ),
        ("cgroup2 cgroup2 rw", "0::/job", {"job": "throttled_usec 0"}, 0.0),
    ],
)
def test_the_limit_that_holds_may_be_that_of_a_group_above(
    tmp_path,
    monkeypatch,
    mount,
    group,
    counts,
    seconds,
):
    root = group.rpartition(":")[2] if "docker" in group else "/"
    of_groups(tmp_path, monkeypatch, f"{root} /sys/fs/cgroup rw - {mount}", group, counts)
    assert throttled_seconds() == pytest.approx(seconds)


def of_groups(root, monkeypatch, mount, group, counts):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(f"30 20 0:26 {mount}\n")
    (root / "proc/self/cgroup").write_text(group + "\n")
    for folder, line in counts.items():
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / folder / "cpu.stat").write_text(f"nr_periods 7\n{line}\n")
    files = run_queue._throttled_files(root)
    monkeypatch.setattr(run_queue, "_throttled_files", lambda: files)


def test_a_limit_is_reached_no_longer_than_time_passes_on_however_many_cores(tmp_path, monkeypatch):
    """A pod of few CPUs whose threads run on many cores: Linux adds up the seconds of all of them."""
    counts = {"": "nr_throttled 7\nthrottled_usec 5600000"}
    of_groups(tmp_path, monkeypatch, "/ /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/", counts)
    assert throttled_seconds() == pytest.approx(5.6)  # in 7 periods of 0.1 s
    assert quota_periods() == (7, 7)


@known
def test_nothing_is_kept_of_a_thread_that_has_ended():
    helpers = Helpers(threading.get_native_id())
    go, worked, end = (threading.Event() for _ in range(3))

    def work():
        go.wait()
        spin(0.002)
        worked.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    helpers.find_threads()
    go.set()
    worked.wait()
    helpers.find_threads()
    assert thread.native_id in helpers.loop_delays()
    end.set()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.01)
    helpers.find_threads()
    # another thread may get its number, and exchange
    assert thread.native_id not in helpers._of_loops
