"""What a revocation costs a synchronous script on two nodes: with a guard, with torchrun's restarts, with torchft.

Two torchruns on this machine are two nodes that train one small model, each step 0.1 s at least. Node 2 is killed
15 s after the first step, or gets notice by SIGTERM; its successor starts 2 s after it is gone. Time lost is what
passes from then until the successor has trained for 10 s, less a step's time for every new step. Checkpoints are
10 s apart. torchft is another environment's: ``--torchft BIN`` names its folder of programs. Ten minutes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.machine import ROOT, arguments
from bench.table import show
from stash.core.end_tree import end_at_once
from stash.measure.linux.processes import find_by_variable

_BEGIN = """
import os, time, torch, torch.distributed as dist
from datetime import timedelta
def work(model, optimizer, step, nodes):
    time.sleep(0.1)
    optimizer.zero_grad()
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
def log(step, nodes):
    with open(os.environ["STEPS"], "a") as file: file.write(f"{time.time()} {step} {nodes}\\n")
model = torch.nn.Linear(64, 64)
"""
_GLOO = """
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())
"""
_LOOP = """
for step in range(first, 10**6):
    work(model, optimizer, step, dist.get_world_size())
    if dist.get_rank() == 0: log(step + 1, dist.get_world_size())
    save(step + 1)
"""
SCRIPTS = {
    "guard": f"""{_BEGIN}{_GLOO}
import stash.spot
kept = stash.spot.checkpoint("kept", model=model, optimizer=optimizer, every=10)
first, save = kept.state.get("step", 0), lambda step: kept.step(step=step)
{_LOOP}""",
    "torchrun": f"""{_BEGIN}{_GLOO}
first, last = 0, [time.monotonic()]
if os.path.exists("kept.pt"):
    first, states = torch.load("kept.pt", weights_only=True)
    model.load_state_dict(states[0]), optimizer.load_state_dict(states[1])
def save(step):
    if dist.get_rank() == 0 and time.monotonic() - last[0] > 10:
        torch.save((step, [model.state_dict(), optimizer.state_dict()]), "new.pt")
        os.replace("new.pt", "kept.pt")
        last[0] = time.monotonic()
{_LOOP}""",
    "torchft": f"""{_BEGIN}
import torchft
optimizer = torch.optim.Adam(model.parameters())
def load(states): model.load_state_dict(states[0]), optimizer.load_state_dict(states[1])
manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1,
    load_state_dict=load, state_dict=lambda: [model.state_dict(), optimizer.state_dict()],
    replica_id=os.environ["NODE"], timeout=timedelta(seconds=10), quorum_timeout=timedelta(seconds=60))
model, optimizer = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, optimizer)
while True:
    work(model, optimizer, 0, 0)
    log(manager.current_step(), manager.num_participants())
""",
}
_BEFORE, _AFTER, _PATIENCE, _APART = 15.0, 10.0, 150.0, 2.0
_STORE = """
import torch.distributed as d, time, sys
s = d.TCPStore("localhost", int(sys.argv[1]), is_master=True, wait_for_workers=False); time.sleep(1e9)
"""


@dataclass(frozen=True)
class Step:
    """A line of the script's log."""

    at: float
    number: int
    nodes: int


@dataclass
class Nodes:
    """Two nodes of one way to train, in a folder."""

    way: str
    folder: Path
    programs: Path
    port: int

    def begin(self) -> None:
        """What has to be there before any node."""
        (self.folder / "train.py").write_text(SCRIPTS[self.way])
        if self.way == "torchft":
            words = (
                "--min_replicas",
                "1",
                "--join_timeout_ms",
                "1000",
                "--bind",
                f"127.0.0.1:{self.port}",
            )
            self._run((str(self.programs / "torchft_lighthouse"), *words), "store")
        else:
            self._run((str(self.programs / "python"), "-c", _STORE, str(self.port)), "store")

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """One node."""
        run = [
            str(self.programs / "python"),
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=1",
            "--max-restarts=99",
        ]
        if self.way == "torchft":
            return self._run(
                (*run, "--nnodes=1", f"--rdzv-endpoint=localhost:{_free_port()}", "train.py"), name
            )
        conf = "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5"
        run += [
            "--nnodes=1:2",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=localhost:{self.port}",
            "--rdzv-id=one",
        ]
        guard = [str(self.programs / "python"), "-m", "stash", "spot", "guard", "kept", "--"]
        return self._run(
            (*(guard if self.way == "guard" else ()), *run, f"--rdzv-conf={conf}", "train.py"), name
        )

    def _run(self, words: tuple[str, ...], name: str) -> subprocess.Popen[bytes]:
        variables: Mapping[str, str] = {
            **os.environ,
            "STEPS": str(self.folder / "steps"),
            "NODE": name,
            "OMP_NUM_THREADS": "1",
            "STASH_BENCHED": f"{self.folder}/{name}",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self.port}",
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                words,
                cwd=self.folder,
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, *names: str) -> None:
        for name in names:
            end_at_once(
                lambda name=name: find_by_variable("STASH_BENCHED", f"{self.folder}/{name}")
            )  # type: ignore[misc]

    def steps(self) -> list[Step]:
        path = self.folder / "steps"
        lines = path.read_text().splitlines() if path.exists() else []
        return [
            Step(float(at), int(number), int(nodes)) for at, number, nodes in map(str.split, lines)
        ]

    def wait(self, since: float, nodes: int, seconds: float) -> None:
        """Until so many nodes have trained together for so long; raises RuntimeError if they do not."""
        until = time.time() + _PATIENCE
        while time.time() < until:
            own = [each.at for each in self.steps() if each.at > since and each.nodes == nodes]
            if own and own[-1] - own[0] >= seconds:
                return
            time.sleep(0.2)
        raise RuntimeError(f"{self.way}: {nodes} nodes did not train together: see {self.folder}")


def lost_seconds(way: str, notice: bool, programs: Path, folder: Path) -> tuple[float, int]:
    """Seconds without a new step, and how many steps were done again."""
    nodes = Nodes(way, folder, programs, _free_port())
    try:
        nodes.begin()
        time.sleep(2)
        nodes.start("node1")
        second = nodes.start("node2")
        nodes.wait(0, 2, _BEFORE)
        gone = time.time()
        if notice:
            second.send_signal(signal.SIGTERM)
            second.wait(60)
        nodes.end("node2")
        before = [each for each in nodes.steps() if each.at <= gone]
        reached = max(each.number for each in before)
        time.sleep(_APART)
        started = time.time()
        nodes.start("node3")
        nodes.wait(started, 2, _AFTER)
        after = [each for each in nodes.steps() if each.at > gone]
        usual = median(
            later.at - each.at for each, later in pairwise(before) if later.number > each.number
        )
        new = max(each.number for each in after) - reached
        again = len({each.number for each in after if each.number <= reached})
        return max(each.at for each in after) - gone - new * usual, again
    finally:
        nodes.end("node1", "node2", "node3", "store")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    options = arguments(
        __doc__, torchft=("", "where torchft_lighthouse and its python are"), repeats=(1, "of each")
    )
    here, rows = Path(sys.executable).parent, []
    ways = {"guard": here, "torchrun": here}
    if options.torchft and shutil.which("torchft_lighthouse", path=options.torchft):
        ways["torchft"] = Path(options.torchft)
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    names = {"guard": "`stash spot guard`", "torchrun": "torchrun, elastic", "torchft": "torchft"}
    found: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for _ in range(options.repeats):
        for notice in (False, True):
            for way, programs in ways.items():
                folder = Path(tempfile.mkdtemp(prefix="revoked-"))
                found.setdefault((way, notice), []).append(
                    lost_seconds(way, notice, programs, folder)
                )
                print(way, notice, found[way, notice][-1], file=sys.stderr, flush=True)
                shutil.rmtree(folder)
    for (way, notice), each in found.items():
        seconds, again = (median(column) for column in zip(*each, strict=True))
        rows.append(
            (
                names[way],
                "notice (SIGTERM)" if notice else "kill -9",
                f"{seconds:.1f} s",
                f"{again:g}",
            )
        )
    show(("way", "what happens to node 2", "time lost", "steps done again"), rows)


if __name__ == "__main__":
    main()
