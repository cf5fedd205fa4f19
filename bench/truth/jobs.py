"""Running a case of the truth suite: its emulated cluster, its job in YAML, and `stash profile` as users type it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import yaml

from bench.machine import ROOT, STASH
from bench.truth.cases import Case, Rates
from bench.truth.emulated import run_on
from stash.core.artefact import load
from stash.core.records.profile import Profile
from stash.lab.testbed.bed import Testbed

SCRATCH = ROOT / "data" / "truth"


@contextlib.contextmanager
def cluster(case: Case) -> Iterator[tuple[Testbed | None, Rates]]:
    """The testbed a case needs, and the rates its links were verified to carry."""
    if case.nodes == 1 and not case.interconnect and not case.disk:
        yield None, {}
        return
    SCRATCH.mkdir(parents=True, exist_ok=True)
    bed = Testbed(
        case.nodes,
        case.devices,
        network=case.network,
        interconnect=case.interconnect,
        disk=case.disk,
        overrides={node: {"network": rate} for node, rate in case.slow_uplinks},
        disk_path=SCRATCH,
    )
    with bed:
        rates: dict[str, float] = {}
        for link in sorted(
            bed.links, key=lambda link: -link.measured
        ):  # the slowest comes last and stays
            rates |= {link.name: link.measured, f"{link.name} burst": link.burst_bytes}
        yield bed, rates


def profile(
    case: Case,
    folder: Path,
    bed: Testbed | None,
    budget: float,
    precision: float | None = None,
    before: Sequence[str] = (),
) -> Profile:
    """Profile a case; ``precision`` as users leave it if ``None``. The words ``before`` start the command.

    Raises RuntimeError with what was printed if there is no profile.
    """
    (folder / "model.yaml").write_text(describe(case))
    options: dict[str, object] = {
        "model": folder / "model.yaml",
        "bucket-mb": case.bucket_mb,
        "batch": case.batch,
        "workers": case.workers,
        "accumulate": case.accumulate,
    }
    if case.files:
        options["data"] = files(case)
    typed = [word for name, value in options.items() for word in (f"--{name}", value)]
    job = ["-m", "stash.lab.testbed.train_emulated", *typed]
    wanted = () if precision is None else ("--noise", precision)

    def output(node: int) -> Path:
        return folder / ("run.stash.json" if node == 0 else f"other-{node}.stash.json")

    def command(node: int) -> list[object]:
        meeting: list[object] = []
        if case.nodes > 1:
            meeting = ["--nnodes", case.nodes, "--node-rank", node]
        if bed is not None and case.nodes > 1:
            meeting += ["--rdzv-endpoint", f"{bed.address(0)}:29577"]
        ranks = ("--nproc-per-node", case.devices, *meeting, "--budget", budget, *wanted)
        return [*before, *STASH, "profile", *ranks, "-o", output(node), *job]

    with _neighbour(case):
        run_on(bed, 1 if bed is None else bed.nodes, command, budget + 300)
    return load(output(0))


def describe(case: Case) -> str:
    """The case's job in the YAML of the testbed."""
    fields: dict[str, object] = {
        "name": case.name,
        "layers": [
            {
                "name": f"layer {number}",
                "bytes": layer.bytes,
                "forward_seconds": layer.forward,
                "backward_seconds": layer.backward,
            }
            for number, layer in enumerate(case.layers)
        ],
        "slow_ranks": dict(case.slow_ranks),
        "jitter": case.jitter,
        "spread": case.spread,
        "prep_seconds": case.prep,
        "read_seconds": case.read,
    }
    if case.paced is not None:
        rates = {"interconnect": case.paced.interconnect, "network": case.paced.network}
        fields["exchange"] = {name: rate for name, rate in rates.items() if rate is not None}
    return yaml.safe_dump(fields)


def files(case: Case) -> Path:
    """A folder of as many files of that size as the case needs, made once."""
    folder = SCRATCH / f"{case.files}x{case.file_bytes}"
    if len(list(folder.glob("*.bin"))) < case.files:
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(0)
        for number in range(case.files):
            (folder / f"{number:06d}.bin").write_bytes(random.bytes(case.file_bytes))
        os.sync()
    return folder


_BURSTS = """
import time
while True:
    end = time.monotonic() + 0.5
    while time.monotonic() < end: pass
    time.sleep(0.5)
"""


@contextlib.contextmanager
def _neighbour(case: Case) -> Iterator[None]:
    """Another tenant's work while the profile is taken, if the case has any."""
    if not case.neighbour:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", _BURSTS])
    try:
        yield
    finally:
        process.kill()
        process.wait()
