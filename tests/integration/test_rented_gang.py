"""A synchronous script on rented machines, with the very scripts that machines would run: only the clouds are played.

``sky``, ``ssh`` and ``scp`` stand on PATH (``tests/support/fake_sky``) and run the tasks on this machine, in
namespaces of their own. The head, the guards, torchrun and the script are the real ones; the bucket is a folder.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rented_runs import run_apart
from spot_fleets import plan

SCRIPT = """
import datetime, sys, time, torch, torch.distributed as dist, stash.spot
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
kept = stash.spot.checkpoint(model=model, optimizer=optimizer)
first = kept.state.get("step", 0)
print("from", first, "on", dist.get_world_size(), *sys.argv[1:], flush=True)
for step in range(first, int(sys.argv[1])):
    optimizer.zero_grad()
    ddp(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
    kept.step(step=step + 1)
dist.destroy_process_group()
"""
RUN = """
from pathlib import Path
from stash.spot.commands.rented_fleet import RunOptions, run_rented
options = RunOptions(
    plan=Path("job.plan.json"), job="train.py", sync=True, infra="aws/us-east-1", max_dollars=25.0,
    checkpoint_url="s3://mine/run1", yes=True, checkpoint_every="{every}",
)
run_rented(options, ("train.py", "700"))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and namespaces"),
]


def small_plan() -> str:
    """Two nodes of one GPU each, of types of which there are more."""
    whole = plan(0.8, 3000.0)
    assert whole.chosen is not None
    chosen = whole.chosen.model_copy(update={"workers": {"p3.2xlarge": 1, "g4dn.4xlarge": 1}})
    return whole.model_copy(update={"chosen": chosen}).model_dump_json()


def prepared(folder: Path, script: str) -> None:
    (folder / "train.py").write_text(script)
    (folder / "job.plan.json").write_text(small_plan())


def events(folder: Path) -> list[dict[str, object]]:
    found = (folder / "job.run/trained/events.jsonl").read_text()
    return [json.loads(line) for line in found.splitlines()]


def test_a_node_vanishes_another_comes_and_the_script_goes_on_to_its_end(tmp_path: Path) -> None:
    prepared(tmp_path, SCRIPT)
    threading.Thread(target=vanish, args=(tmp_path / "fake", "worker2"), daemon=True).start()
    done, unended = run_apart(tmp_path, RUN.replace("{every}", "2s"), 560)
    assert done.returncode == 0, done.stdout + done.stderr + logs(tmp_path)
    assert "the script ended" in done.stdout
    assert "worker2 (g4dn.4xlarge) is gone" in done.stdout
    went_on = (tmp_path / "fake" / log_of(tmp_path, "worker3")).read_text()
    assert "on 3 700" in went_on, logs(tmp_path)  # a g3.8xlarge came, the cheapest that is fast enough: two GPUs
    assert "from 0 on" not in went_on
    what = [each["what"] for each in events(tmp_path)]
    assert what.count("lost") == 1
    assert "failed" not in what
    assert [list((tmp_path / "fake" / kind).iterdir()) for kind in ("clusters", "jobs")] == [[], []]
    assert list((tmp_path / "fake/bucket/run1").glob("*.ckpt"))
    assert unended == []


def test_at_a_notice_whoever_saves_saves_and_the_node_leaves(tmp_path: Path) -> None:
    prepared(tmp_path, SCRIPT)
    threading.Thread(target=give_notice, args=(tmp_path / "fake", "worker2"), daemon=True).start()
    done, unended = run_apart(tmp_path, RUN.replace("{every}", "1h"), 560)
    assert done.returncode == 0, done.stdout + done.stderr + logs(tmp_path)
    assert "worker2 (g4dn.4xlarge) will be taken away in" in done.stdout
    noticed = [each for each in events(tmp_path) if each["what"] in ("notice", "saved", "left", "lost")]
    first, *rest = [each["what"] for each in noticed]
    assert (first, sorted(rest)) == ("notice", ["left", "saved"]), logs(tmp_path)  # by two nodes, as they come
    assert "a checkpoint is whole after" in (tmp_path / "fake" / log_of(tmp_path, "worker2")).read_text()
    assert unended == []


def test_a_script_that_fails_of_itself_ends_it_with_its_error(tmp_path: Path) -> None:
    prepared(tmp_path, "raise ValueError('no data')\n")
    done, unended = run_apart(tmp_path, RUN.replace("{every}", "2s"), 560)
    assert done.returncode == 1
    assert "the script failed on worker" in done.stderr, done.stdout + logs(tmp_path)
    assert "ValueError: no data" in done.stderr
    assert [list((tmp_path / "fake" / kind).iterdir()) for kind in ("clusters", "jobs")] == [[], []]
    assert unended == []


def vanish(fake: Path, name: str) -> None:
    """A machine is gone, with all that ran on it, once something was saved; SkyPilot would begin to recover it."""
    guard = trained(fake, name, "home/stash-spot/events.jsonl", '"what": "saved"')
    (fake / "preempted").mkdir()
    (fake / "preempted" / guard.environ()["JOB"]).touch()
    for process in (guard, *guard.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def give_notice(fake: Path, name: str) -> None:
    """SIGTERM to the guard of one that trains, as Slurm and Kubernetes give it."""
    trained(fake, name, f"*-{name}.log", "from 0 on 2").terminate()


def trained(fake: Path, name: str, file: str, what: str) -> psutil.Process:
    """The guard of a node, once ``what`` stands in a file."""
    while not any(what in path.read_text() for path in fake.glob(file)):
        time.sleep(0.5)
    time.sleep(3)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if f"FAKE_SKY={fake}" in [f"{k}={v}" for k, v in process.environ().items()]:
                words = process.cmdline()
                if "guard" in words and words[words.index("--name") + 1] == name:
                    return process
    raise AssertionError(f"there is no guard of {name}")


def log_of(folder: Path, name: str) -> str:
    return next(path.name for path in (folder / "fake").glob("*.log") if path.stem.endswith(f"-{name}"))


def logs(folder: Path) -> str:
    return "".join(f"--- {path.name}\n{path.read_text()[-3000:]}\n" for path in (folder / "fake").glob("*.log"))
