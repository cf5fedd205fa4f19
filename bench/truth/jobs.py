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

from bench.machine import ROOT
from bench.truth.cases import Case, Rates
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
    data = files(case)
    options = {"model": folder / "model.yaml", "bucket-mb": case.bucket_mb, "batch": case.batch}
    options |= {
        "workers": case.workers,
        "accumulate": case.accumulate,
        **({"data": data} if data else {}),
    }
    typed = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    job = ["-m", "stash.lab.testbed.train_emulated", *typed]
    output = folder / "run.stash.json"

    def command(node: int) -> list[str]:
        meeting = ["--nnodes", str(case.nodes), "--node-rank", str(node)] if case.nodes > 1 else []
        if bed is not None and case.nodes > 1:
            meeting += ["--rdzv-endpoint", f"{bed.address(0)}:29577"]
        own = output if node == 0 else folder / f"other-{node}.stash.json"
        wanted = () if precision is None else ("--noise", str(precision))
        return [
            *(
                *before,
                sys.executable,
                "-m",
                "stash",
                "profile",
                "--nproc-per-node",
                str(case.devices),
                *meeting,
            ),
            *("--budget", str(budget), *wanted, "-o", str(own), *job),
        ]

    environment = {"NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    with _neighbour(case):
        if bed is None:
            done = subprocess.run(
                command(0),
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=budget + 300,
            )
            codes, words = [done.returncode], done.stdout + done.stderr
        else:
            nodes = bed.run_all(command, env=environment)
            codes = [node.wait(budget + 120) for node in nodes]
            words = "\n".join(node.output for node in nodes)
    if any(codes):
        raise RuntimeError(f"{case.name}: exit codes {codes}\n{words}")
    return load(output)


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


def files(case: Case) -> Path | None:
    """A folder of as many files of that size as the case needs, made once."""
    if not case.files:
        return None
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
