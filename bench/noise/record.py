"""Profile jobs of known truth beside other work: ``python -m bench.noise.record --out DIR [--minutes N]``.

Every job of ``jobs`` beside every kind of ``disturbances``, in an order drawn at random, so that what is there after
an interruption is a fair sample; called again it goes on. Jobs that compute have no truth by hand: before such a run
a *reference* is taken of the same job with nothing beside it, and going before whatever else the machine does, unless
there is one not older than an hour.
Needs root, for testbeds and control groups.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.machine import DATA, machine
from bench.noise import accounts, disturbances
from bench.noise.jobs import JOBS, Emulated, Job, Wish, slug
from bench.noise.recordings import Folder, Recording
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


def record(folder: Folder, take: Take, wish: Wish, reference: bool = False) -> Recording:
    """Take one profile and keep it; a job that fails is kept as failed."""
    count = sum(1 for one in folder.recordings() if one.reference and one.job == take.job.name)
    name = f"{slug(take.job.name, take.reference)}--reference-{count + 1}" if reference else take.name
    beside = "nothing" if reference else take.disturbance
    limit = accounts.CORES_OF_QUOTA if take.disturbance == "quota" else None
    with (
        take.job.ready(crowded=take.disturbance == "crowded") as ready,
        accounts.group(limit, first=reference) as group,
        tempfile.TemporaryDirectory() as place,
        disturbances.beside(beside, SCRATCH / beside),
    ):
        if beside != "nothing":
            time.sleep(SETTLE)
        began, when, failed, artefact = time.monotonic(), time.time(), "", None
        with accounts.Others(group) as others:
            try:
                artefact = ready.start(Path(place), group.words, wish)
            except (RuntimeError, StashError, subprocess.SubprocessError) as error:
                failed = str(error)[-2000:]
        found = Recording(
            name=name,
            job=take.job.name,
            disturbance=take.reference if reference else take.disturbance,
            reference=reference,
            when=round(when, 1),
            machine=machine(),
            budget=wish.budget,
            truth=ready.truth,
            cause=ready.cause,
            slow_rank=ready.slow_rank,
            others=tuple(round(cores, 2) for cores in others.cores()),
            seconds=round(time.monotonic() - began, 1),
            failed=failed,
        )
        folder.add(found, artefact)
    return found


def refer(folder: Folder, take: Take, wish: Wish, fresh: float) -> None:
    """Take a reference for a job that computes, unless there is a fresh one, or two if the machine was not quiet."""
    if isinstance(take.job, Emulated):
        return
    known = [one for one in folder.references(take.job.name, take.reference) if time.time() - one.when < fresh]
    while len(known) < TRIES and not any(one.others_mean < QUIET for one in known):
        accounts.quiet(QUIET, PATIENCE)
        found = record(folder, take, wish, reference=True)
        tell(found)
        known.append(found)


def refer_again(folder: Folder, only: str, wish: Wish) -> None:
    """Take another reference of each job that computes, where those there are were not quiet enough."""
    wanted = {(take.job.name, take.reference): take for take in takes(only) if not isinstance(take.job, Emulated)}
    for take in wanted.values():
        accounts.quiet(QUIET, PATIENCE)
        tell(record(folder, take, wish, reference=True))


def tell(found: Recording, left: int | None = None) -> None:
    """A line on what was taken."""
    outcome = f"FAILED: {found.failed.strip().splitlines()[-1]}" if found.failed else f"{found.seconds:.0f} s"
    rest = "" if left is None else f"  ({left} left)"
    print(f"{found.name}: {outcome}, others {found.others_mean:.2f} cores{rest}", file=sys.stderr, flush=True)


def main() -> None:
    """Record what is missing until all is there or the time is up."""
    parser = argparse.ArgumentParser(prog="python -m bench.noise.record", description=__doc__)
    parser.add_argument("--only", default="", help="jobs and disturbances whose `JOB + DISTURBANCE` contains this")
    parser.add_argument("--budget", type=float, default=30, help="seconds of measuring for each profile")
    parser.add_argument("--noise", type=float, help="per cent; a small one measures for the whole budget")
    parser.add_argument("--minutes", type=float, default=600, help="begin no profile after this time")
    parser.add_argument("--fresh", type=float, default=FRESH / 60, help="minutes for which a reference is of use")
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--references", action="store_true", help="only take another reference of each job")
    parser.add_argument("--list", action="store_true", help="only say what would be recorded")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends, too
    folder, wish = Folder(options.out.resolve()), Wish(options.budget, options.precision)
    if options.references:
        refer_again(folder, options.only, wish)
        return
    wanted = list(missing(folder, options.only))
    if options.list:
        print("\n".join(f"{take.job.name} + {take.disturbance}" for take in wanted))
        return
    end = time.monotonic() + 60 * options.minutes
    for number, take in enumerate(wanted, 1):
        if time.monotonic() > end:
            print(f"time is up: {len(wanted) - number + 1} left", file=sys.stderr)
            break
        try:
            refer(folder, take, wish, 60 * options.fresh)
            tell(record(folder, take, wish), len(wanted) - number)
        except (StashError, RuntimeError) as error:  # a testbed that was not made, a disturbance that ended
            print(f"{take.name}: not recorded: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
