"""The checks of ``bench/gpu.py``: what Stash finds of a job against what the job, untouched, measures of itself.

Each check is a function from the ground it is made on to rows of a table. One that cannot be made here raises
``NotHereError`` with the reason. On a CPU they rehearse: all that does not need a device's queue is the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench import machine
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load
from stash.monitor.records import load_record as load_watch

JOB = machine.ROOT / "bench" / "gpu_job.py"
ROOT = machine.ROOT
MAX_SECONDS = 240.0


class NotHereError(Exception):
    """A check that cannot be made on this machine, and why."""


@dataclass(frozen=True)
class Row:
    """One figure against its truth; ``within`` is how far they may be apart. Without a truth it is only shown."""

    what: str
    unit: str
    truth: float | None
    found: float | None
    within: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the figure is there, and as near to the truth as it has to be."""
        if self.truth is None:
            return True
        return self.found is not None and abs(self.found - self.truth) <= self.within


@dataclass(frozen=True)
class Ground:
    """Where checks are made: the device, a folder for files, and the seconds a profile may measure."""

    device: str
    folder: Path
    budget: float
    devices: int = 1

    @property
    def is_on_gpu(self) -> bool:
        return self.device == "cuda"

    def needs_gpu(self) -> None:
        """Raises NotHereError in a rehearsal."""
        if not self.is_on_gpu:
            raise NotHereError("a CPU has none of this")


class Truth:
    """What the job measures of itself without Stash, before Stash looked at it and after."""

    def __init__(self, *runs: dict[str, float]) -> None:
        self._runs = runs

    def mean_of(self, name: str) -> float:
        return sum(run[name] for run in self._runs) / len(self._runs)

    def spread(self, name: str) -> float:
        """How far the runs are from their mean: so much does the truth move by itself."""
        return max(abs(run[name] - self.mean_of(name)) for run in self._runs)


def plain(ground: Ground, words: Sequence[str], ranks: int = 1) -> dict[str, float]:
    """What the job measures of itself."""
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        if ranks > 1
        else []
    )
    done = run(
        [sys.executable, *launcher, str(JOB), "--device", ground.device, *words, "--plain", "40"]
    )
    return dict(json.loads(done.strip().splitlines()[-1]))


def profile_job(ground: Ground, words: Sequence[str], ranks: int = 1, rungs: str = "") -> Breakdown:
    """What Stash finds of the same job."""
    out = ground.folder / "gpu.stash.json"
    options = ["--budget", str(ground.budget), "--noise", "1", "-o", str(out)]
    options += ["--rungs", rungs] if rungs else []
    options += [f"--nproc-per-node={ranks}"]
    run([*_STASH, "profile", *options, str(JOB), "--device", ground.device, *words])
    return attribute(load(out))


def each(
    ground: Ground, jobs: Mapping[str, Sequence[str]], rungs: str
) -> Iterator[tuple[str, Truth, Breakdown]]:
    """Each of these jobs of one rank: without Stash, twice in turns in one process, then under it."""
    words = [["--device", ground.device, *job, "--plain", "25"] for job in jobs.values()]
    done = run([sys.executable, str(JOB), "--several"], json.dumps(words))
    lines = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    for number, (name, job) in enumerate(jobs.items()):
        truth = Truth(*(line for line in lines if line["job"] == number))
        yield name, truth, profile_job(ground, job, rungs=rungs)


_STASH = [sys.executable, "-m", "stash"]


def run(command: Sequence[str], text: str | None = None, folder: Path = ROOT) -> str:
    """What a command prints that runs this repository's Stash; raises RuntimeError if it fails."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    return machine.run(command, folder, MAX_SECONDS, text, PYTHONPATH=path)


def stall_row(found: Breakdown, name: str, truth: float, spread: float, what: str) -> Row:
    """A stall in ms: within its noise, the truth's own spread, and 2 % of the step."""
    stall = found.stall(name)
    half = (stall.parts.noise or 0.0) if stall is not None else 0.0
    within = 1e3 * (half + spread + 0.02 * found.step_seconds)
    return Row(what, "ms", 1e3 * truth, None if stall is None else 1e3 * stall.seconds, within)


def step_row(found: Breakdown, truth: Truth, what: str) -> Row:
    """The step in ms, within 3 % and the truth's own spread."""
    seconds = truth.mean_of("step")
    return Row(
        what,
        "ms",
        1e3 * seconds,
        1e3 * found.step_seconds,
        1e3 * (0.03 * seconds + truth.spread("step")),
    )


COMPUTE = {f"{1e3 * seconds:g} ms": ["--compute", str(seconds)] for seconds in (0.005, 0.02, 0.05)}
_COPIED = ["--compute", "0.02", "--bytes", str(64 << 20)]
TRANSFER = {"pageable": _COPIED, "pinned": [*_COPIED, "--pinned"]}
_MADE = ["--compute", "0.02", "--prep", "0.015"]
PREP = {
    "hidden by a device that runs ahead": _MADE,
    "in a loop that waits": [*_MADE, "--synchronise"],
}


def compute(ground: Ground) -> list[Row]:
    """Kernels that spin for a known time, in loops that never wait for the device."""
    rows = []
    for name, truth, found in each(ground, COMPUTE, "resident,solo,warm"):
        what = f"compute, {name} a step"
        rows.append(
            stall_row(found, "compute", truth.mean_of("resident"), truth.spread("resident"), what)
        )
    return rows


def transfer(ground: Ground) -> list[Row]:
    """Copies of known size from pageable and from pinned memory; unknown, not zero, on a CPU."""
    if ground.is_on_gpu:
        return [
            stall_row(
                found,
                "transfer",
                truth.mean_of("copy"),
                truth.spread("copy"),
                f"transfer, 67 MB from {kind} memory",
            )
            for kind, truth, found in each(ground, TRANSFER, "resident,solo,warm")
        ]
    rows = []
    for kind, words in TRANSFER.items():
        skipped = profile_job(ground, words, rungs="resident,solo,warm").skipped
        known = float(any(stall.name == "transfer" for stall in skipped))
        rows.append(Row(f"transfer from {kind} memory is unknown", "", 1.0, known))
    return rows


def watch(ground: Ground) -> list[Row]:
    """What a watch says of the same copies; unknown, not zero, on a CPU."""
    rows = []
    for kind, words in TRANSFER.items():
        record, job = (
            ground.folder / f"{kind}.watch.jsonl",
            [str(JOB), "--device", ground.device, *words],
        )
        run([*_STASH, "watch", "-o", str(record), *job, "--steps", "100"])
        window = load_watch(record).windows[-1]
        found = window.stalls["transfer"]
        if not ground.is_on_gpu:
            rows.append(
                Row(
                    f"a watch's transfer from {kind} memory is unknown",
                    "",
                    1.0,
                    float(found is None),
                )
            )
            continue
        truth, within = plain(ground, words), 1e3 * 0.02 * window.step_seconds
        shown = None if found is None else 1e3 * found
        rows.append(
            Row(
                f"a watch's transfer, 67 MB from {kind} memory",
                "ms",
                1e3 * truth["copy"],
                shown,
                within,
            )
        )
    return rows


def prep(ground: Ground) -> list[Row]:
    """Batches that take a known time to make, without workers: the device works meanwhile, unless the loop waits."""
    rows = []
    for name, truth, found in each(ground, PREP, "solo,warm"):
        spread = truth.spread("step") + truth.spread("resident")
        rows.append(
            stall_row(
                found,
                "prep",
                truth.mean_of("step") - truth.mean_of("resident"),
                spread,
                f"prep, {name}",
            )
        )
    return rows


def loop_kinds(ground: Ground) -> dict[str, list[str]]:
    """Loops that use the device in different ways, as the job's words."""
    kinds: dict[str, list[str]] = {
        "asynchronous": [],
        "synchronised every step": ["--synchronise"],
        "AMP": [*_SMALL, "--amp"],
        "channels-last": [*_SMALL, "--channels-last"],
        "torch.compile": [*_SMALL, "--compile"],
    }
    if ground.is_on_gpu:
        kinds["CUDA graph of both passes"] = ["--graph"]
    return kinds


def loops(ground: Ground) -> list[Row]:
    """The step under Stash against the untouched loop's: asynchronous, synchronised, AMP, channels-last, graphs."""
    rows = []
    kinds = loop_kinds(ground)
    for name, truth, found in each(ground, kinds, "solo,warm"):
        row = step_row(found, truth, f"step, {name}")
        # on CPUs Stash chooses a rank's threads
        comparable = ground.is_on_gpu or "--conv" not in kinds[name]
        rows.append(row if comparable else Row(row.what, row.unit, None, row.found))
    return rows


_SMALL = ["--conv", "--bytes", str(8 * 3 * 64 * 64)]
SUBMITTING = {
    "one long kernel": [],
    "one long kernel, waited for": ["--synchronise"],
    "many short kernels": _SMALL,
}


def host(ground: Ground) -> list[Row]:
    """Whether the device waits for the host, against the time for which PyTorch's profiler has its kernels run."""
    ground.needs_gpu()
    rows = []
    jobs = {name: [*words, "--busy"] for name, words in SUBMITTING.items()}
    for name, truth, found in each(ground, jobs, "solo,warm"):
        share, lead = truth.mean_of("busy") / truth.mean_of("resident"), found.host_lead
        ahead = None if lead is None else lead.seconds / lead.step_seconds
        rows.append(Row(f"kernels run, {name}", "", None, share))
        rows.append(Row(f"the host is ahead, steps, {name}", "", None, ahead))
        rows.append(
            Row(f"the device waits, {name}", "", float(share < 0.75), float(found.waits_for_host))
        )
    return rows


def nccl(ground: Ground) -> list[Row]:
    """What a step loses to other devices with NCCL, and the step, beside the same untouched."""
    ground.needs_gpu()
    ranks, words = ground.devices, ["--compute", "0.02", "--parameters", str(256 << 20)]
    if ranks < 2:
        raise NotHereError("there is one GPU")
    alone, before = plain(ground, words)["resident"], plain(ground, words, ranks)
    found = profile_job(ground, words, ranks)
    truth = Truth(before, plain(ground, words, ranks))
    lost = sum(found.seconds(name) for name in ("contention", "interconnect"))
    within = 1e3 * (0.05 * found.step_seconds + truth.spread("resident"))
    return [
        Row(
            "contention and interconnect",
            "ms",
            1e3 * (truth.mean_of("resident") - alone),
            1e3 * lost,
            within,
        ),
        step_row(found, truth, "step"),
    ]


def suite(ground: Ground) -> list[Row]:
    """Every test of the suite that is marked ``gpu``."""
    ground.needs_gpu()
    if find_spec("pytest") is None:
        raise NotHereError("pytest is not installed")
    words = ("-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/unit")
    return [
        Row(run([sys.executable, "-m", "pytest", *words]).strip().splitlines()[-1], "", None, None)
    ]


CHECKS: dict[str, Callable[[Ground], list[Row]]] = {
    "compute": compute,
    "transfer": transfer,
    "watch": watch,
    "prep": prep,
    "loops": loops,
    "host": host,
    "NCCL": nccl,
    "GPU tests": suite,
}
"""In this order, should the time end."""
