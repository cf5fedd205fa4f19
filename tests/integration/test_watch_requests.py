"""What is asked of a run that goes on, as users ask it: to be entered, paused, traced."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from stash.measure.launcher.process import SITE
from stash.monitor.records import load_record

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, time, torch
import torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.set_num_threads(1)
trained = DistributedDataParallel(torch.nn.Linear(32, 8))
optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
step, end = 0, torch.zeros(1)
while not end:
    optimizer.zero_grad()
    trained(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    step += 1
    if Path("enter.py").exists() and os.environ.get("ENTERED") is None:
        os.environ["ENTERED"] = "1"
        exec(Path("enter.py").read_text())
    end.fill_(float(Path("end").exists()))
    dist.all_reduce(end, op=dist.ReduceOp.MAX)
print("steps", step)
"""
LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")


def start(folder, *words, **variables):
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stash(folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "stash", "watch", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def jobs(tmp_path):
    started = []
    yield started
    (tmp_path / "end").touch()
    for job in started:
        try:
            job.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            job.kill()
            job.communicate()


def record(folder):
    return load_record(folder / "run.watch.jsonl")


def seen(folder, what):
    path = folder / "run.watch.jsonl"
    return path.exists() and any(event.what == what for event in record(folder).events)


def test_a_run_is_traced_paused_and_goes_on(tmp_path, jobs):
    job = start(
        tmp_path, "-m", "stash", "watch", "-o", "run.watch.jsonl", "--", sys.executable, *LAUNCHER
    )
    jobs.append(job)
    until(lambda: (tmp_path / "run.watch.jsonl").exists() and record(tmp_path).header.ranks == 2)
    assert stash(tmp_path, "--join", "run.watch.jsonl", "--capture", "3:1").returncode == 0
    traces = tmp_path / "run.traces"
    until(lambda: len(list(traces.glob("rank1.step*.json.gz"))) == 1)
    assert [path.name.partition(".")[0] for path in traces.iterdir()] == ["rank1"]
    events = json.loads(gzip.decompress(next(traces.iterdir()).read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "Optimizer.step#SGD.step" for event in events) == 3
    assert stash(tmp_path, "--join", "run.watch.jsonl", "--pause").returncode == 0
    until(lambda: seen(tmp_path, "paused"))
    time.sleep(2)
    before = len(record(tmp_path).windows)
    time.sleep(12)  # a window's length
    assert len(record(tmp_path).windows) <= before + 1
    assert stash(tmp_path, "--join", "run.watch.jsonl", "--resume").returncode == 0
    until(lambda: seen(tmp_path, "resumed"))
    before = len(record(tmp_path).windows)
    until(lambda: len(record(tmp_path).windows) > before)
    (tmp_path / "end").touch()
    printed, _ = job.communicate(timeout=60)
    steps = int(printed.split()[1])
    last = record(tmp_path).windows[-1]
    assert last.ranks.keys() == {0, 1}
    assert steps - 3 <= last.last_step <= steps  # they are counted while nobody looks
    assert [event.what for event in record(tmp_path).events] == [
        "capture",
        "paused",
        "resumed",
        "end",
    ]
    refused = stash(tmp_path, "--join", "run.watch.jsonl", "--pause")
    assert (refused.returncode, "has ended" in refused.stderr) == (2, True)


def attached(folder, job):
    words = ("-m", "stash", "watch", "--attach", str(job.pid), "-o", "run.watch.jsonl")
    return start(folder, *words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_who_ends_a_watch_that_was_attached_ends_no_job(tmp_path, jobs, number):
    job = start(tmp_path, *LAUNCHER, PYTHONPATH=f"{SITE}:{ROOT / 'src'}", STASH_ATTACHABLE="1")
    jobs.append(job)
    time.sleep(8)
    watcher = attached(tmp_path, job)
    jobs.append(watcher)
    until(lambda: (tmp_path / "run.watch.jsonl").exists() and record(tmp_path).header.ranks == 2)
    watcher.send_signal(number)
    watcher.communicate(timeout=5)
    assert job.poll() is None
    (tmp_path / "end").touch()
    assert job.wait(30) == 0


def test_what_remote_execution_runs_enters_a_job_and_ranks_count_alike(tmp_path, jobs):
    # GIVEN ranks that run the file that a newer Python would have them run, one some steps after the other
    from stash.measure.protocol.orders import Orders
    from stash.monitor.attach import write_entry_script
    from stash.monitor.collector import Collector

    folder = tmp_path / "rings"
    folder.mkdir()
    Orders(str(folder), (), 0.0, began=time.time(), watched=True).write()
    job = start(tmp_path, *LAUNCHER)
    jobs.append(job)
    time.sleep(6)
    script = write_entry_script(folder)
    script.rename(tmp_path / "enter.py")
    # THEN steps of both are joined, and those that are joined were taken together
    collector, joined = Collector(folder), []
    deadline = time.monotonic() + 30
    while len(joined) < 5 and time.monotonic() < deadline:
        collector.find_ranks()
        if (found := collector.poll()) is not None and len(found.ranks) == 2:
            joined.append(found)
        time.sleep(0.5)
    assert len(joined) == 5
    ends = [{row.number: row.ended for row in state.rows} for state in collector.ranks.values()]
    common = ends[0].keys() & ends[1].keys()
    assert all(abs(ends[0][number] - ends[1][number]) < 0.008 for number in common)


def test_an_older_python_without_the_hook_is_refused_in_one_sentence(tmp_path, jobs):
    job = start(tmp_path, *LAUNCHER)
    jobs.append(job)
    time.sleep(6)
    refused = stash(tmp_path, "--attach", str(job.pid), "-o", "run.watch.jsonl")
    assert refused.returncode == 2
    assert "STASH_ATTACHABLE=1" in refused.stderr
    assert not (tmp_path / "run.watch.jsonl").exists()
    gone = stash(tmp_path, "--attach", "4194303")
    assert "there is no such process" in gone.stderr
