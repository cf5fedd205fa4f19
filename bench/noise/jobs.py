"""The jobs that are profiled beside other work: emulated ones whose truth is worked out, and ones that compute.

Knows how each is started as users start it, in a folder of its own; not what runs beside it, nor what the profile
says. Emulated jobs get no real-time priority here, which a testbed else gives them: they suffer as others do.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import run
from bench.noise.disturbances import OTHERS, TRAIN
from bench.truth import jobs as truth_jobs
from bench.truth.cases import Case, Rates, find_cases

ORDINARY = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", "--")
"""What follows may not take a priority."""
CROWD = 3
"""Ranks of a job that is crowded: more than the cores of the smallest machine that it is meant for."""
_PATIENCE = 300.0


Start = Callable[[Path, Sequence[str], float], Path]
"""Profiles in that folder, these words before the command, for so many seconds; the file that came of it."""


@dataclass(frozen=True)
class Ready:
    """A job that has all it needs, and its truth in seconds per stall; ``None`` if a quiet profile must tell."""

    start: Start
    truth: dict[str, float] | None
    cause: tuple[str, ...] | None
    """The stalls to be named, the largest first."""
    slow_rank: int | None


@dataclass(frozen=True)
class Emulated:
    """A case of the truth suite."""

    name: str
    disturbances: tuple[str, ...] = tuple(OTHERS)

    @property
    def case(self) -> Case:
        return next(case for case in find_cases(self.name) if case.name == self.name)

    @contextlib.contextmanager
    def ready(self, crowded: bool = False) -> Iterator[Ready]:
        """With its cluster set up and verified."""
        case = self.case
        truth_jobs.files(case)
        with truth_jobs.cluster(case) as (bed, rates):

            def start(folder: Path, before: Sequence[str], budget: float) -> Path:
                words = ("env", "-C", str(folder), *before, *ORDINARY)
                truth_jobs.profile(case, folder, bed, budget, None, words)
                return folder / "run.stash.json"

            yield Ready(start, self.truth(rates), case.cause, case.slow_rank)

    def truth(self, rates: Rates) -> dict[str, float]:
        """By hand."""
        case = self.case
        return case.truth(case, rates)


@dataclass(frozen=True)
class Computing:
    """Real layers on a thread for each rank, by ``train.py`` with these options."""

    name: str
    options: tuple[str, ...] = ()
    ranks: int = 1
    slow_rank: int | None = None
    disturbances: tuple[str, ...] = field(default=tuple(OTHERS))

    @contextlib.contextmanager
    def ready(self, crowded: bool = False) -> Iterator[Ready]:
        """At once; ``crowded`` with more ranks."""
        ranks = CROWD if crowded else self.ranks
        slow = () if self.slow_rank is None else ("--slow-rank", str(self.slow_rank))

        def start(folder: Path, before: Sequence[str], budget: float) -> Path:
            output = folder / "run.stash.json"
            # Stash starts no more ranks than cores; a launcher of the job's own does.
            launcher = (
                ("--", sys.executable, "-m", "torch.distributed.run", "--standalone")
                if crowded
                else ()
            )
            command = [
                *(
                    *before,
                    sys.executable,
                    "-m",
                    "stash",
                    "profile",
                    "--budget",
                    f"{budget:g}",
                    "-o",
                    str(output),
                    *launcher,
                ),
                *("--nproc-per-node", str(ranks), str(TRAIN), *self.options, *slow),
            ]
            run(command, folder, budget + _PATIENCE)
            return output

        yield Ready(start, None, None, self.slow_rank)


Job = Emulated | Computing
_LIMITED = (*OTHERS, "quota", "crowded")

JOBS: tuple[Job, ...] = (
    Emulated("nothing, 1 rank"),
    Emulated("nothing, 2 ranks"),
    Emulated("nothing, 2 nodes"),
    Emulated("network 1x, 2 nodes, not overlapped"),
    Emulated("network 1x in set time, overlapped"),
    Emulated("interconnect 1x, not overlapped"),
    Emulated("interconnect 1x in set time, overlapped"),
    Emulated("prep 1x, no workers"),
    Emulated("prep 0.8x, hidden by 1 worker"),
    Emulated("prep 4x, 2 workers, 2 ranks"),
    Emulated("fetch 1x, no workers"),
    Emulated("fetch 3x, 2 workers"),
    Emulated("rank 1 slow, 2x"),
    Emulated("interconnect 2x and prep 1x"),
    Computing("computes, 1 rank", ("--no-loader",)),
    Computing("computes, 2 ranks", ("--no-loader",), 2, disturbances=_LIMITED),
    Computing("hashes while it trains", ("--hashes", "60")),
    Computing("hashes while it trains, 2 ranks", ("--hashes", "60"), 2, disturbances=_LIMITED),
    Computing("a worker hashes beside it", ("--workers", "1", "--hashes", "60")),
    Computing(
        "workers compete, 2 ranks", ("--workers", "2", "--hashes", "100"), 2, disturbances=_LIMITED
    ),
    Computing("a worker sleeps", ("--workers", "1", "--sleep", "0.12")),
    Computing(
        "workers sleep, 2 ranks", ("--workers", "2", "--sleep", "0.3"), 2, disturbances=_LIMITED
    ),
    Computing(
        "large gradients, 2 ranks",
        ("--no-loader", "--linear", "--width", "1536"),
        2,
        disturbances=_LIMITED,
    ),
    Computing("rank 1 computes more", ("--no-loader",), 2, slow_rank=1, disturbances=_LIMITED),
)


def slug(*words: str) -> str:
    """A file's name made of these words."""
    return "--".join(re.sub(r"[^a-z0-9.]+", "-", word.lower()).strip("-") for word in words)
