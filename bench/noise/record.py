"""Profile jobs of known truth beside other work: ``python -m bench.noise.record --out DIR``.

Every job of ``jobs`` beside every kind of ``disturbances``, in an order drawn at random, so that what is there after
an interruption is a fair sample; called again it goes on. Jobs that compute have no truth by hand: before such a run
a *reference* is taken of the same job with nothing beside it, and going before whatever else the machine does, unless
there is one not older than an hour.
Needs root, for testbeds and control groups.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.machine import DATA, arguments, machine
from bench.noise import accounts, disturbances
from bench.noise.jobs import JOBS, Emulated, Job, slug
from bench.noise.recordings import Folder, Recording
from bench.table import progress
from stash.core.errors import StashError

SCRATCH = DATA / "noise"
"""What disturbances work on."""
SEED = 30
FRESH = 3600.0
"""Seconds for which a reference tells the truth."""
QUIET = 0.15
"""Cores that others may take during a reference."""
TRIES = 2
"""Of a reference within that time, should others take more."""
PATIENCE = 20.0
"""Seconds to wait for a quiet machine before a reference."""
SETTLE = 2.0
"""Seconds that a disturbance runs before the command is typed."""


@dataclass(frozen=True)
class Take:
    """One profile to take."""

    job: Job
    disturbance: str

    @property
    def name(self) -> str:
        return slug(self.job.name, self.disturbance)

    @property
    def reference(self) -> str:
        """Under which of the job's own limits its reference is taken."""
        return self.disturbance if self.disturbance in disturbances.OWN else "nothing"


def takes(only: str = "") -> list[Take]:
    """All of the matrix whose names contain ``only``, in their order, which is the same for everybody."""
    every = [Take(job, disturbance) for job in JOBS for disturbance in job.disturbances]
    random.Random(SEED).shuffle(every)
    return [take for take in every if only in f"{take.job.name} + {take.disturbance}"]


def missing(folder: Folder, only: str) -> Iterator[Take]:
    """Those that there is no profile of yet."""
    done = {one.name for one in folder.recordings() if not one.failed}
    return (take for take in takes(only) if take.name not in done)


def record(folder: Folder, take: Take, budget: float, reference: bool = False) -> Recording:
    """Take one profile and keep it; a job that fails is kept as failed."""
    count = sum(1 for one in folder.recordings() if one.reference and one.job == take.job.name)
    name = (
        f"{slug(take.job.name, take.reference)}--reference-{count + 1}" if reference else take.name
    )
    beside = "nothing" if reference else take.disturbance
    limit = accounts.CORES_OF_QUOTA if take.disturbance == "quota" else None
    with (
        take.job.ready(crowded=take.disturbance == "crowded") as ready,
        accounts.group(limit, first=reference) as group,
        tempfile.TemporaryDirectory() as place,
        disturbances.run_other_work(beside, SCRATCH / beside),
    ):
        if beside != "nothing":
            time.sleep(SETTLE)
        began, when, failed, artefact = time.monotonic(), time.time(), "", None
        with accounts.Others(group) as others:
            try:
                artefact = ready.start(Path(place), group.words, budget)
            except (RuntimeError, StashError, subprocess.SubprocessError) as error:
                failed = str(error)[-2000:]
        found = Recording(
            name=name,
            job=take.job.name,
            disturbance=take.reference if reference else take.disturbance,
            reference=reference,
            when=round(when, 1),
            machine=machine(),
            budget=budget,
            truth=ready.truth,
            cause=ready.cause,
            slow_rank=ready.slow_rank,
            others=tuple(round(cores, 2) for cores in others.cores()),
            seconds=round(time.monotonic() - began, 1),
            failed=failed,
        )
        folder.add(found, artefact)
    return found


def refer(folder: Folder, take: Take, budget: float) -> None:
    """Take a reference for a job that computes, unless there is a fresh one, or two if the machine was not quiet."""
    if isinstance(take.job, Emulated):
        return
    known = [
        one
        for one in folder.references(take.job.name, take.reference)
        if time.time() - one.when < FRESH
    ]
    while len(known) < TRIES and not any(one.others_mean < QUIET for one in known):
        accounts.quiet(QUIET, PATIENCE)
        found = record(folder, take, budget, reference=True)
        tell(found)
        known.append(found)


def tell(found: Recording) -> None:
    """A line on what was taken."""
    outcome = (
        f"FAILED: {found.failed.strip().splitlines()[-1]}"
        if found.failed
        else f"{found.seconds:.0f} s"
    )
    progress(found.name, outcome, f"others {found.others_mean:.2f} cores")


def main() -> None:
    """Record what is missing."""
    options = arguments(
        __doc__,
        out=("build/noise", "folder of the recordings"),
        only=("", "jobs and disturbances whose `JOB + DISTURBANCE` contains this"),
        budget=(30.0, "seconds of measuring for each profile"),
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends, too
    folder = Folder(Path(options.out).resolve())
    wanted = list(missing(folder, options.only))
    for left, take in reversed(list(enumerate(reversed(wanted)))):
        try:
            refer(folder, take, options.budget)
            tell(record(folder, take, options.budget))
        except (
            StashError,
            RuntimeError,
        ) as error:  # a testbed that was not made, a disturbance that ended
            progress(take.name, f"not recorded: {error}")
        progress(f"{left} left")


if __name__ == "__main__":
    main()
