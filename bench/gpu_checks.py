"""The checks of ``bench/gpu.py``: what Stash finds of a job against what the job, untouched, measures of itself.

Each check is a function from the ground it is made on to rows of a table. One that cannot be made here raises
``NotHereError`` with the reason. On a CPU they rehearse: all that does not need a device's queue is the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load
from stash.core.records.host import Gpu
from stash.measure.host.describe import describe
from stash.measure.host.gpus import gpus, nvml
from stash.measure.probe import copies
from stash.monitor.records import load as load_watch

JOB = Path(__file__).with_name("gpu_job.py")
ROOT = JOB.parents[1]
MAX_SECONDS = 240.0
LEAD_IN = 10
AGENT_SECONDS = 40e-6
"""Most that the agent may add to a step."""


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
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def needs_gpu(self) -> None:
        """Raises NotHereError in a rehearsal."""
        if not self.on_gpu:
            raise NotHereError("a CPU has none of this")


class Truth:
    """What the job measures of itself without Stash, before Stash looked at it and after."""

    def __init__(self, *runs: dict[str, float]) -> None:
        self._runs = runs

    def of(self, name: str) -> float:
        return sum(run[name] for run in self._runs) / len(self._runs)

    def spread(self, name: str) -> float:
        """How far the runs are from their mean: so much does the truth move by itself."""
        return max(abs(run[name] - self.of(name)) for run in self._runs)


def plain(ground: Ground, words: Sequence[str], ranks: int = 1, steps: int = 40) -> dict[str, float]:
    """What the job measures of itself."""
    start = [sys.executable] if ranks == 1 else [*_TORCHRUN, f"--nproc-per-node={ranks}"]
    done = run([*start, str(JOB), "--device", ground.device, *words, "--plain", str(steps)])
    return dict(json.loads(done.strip().splitlines()[-1]))


def profiled(ground: Ground, words: Sequence[str], ranks: int = 1, rungs: str = "") -> Breakdown:
    """What Stash finds of the same job."""
    out = ground.folder / "gpu.stash.json"
    options = ["--budget", str(ground.budget), "--noise", "1", "-o", str(out)]
    options += ["--rungs", rungs] if rungs else []
    shared = ranks > ground.devices  # Stash starts no more ranks than there are GPUs: then the launcher is ours
    start = [*(("--", *_TORCHRUN) if shared else ()), f"--nproc-per-node={ranks}"]
    run([*_STASH, "profile", *options, *start, str(JOB), "--device", ground.device, *words])
    return attribute(load(out))


def both(
    ground: Ground, words: Sequence[str], ranks: int = 1, rungs: str = "", steps: int = 40
) -> tuple[Truth, Breakdown]:
    """The job without Stash, under it, and without it again."""
    before, found = plain(ground, words, ranks, steps), profiled(ground, words, ranks, rungs)
    return Truth(before, plain(ground, words, ranks, steps)), found


def each(ground: Ground, jobs: Mapping[str, Sequence[str]], rungs: str) -> Iterator[tuple[str, Truth, Breakdown]]:
    """Each of these jobs of one rank: without Stash, twice in turns in one process, then under it."""
    words = [["--device", ground.device, *job, "--plain", "25"] for job in jobs.values()]
    done = run([sys.executable, str(JOB), "--several"], json.dumps(words))
    lines = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    for number, (name, job) in enumerate(jobs.items()):
        truth = Truth(*(line for line in lines if line["job"] == number))
        yield name, truth, profiled(ground, job, rungs=rungs)


_TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
_STASH = [sys.executable, "-m", "stash"]


def run(command: Sequence[str], text: str | None = None, folder: Path = ROOT) -> str:
    """What a command prints; raises RuntimeError with its last words if it fails."""
    done = _finished(command, text, folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:6])} … ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _finished(
    command: Sequence[str], text: str | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=MAX_SECONDS, env=environment, cwd=folder,
        input=text,
    )  # fmt: skip


def stall_row(found: Breakdown, name: str, truth: float, spread: float, what: str = "", share: float = 0.02) -> Row:
    """A stall in ms: within its noise, the truth's own spread, and ``share`` of the step."""
    stall = found.stall(name)
    half = (stall.parts.noise or 0.0) if stall is not None else 0.0
    within = 1e3 * (half + spread + share * found.step_seconds)
    return Row(what or name, "ms", 1e3 * truth, None if stall is None else 1e3 * stall.seconds, within)


def step_row(found: Breakdown, truth: Truth, what: str) -> Row:
    """The step in ms, within 3 % and the truth's own spread."""
    seconds = truth.of("step")
    return Row(what, "ms", 1e3 * seconds, 1e3 * found.step_seconds, 1e3 * (0.03 * seconds + truth.spread("step")))


COMPUTE = {f"{1e3 * seconds:g} ms": ["--compute", str(seconds)] for seconds in (0.005, 0.02, 0.05)}
_COPIED = ["--compute", "0.02", "--bytes", str(64 << 20)]
TRANSFER = {"pageable": _COPIED, "pinned": [*_COPIED, "--pinned"]}
_MADE = ["--compute", "0.02", "--prep", "0.015"]
PREP = {"hidden by a device that runs ahead": _MADE, "in a loop that waits": [*_MADE, "--synchronise"]}


def compute(ground: Ground) -> list[Row]:
    """Kernels that spin for a known time, in loops that never wait for the device."""
    rows = []
    for name, truth, found in each(ground, COMPUTE, "resident,solo,warm"):
        what = f"compute, {name} a step"
        rows.append(stall_row(found, "compute", truth.of("resident"), truth.spread("resident"), what))
    return rows


def transfer(ground: Ground) -> list[Row]:
    """Copies of known size from pageable and from pinned memory; unknown, not zero, on a CPU."""
    if ground.on_gpu:
        return [
            stall_row(
                found, "transfer", truth.of("copy"), truth.spread("copy"), f"transfer, 67 MB from {kind} memory"
            )
            for kind, truth, found in each(ground, TRANSFER, "resident,solo,warm")
        ]
    rows = []
    for kind, words in TRANSFER.items():
        skipped = profiled(ground, words, rungs="resident,solo,warm").skipped
        known = float(any(stall.name == "transfer" for stall in skipped))
        rows.append(Row(f"transfer from {kind} memory is unknown", "", 1.0, known))
    return rows


def watch(ground: Ground) -> list[Row]:
    """What a watch says of the same copies; unknown, not zero, on a CPU."""
    rows = []
    for kind, words in TRANSFER.items():
        record, job = ground.folder / f"{kind}.watch.jsonl", [str(JOB), "--device", ground.device, *words]
        run([*_STASH, "watch", "-o", str(record), *job, "--steps", "100"])
        window = load_watch(record).windows[-1]
        found = window.stalls["transfer"]
        if not ground.on_gpu:
            rows.append(Row(f"a watch's transfer from {kind} memory is unknown", "", 1.0, float(found is None)))
            continue
        truth, within = plain(ground, words), 1e3 * 0.02 * window.step_seconds
        shown = None if found is None else 1e3 * found
        rows.append(Row(f"a watch's transfer, 67 MB from {kind} memory", "ms", 1e3 * truth["copy"], shown, within))
    return rows


def prep(ground: Ground) -> list[Row]:
    """Batches that take a known time to make, without workers: the device works meanwhile, unless the loop waits."""
    rows = []
    for name, truth, found in each(ground, PREP, "solo,warm"):
        spread = truth.spread("step") + truth.spread("resident")
        rows.append(stall_row(found, "prep", truth.of("step") - truth.of("resident"), spread, f"prep, {name}"))
    return rows


def fetch(ground: Ground) -> list[Row]:
    """Files that are not in the page cache, in a loop that waits: what a plain loop takes longer to read them."""
    folder, batch, size = ground.folder / "files", 8, 1 << 20
    folder.mkdir(exist_ok=True)
    for number in range(256):
        if not (folder / f"{number:04}").exists():
            (folder / f"{number:04}").write_bytes(os.urandom(size))
    os.sync()
    before = _fetching(folder, batch)
    words = ["--compute", "0.02", "--synchronise", "--files", str(folder), "--batch", str(batch)]
    found = profiled(ground, words, rungs="solo,warm,cold")
    truth = Truth(before, _fetching(folder, batch))
    return [stall_row(found, "fetch", truth.of("fetch"), truth.spread("fetch"), share=0.05)]


def _fetching(folder: Path, batch: int) -> dict[str, float]:
    return {"fetch": batch * (_reading(folder, cold=True) - _reading(folder, cold=False))}


def _reading(folder: Path, cold: bool) -> float:
    """Seconds to read one file of ``folder``, by a loop over all of them."""
    files = sorted(folder.iterdir())
    if cold:
        for path in files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    for path in files:
        path.read_bytes()
    return (time.perf_counter() - began) / len(files)


def loop_kinds(ground: Ground) -> dict[str, list[str]]:
    """Loops that use the device in different ways, as the job's words."""
    kinds: dict[str, list[str]] = {
        "asynchronous": [],
        "synchronised every step": ["--synchronise"],
        "AMP": [*_SMALL, "--amp"],
        "channels-last": [*_SMALL, "--channels-last"],
        "torch.compile": [*_SMALL, "--compile"],
    }
    if ground.on_gpu:
        kinds["CUDA graph of both passes"] = ["--graph"]
    return kinds


def loops(ground: Ground) -> list[Row]:
    """The step under Stash against the untouched loop's: asynchronous, synchronised, AMP, channels-last, graphs."""
    rows = []
    kinds = loop_kinds(ground)
    for name, truth, found in each(ground, kinds, "solo,warm"):
        row = step_row(found, truth, f"step, {name}")
        comparable = ground.on_gpu or "--conv" not in kinds[name]  # on CPUs Stash chooses a rank's threads
        rows.append(row if comparable else Row(row.what, row.unit, None, row.found))
    return rows


_SMALL = ["--conv", "--bytes", str(8 * 3 * 64 * 64)]
SUBMITTING = {"one long kernel": [], "one long kernel, waited for": ["--synchronise"], "many short kernels": _SMALL}


def host(ground: Ground) -> list[Row]:
    """Whether the device waits for the host, against the time for which PyTorch's profiler has its kernels run."""
    ground.needs_gpu()
    rows = []
    jobs = {name: [*words, "--busy"] for name, words in SUBMITTING.items()}
    for name, truth, found in each(ground, jobs, "solo,warm"):
        share, lead = truth.of("busy") / truth.of("resident"), found.host_lead
        ahead = None if lead is None else lead.seconds / lead.step_seconds
        rows.append(Row(f"kernels run, {name}", "", None, share))
        rows.append(Row(f"the host is ahead, steps, {name}", "", None, ahead))
        rows.append(Row(f"the device waits, {name}", "", float(share < 0.75), float(found.waits_for_host)))
    return rows


def two_ranks(ground: Ground) -> list[Row]:
    """Two ranks on one device over gloo: what they lose to each other, against two untouched at once."""
    return _lost(ground, ["--compute", "0.02", "--exchange", "gloo", "--parameters", str(4 << 20)], 2)


def nccl(ground: Ground) -> list[Row]:
    """Every device with NCCL, against the same untouched."""
    ground.needs_gpu()
    if ground.devices < 2:
        raise NotHereError("there is one GPU")
    return _lost(ground, ["--compute", "0.02", "--exchange", "nccl", "--parameters", str(256 << 20)], ground.devices)


def _lost(ground: Ground, words: Sequence[str], ranks: int) -> list[Row]:
    """What a step loses to other ranks, contended for and exchanged, and the step."""
    alone = plain(ground, words)["resident"]
    truth, found = both(ground, words, ranks=ranks)
    lost = sum(found.seconds(name) for name in ("contention", "interconnect"))
    within = 1e3 * (0.05 * found.step_seconds + truth.spread("resident"))
    return [
        Row("contention and interconnect", "ms", 1e3 * (truth.of("resident") - alone), 1e3 * lost, within),
        step_row(found, truth, "step"),
    ]


def agent(ground: Ground) -> list[Row]:
    """What the agent adds to a step of next to nothing, in microseconds."""
    truth, found = both(ground, ["--compute", "0.0001"], rungs="warm", steps=2000)
    added = 1e6 * (found.step_seconds - truth.of("step"))
    return [Row("the agent, a step", "µs", 0.0, added, 1e6 * (AGENT_SECONDS + truth.spread("step")))]


def zoo(ground: Ground) -> list[Row]:
    """Convolutions in channels-last order and a transformer, with the zoo's own pipelines, against them untouched."""
    if not ground.on_gpu:
        small = ["--workload", "squeezenet1_0", "--batch", "4", "--channels-last", "--image-size", "64"]
        return _of_zoo(ground, "images", small, steps=30)
    images = ["--workload", "resnet50", "--batch", "64", "--channels-last", "--amp", "--workers", "8"]
    text = ["--workload", "bert_base_qa", "--batch", "8", "--amp"]
    return _of_zoo(ground, "images", images) + _of_zoo(ground, "text", text)


def _of_zoo(ground: Ground, kind: str, words: list[str], steps: int = 60) -> list[Row]:
    data, out = ground.folder / kind, ground.folder / f"{kind}.stash.json"
    if not data.exists():
        run([*_STASH, "lab", "dataset", "make", kind, str(data), "--count", "1024" if ground.on_gpu else "64"])
    job = ["stash.lab.zoo.train", *words, "--data", str(data)]
    before = _untouched(ground, job, steps)
    profile = ["--rungs", "solo,warm", "--budget", str(ground.budget), "--noise", "1", "-o", str(out)]
    run([*_STASH, "profile", "--nproc-per-node", "1", *profile, "-m", *job])
    found, name = attribute(load(out)), words[1]
    stalls = [Row(f"{name}: {each.name}", "ms", None, 1e3 * each.seconds) for each in found.stalls]
    return [step_row(found, Truth(before, _untouched(ground, job, steps)), f"{name}: step"), *stalls]


def _untouched(ground: Ground, job: Sequence[str], steps: int) -> dict[str, float]:
    """Its mean step after the first ten, by a stopwatch."""
    out = ground.folder / "moments.json"
    run([sys.executable, str(ROOT / "bench" / "timed.py"), str(out), *job, "--steps", str(steps)])
    moments = json.loads(out.read_text())[LEAD_IN:]
    return {"step": (moments[-1] - moments[0]) / (len(moments) - 1)}


def facts(ground: Ground) -> list[Row]:
    """What NVML tells Stash against `nvidia-smi`."""
    ground.needs_gpu()
    if shutil.which("nvidia-smi") is None:
        raise NotHereError("there is no nvidia-smi")
    asked = "index,memory.total,pcie.link.gen.max,pcie.link.width.max"
    listed = run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits"])
    with nvml() as library:
        described = gpus(library, Path("/")).gpus if library is not None else ()
    return facts_rows(described, listed.splitlines())


def facts_rows(described: Iterable[Gpu], lines: Iterable[str]) -> list[Row]:
    """Memory in MiB and the slot's PCIe, GPU by GPU; ``[N/A]`` of nvidia-smi is no truth."""
    known, rows = {gpu.index: gpu for gpu in described}, []
    for line in lines:
        index, *values = (part.strip() for part in line.split(","))
        gpu = known.get(int(index))
        memory = gpu.memory_bytes / 2**20 if gpu is not None and gpu.memory_bytes else None
        pcie = [float(part.lstrip("genx")) for part in gpu.pcie_max.split()] if gpu and gpu.pcie_max else [None, None]
        for what, unit, truth, found in zip(
            ("memory", "PCIe generation", "PCIe lanes"), ("MiB", "", ""), values, (memory, *pcie), strict=True
        ):
            number = float(truth) if truth.replace(".", "").isdigit() else None
            rows.append(Row(f"GPU {index}: {what}", unit, number, found, 1.0 if unit else 0.0))
    return rows


def rates(ground: Ground) -> list[Row]:
    """Host to device as the probe has it, against a plain loop of copies."""
    ground.needs_gpu()
    size = 64 << 20
    host, there = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, device="cuda").byte()
    seconds = []
    for _ in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    truth = size / sorted(seconds)[len(seconds) // 2] / 1e9
    cores, free = os.cpu_count() or 1, describe(Path.cwd()).memory_bytes or 1 << 32
    for copy in copies.measure(8.0, cores, free, 1):
        if getattr(copy, "source", "") == "host" and getattr(copy, "target", "") == "cuda:0":
            timing = copy.timings[0]  # type: ignore[union-attr]
            found = timing.bytes / sorted(timing.seconds)[len(timing.seconds) // 2] / 1e9
            return [Row("host to device, pinned", "GB/s", truth, found, 0.05 * truth)]
    return [Row("host to device, pinned", "GB/s", truth, None)]


def suite(ground: Ground) -> list[Row]:
    """Every test of the suite that is marked ``gpu``."""
    ground.needs_gpu()
    if find_spec("pytest") is None:
        raise NotHereError("pytest is not installed")
    done = _finished([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/unit"])
    if done.returncode:
        raise RuntimeError(done.stdout[-600:])
    return [Row(done.stdout.strip().splitlines()[-1], "", None, None)]


CHECKS: dict[str, Callable[[Ground], list[Row]]] = {
    "compute": compute,
    "transfer": transfer,
    "watch": watch,
    "prep": prep,
    "fetch": fetch,
    "loops": loops,
    "host": host,
    "two ranks, one device": two_ranks,
    "NCCL": nccl,
    "agent": agent,
    "facts": facts,
    "rates": rates,
    "GPU tests": suite,
    "zoo": zoo,
}
"""In this order: the truths first, the figures last, should the time end."""
