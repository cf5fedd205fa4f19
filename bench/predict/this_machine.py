"""Predictions of real training on this machine: zoo models with other batches, workers, buckets, ranks and limits.

    python -m bench.predict.this_machine --plan            what would be run, and how long it takes
    python -m bench.predict.this_machine --only "batch 16" one of them, with what it is predicted from
    python -m bench.predict.this_machine                   all that were not measured yet (root; 22 minutes)

Split: each job is profiled once as it is (``JOBS``); every change is predicted from that profile, and then made and
profiled itself. Nothing is fitted. Limits of disk and cores are control groups', as on emulated clusters. Results are
kept in ``data/this_machine.csv``, a line a stall, and a change that is in it is not measured again: so a run that was
interrupted goes on where it was. It wants a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np

from bench import recorded
from bench.machine import ROOT
from bench.predict.errors import Prediction, coverage, evidence
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load
from stash.core.formatting import plus_minus
from stash.core.records.profile import Profile
from stash.core.units import Scale
from stash.predict.changes import changes
from stash.predict.draws import Draws, intervals
from stash.predict.forecast import Forecast
from stash.predict.forecasting import base_of, what_if

RESULTS = Path(__file__).parent / "data" / "this_machine.csv"
DATA = ROOT / "data" / "images"
PROFILES = ROOT / "data" / "this_machine"
"""Profiles of the jobs as they are, so that a run that goes on need not make them again."""
FIELDS = ("configuration", "stall", "measured", "predicted", "low", "high", "as_of")
_MS = Scale("ms", 1e-3, 1)
BUDGET, AROUND = 40.0, 18.0
"""Seconds of a profile's blocks, and of all else: starting, warming up, ending."""


@dataclass(frozen=True)
class TrainingJob:
    """One of the zoo's workloads, and how it is run."""

    workload: str
    image: int
    ranks: int = 1
    batch: int = 8
    workers: int = 1
    bucket: int | None = None
    """MiB; ``None``: DistributedDataParallel's own."""
    disk: str | None = None
    cpus: int | None = None

    @property
    def name(self) -> str:
        limits = [f"disk {self.disk}"] * (self.disk is not None) + [f"{self.cpus} cpus"] * (self.cpus is not None)
        return ", ".join([f"{self.workload} on {self.ranks}", f"batch {self.batch}", *limits])


@dataclass(frozen=True)
class Change:
    """What is asked of ``stash whatif`` about a job, and the job with that done to it."""

    job: TrainingJob
    typed: Mapping[str, str] = field(hash=False)
    done: TrainingJob

    @property
    def name(self) -> str:
        return f"{self.job.name}: " + ", ".join(f"{option} {text}" for option, text in self.typed.items())


TWO = TrainingJob("resnet18", 64, ranks=2)
ONE = TrainingJob("squeezenet1_0", 96)
SLOW_DISK = TrainingJob("shufflenet_v2_x0_5", 64, disk="4MB/s")
TWO_CPUS = TrainingJob("squeezenet1_0", 96, cpus=2)


def _changes() -> Iterator[Change]:
    for batch in (4, 16, 32):
        yield Change(TWO, {"batch": str(batch)}, replace(TWO, batch=batch))
    for bucket in (1, 4):
        yield Change(TWO, {"bucket": str(bucket)}, replace(TWO, bucket=bucket))
    yield Change(TWO, {"gpus": "1"}, replace(TWO, ranks=1))
    yield Change(TWO, {"workers": "2"}, replace(TWO, workers=2))
    yield Change(TWO, {"batch": "16", "bucket": "4"}, replace(TWO, batch=16, bucket=4))
    for batch in (4, 16, 32):
        yield Change(ONE, {"batch": str(batch)}, replace(ONE, batch=batch))
    for workers in (0, 2):
        yield Change(ONE, {"workers": str(workers)}, replace(ONE, workers=workers))
    for disk in ("2MB/s", "8MB/s", "16MB/s"):
        yield Change(SLOW_DISK, {"disk": disk}, replace(SLOW_DISK, disk=disk))
    yield Change(SLOW_DISK, {"disk": "8MB/s", "workers": "2"}, replace(SLOW_DISK, disk="8MB/s", workers=2))
    yield Change(TWO_CPUS, {"cpus": "1"}, replace(TWO_CPUS, cpus=1))


CHANGES = tuple(_changes())


def command(job: TrainingJob, data: Path, output: Path, budget: float) -> list[str]:
    """What profiles the job. A rank computes on one core, so that loaders find theirs."""
    words = ["profile", "--nproc-per-node", str(job.ranks), "--budget", str(budget), "-o", str(output)]
    words += ["-m", "stash.lab.zoo.train", "--workload", job.workload, "--data", str(data)]
    words += ["--image-size", str(job.image), "--batch", str(job.batch), "--workers", str(job.workers)]
    words += [] if job.bucket is None else ["--bucket-mb", str(job.bucket)]
    return [sys.executable, "-m", "stash", *words]


def measure(job: TrainingJob, data: Path, output: Path, budget: float) -> Profile:
    """A profile of the job, within its limits (root); raises RuntimeError with what the job printed last."""
    words, alone = command(job, data, output, budget), {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    if job.disk is None and job.cpus is None:
        done = subprocess.run(words, env={**os.environ, **alone}, capture_output=True, text=True, check=False)
        code, output = done.returncode, done.stdout + done.stderr
    else:
        from stash.lab.testbed.bed import Testbed

        with Testbed(1, job.ranks, disk=job.disk, cpus=job.cpus, disk_path=data) as bed:
            started = bed.run(words, env=alone)
            code, output = started.wait(budget + 120), started.output
    if code:
        raise RuntimeError(f"{job.name}: exit code {code}\n{output[-2000:]}")
    return load(output)


def as_it_is(job: TrainingJob, data: Path, budget: float) -> Profile:
    """The profile that predictions are made from: the kept one, or a new one that is kept."""
    kept = PROFILES / f"{job.name.replace('/', ' per ').replace(', ', ' ').replace(' ', '-')}.stash.json"
    if kept.exists():
        return load(kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    return measure(job, data, kept, budget)


def compare(wanted: Sequence[Change], data: Path, budget: float) -> None:
    """Predict each change, print it, then make it and measure; a line of each stall is kept."""
    for change in wanted:
        predicted = what_if(base_of(as_it_is(change.job, data, budget)), changes(change.typed))
        step = predicted.breakdown.step
        print(f"{change.name}: predicted {_MS.text(step.value)} {plus_minus(step, _MS)}", flush=True)
        output = PROFILES / "measured.stash.json"
        found = attribute(measure(change.done, data, output, budget))
        output.unlink(missing_ok=True)
        new = lines(change.name, predicted, found)
        keep(RESULTS, new)
        for line in new:
            print(*line, sep="  ", flush=True)


def lines(name: str, predicted: Forecast, found: Breakdown) -> list[tuple[object, ...]]:
    """The step, and every stall that was both predicted and measured, in seconds."""
    measured = {stall.name: stall.seconds for stall in found.stalls}
    every = [("step", found.step_seconds, predicted.breakdown.step)]
    every += [(s.name, measured[s.name], s.time) for s in predicted.breakdown.stalls if s.name in measured]
    today = date.today().isoformat()
    return [(name, stall, seconds, time.value, time.low, time.high, today) for stall, seconds, time in every]


def keep(path: Path, new: Sequence[tuple[object, ...]]) -> None:
    """The file with these lines in the place of older ones of the same configuration."""
    kept = [row for row in recorded.rows(path) if row["configuration"] != new[0][0]]
    recorded.write(path, FIELDS, [*([row[name] for name in FIELDS] for row in kept), *new])


def prediction(row: dict[str, str]) -> Prediction:
    """A row as a prediction whose draws have its mean and its ends; without known ends every draw is the mean."""
    draws, value = Draws(), float(row["predicted"])
    drawn = np.full(draws.count, value)
    if row["low"] and row["high"]:
        low, high = float(row["low"]), float(row["high"])
        drawn = np.interp(draws.uniforms("kept"), [0.0, 0.025, 0.975, 1.0], [low, low, high, high])
        drawn += value - intervals(drawn[None, :])[0].value
    return Prediction(row["stall"], row["configuration"], float(row["measured"]), drawn)


def section() -> str:
    kept, title = recorded.rows(RESULTS), "Real training on one machine"
    if not kept:
        return f"## {title}\n\nNot measured yet: `python -m bench.predict.this_machine` (root) does."
    dates = sorted(row["as_of"] for row in kept)
    steps = [prediction(row) for row in kept if row["stall"] == "step"]
    split = (
        f"{len(steps)} changes of {len({each.name.split(':')[0] for each in steps})} jobs of the zoo on two cores, "
        f"measured between {dates[0]} and {dates[-1]}; {coverage(steps):.0%} of the steps are in the interval. "
        "*Split*: each job's profile as it is calibrates, and every change of it is predicted before it is made "
        "and measured."
    )
    return evidence(title, split, steps)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.predict.this_machine", description=__doc__)
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    parser.add_argument("--only", metavar="WORDS", default="", help="changes whose name contains this, again")
    parser.add_argument("--data", type=Path, default=DATA, help="of `stash lab dataset make images` (make demo)")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, metavar="SECONDS", help="of each profile (default 40)"
    )
    options = parser.parse_args()
    done = {row["configuration"] for row in recorded.rows(RESULTS)}
    wanted = [each for each in CHANGES if options.only in each.name and (options.only or each.name not in done)]
    if options.plan:
        for each in wanted:
            print(each.name)
        profiles = len(wanted) + len({each.job for each in wanted})
        print(f"{profiles} profiles, about {profiles * (options.budget + AROUND) / 60:.0f} minutes")
        return
    if not options.data.is_dir():
        parser.error(
            f"{options.data} does not exist; `stash lab dataset make images {options.data} --count 600` makes it"
        )
    compare(wanted, options.data, options.budget)
    print(f"kept in {RESULTS.relative_to(ROOT)}; `python -m bench.predict` writes the page")


if __name__ == "__main__":
    main()
