"""An asynchronous training on emulated hosts, and a stranger on one more host of their network.

``python fleet.py ATTACK [--width N]`` in an empty folder: trains, lets the stranger speak to every port of the
server's host while it does, and says what is wrong with what came of it, if anything. Its status is 0 if nothing is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from stash.cli.main import main as stash
from stash.core.jsonl import Tail
from stash.lab.testbed.topology import MARK
from stash.spot.emulate.backends import MARK as RUN
from stash.spot.emulate.backends import TrainingBackend
from stash.spot.train import saved_shards
from stash.spot.train.run_orders import EVENTS

STRANGER = Path(__file__).with_name("server_attacks.py")
JOB = """
import torch, stash.spot
def model(): return torch.nn.Sequential(torch.nn.Linear(16, {width}), torch.nn.ReLU(), torch.nn.Linear({width}, 1))
def loss(model, batch): return torch.nn.functional.mse_loss(model(batch[0]), batch[1])
def optimizer(parameters): return torch.optim.SGD(parameters, 1e-6)
def data():
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
job = stash.spot.Job(model, loss, optimizer, data, batch=16)
"""
POOL = """
as_of: 2026-11-22
source: a test
exchange_bytes: {size}
worker_bytes_per_second: {rate}MB/s
pcie_bytes_per_second: 10GB/s
server: {{count: 1, bytes_per_second: {rate}MB/s, dollars_per_hour: 0.1}}
loss: {{gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}}
types: [{{name: a, gpus: 1, batch: 16, samples_per_second: {speed}, quota: 2, dollars_per_hour: 1}}]
"""
BEFORE, ATTACKED, AFTER = 8.0, 12.0, 6.0
SLOWER = 3.0
"""Than before an attack: other work slows a run down for a moment, who holds a server's only turn stops it."""
MAX = 5.0
"""Of a weight, which the job's own gradients change by next to nothing."""
GROWTH = 400e6
"""Bytes that a server may take in an attack: a few updates under way, and not two trays for each stranger."""


class Scene:
    """What is seen of the run while it runs."""

    def __init__(self, attack: str, size: int) -> None:
        self.attack, self.size = attack, size
        self.report = "there was no stranger"
        self.began: float | None = None
        """When the attack began, by the clock of events."""
        self.failures: set[str] = set()
        """What the server's processes wrote of themselves."""
        self.memory: list[int] = []
        """Of the server, before and during the attack."""

    def follow(self, ground: TrainingBackend) -> None:
        """Wait until it trains, let the stranger in, and look at the server meanwhile."""
        tape, began = Tail(ground.folder / EVENTS), False
        while not began:
            time.sleep(0.1)
            began = any(event["what"] == "began" for event in tape.rows())
        time.sleep(BEFORE)
        self.began = BEFORE
        node = ground.hosts.number("server1")
        self.memory.append(_server_memory(ground))
        words = ("--attack", self.attack, "--size", str(self.size), "--seconds", str(ATTACKED))
        stranger = ground.hosts.run("stranger", [sys.executable, str(STRANGER), *words, *_ports(ground, node)], {})
        while stranger.poll() is None:
            self.memory.append(_server_memory(ground))
            time.sleep(0.2)
        self.report = stranger.output.strip()
        for log in ground.rays.host_folder("server1").rglob("worker*.err"):
            if "Traceback" in log.read_text(errors="replace"):
                self.failures.add("a traceback of the server's")


def _ports(ground: TrainingBackend, node: int) -> list[str]:
    """Every TCP port of a host that its network reaches."""
    enter = ("ip", "netns", "exec", ground.hosts.bed.environment(node)[MARK])
    shown = subprocess.run((*enter, "ss", "-Hltn"), capture_output=True, text=True, check=True).stdout
    places = [line.split()[3].rpartition(":") for line in shown.splitlines()]
    return [f"{ground.hosts.bed.address(node)}:{port}" for host, _, port in places if "127.0.0.1" not in host]


def _server_memory(ground: TrainingBackend) -> int:
    for process in psutil.process_iter(["name"]):
        try:
            own = str(process.info["name"]).startswith("ray::ServerActor")
            if own and process.environ().get(RUN) == str(ground.folder):
                return int(process.memory_info().rss)
        except psutil.Error:
            continue
    return 0


def play(scene: Scene) -> int:
    """The run; its exit status."""
    plain_init, plain_start = TrainingBackend.__init__, TrainingBackend.start

    def made(self: TrainingBackend, orders: Any, folder: Path, fleet: Any, spares: int) -> None:
        plain_init(self, orders, folder, fleet, spares + 1)

    def start(self: TrainingBackend) -> None:
        plain_start(self)
        threading.Thread(target=scene.follow, args=(self,), daemon=True).start()

    TrainingBackend.__init__ = made  # type: ignore[method-assign]
    TrainingBackend.start = start  # type: ignore[method-assign]
    words = [
        "--on",
        "testbed",
        "--seconds",
        f"{BEFORE + ATTACKED + AFTER:g}s",
        "--checkpoint-dir",
        "kept",
    ]
    sys.argv = ["stash", "spot", "run", "job.plan.json", "job.py:job", *words, "-o", "run.spotlog.json"]
    try:
        return int(stash() or 0)  # type: ignore[func-returns-value]
    except SystemExit as end:
        return int(end.code or 0)


def wrong(scene: Scene, code: int) -> Iterator[str]:
    """What an attack changed."""
    if code:
        yield f"the run ended with {code}"
        return
    log = json.loads(Path("run.spotlog.json").read_text())
    books, updates = log["books"], log["updates"]
    if "the weights" in scene.report or "bytes" not in scene.report:
        yield scene.report
    if books["wrong"] or books["done"] != books["issued"] or books["reissued"] or books["repeated"]:
        yield f"the books: {books}"
    stored = saved_shards.newest(Path("kept"), 0)
    applied = None if stored is None else [list(pair) for pair in stored.facts["applied"]]
    if applied != [[0, books["issued"]]]:
        yield f"the server applied {applied}, of {books['issued']} samples"
    weights = torch.load("kept/model.pt", weights_only=True)
    if None in updates["loss"] or not all(each.isfinite().all() for each in weights.values()):
        yield "the model is not finite"
    if max(float(each.abs().max()) for each in weights.values()) > MAX:
        yield "the weights are not those of the job"
    yield from scene.failures
    began = next(event["at"] for event in log["events"] if event["what"] == "began")
    rows = [at - began for at in updates["seconds"]]
    before = sum(at < BEFORE for at in rows) / BEFORE
    attacked = sum(BEFORE <= at < BEFORE + ATTACKED for at in rows) / ATTACKED
    if attacked * SLOWER < before:
        yield f"{attacked:.2f} updates a second under attack, {before:.2f} before"
    grown = max(scene.memory) - scene.memory[0]
    if grown > GROWTH:
        yield f"the server grew by {grown / 1e6:.0f} MB"
    rates = f"{attacked:.2f} updates a second, {before:.2f} before"
    print(f"the server grew by {grown / 1e6:.0f} MB; {rates}; {scene.report}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("attack")
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    tensors = (16 * args.width, args.width, args.width, 1)
    size = 16 + sum(-(-4 * count // 16) * 16 for count in tensors)
    Path("job.py").write_text(JOB.format(width=args.width))
    rate, speed = (25, 64) if size < 1e6 else (100, 10)  # an update takes 0.25 s, or 3
    Path("pool.yaml").write_text(POOL.format(size=f"{max(1, size // 1000)}kB", rate=rate, speed=speed))
    plan = ("plan", "--pool", "pool.yaml", "--deadline", "1000s", "--loss", "0.01", "-o", "job.plan.json")
    subprocess.run((sys.executable, "-m", "stash", "spot", *plan), check=True, capture_output=True)
    scene = Scene(args.attack, size)
    found = list(wrong(scene, play(scene)))
    print("\n".join(found) or "the run was undisturbed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
