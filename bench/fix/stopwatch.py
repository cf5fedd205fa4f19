"""Scripts that time their own steps, run without Stash: what ``bench.fix`` holds promises to, and how far that holds.

A machine whose speed drifts between minutes gives two such measurements of one repair, made one after the other,
different results, too: no promise can be expected to be nearer to the second than the first is. ``python -m bench.fix
stopwatch`` prints how far they are apart, of jobs whose repair is known by hand.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from bench.fix.jobs import JOBS, Job
from bench.machine import ROOT
from bench.table import progress, report, table

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SECONDS = 6.0
"""Of a run, about."""
LONGEST = 4 * 3600.0
"""Seconds of any command, after which a job counts as failed."""


@dataclass(frozen=True)
class Arm:
    """A script that the stopwatch runs, with words of its command line and variables."""

    script: str
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def stopwatch(
    folder: Path, arms: Mapping[str, Arm], expected: Mapping[str, float], rounds: int
) -> dict[str, list[float]]:
    """Seconds of a step as each script times itself, round by round; ``expected``: about so many, for equal times."""
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for name, arm in arms.items():
        (folder / f"{name.replace(' ', '_')}.py").write_text(arm.script)
    for number in range(rounds):
        for name, arm in list(arms.items())[:: 1 if number % 2 == 0 else -1]:
            steps = str(max(20, round(SECONDS / expected[name])))
            command = (*TORCHRUN, f"{name.replace(' ', '_')}.py", "--steps", steps, *arm.words)
            times[name].append(float(call(command, folder, arm.variables, r"seconds a step ([\d.e-]+)")))
    return times


def call(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None, wanted: str = "") -> str:
    """What a command printed, or the part that is ``wanted``; with that it may have failed: gloo's threads at times
    abort a script that is done. Raises RuntimeError with all it printed."""
    here = {"PYTHONPATH": str(ROOT)} if "bench.fix.exhaustive" in command else {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **here, **(variables or {})}
    longest = LONGEST if here else 900.0
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=longest
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command)}: not done after {longest:.0f} s") from None
    found = re.search(wanted, done.stdout) if wanted else None
    if found is None and (wanted or done.returncode):
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return found[1] if found is not None else done.stdout


@dataclass(frozen=True)
class Twice:
    """What a repair by hand saves of a step, in seconds, by two stopwatches of which the second begins as the first
    ends."""

    job: Job
    typed: float
    """Seconds of a step, of both."""
    first: float
    second: float

    @property
    def apart(self) -> float:
        """Of the step."""
        return (self.second - self.first) / self.typed


def against_itself(job: Job, rounds: int) -> Twice:
    """One job twice; raises RuntimeError with what was printed if a script fails."""
    arms = {"typed": Arm(job.script), "by hand": Arm(job.repaired, variables=job.variables)}
    with tempfile.TemporaryDirectory() as name:
        near = {arm: times[0] for arm, times in stopwatch(Path(name), arms, dict.fromkeys(arms, 0.03), 1).items()}
        both = [stopwatch(Path(name), arms, near, rounds) for _ in range(2)]
    first, second = (float(np.mean(times["typed"]) - np.mean(times["by hand"])) for times in both)
    return Twice(job, float(np.mean([times["typed"] for times in both])), first, second)


def main(names: Sequence[str], rounds: int) -> int:
    """Jobs whose names contain one of ``names``, or all whose repair is known; the value is the exit code."""
    jobs = [job for job in JOBS if job.repair and (not names or any(part in job.name for part in names))]
    rows, apart = [], []
    for job in jobs:
        found = against_itself(job, rounds)
        apart.append(abs(found.apart))
        times = (f"{seconds * 1e3:.2f}" for seconds in (found.typed, found.first, found.second))
        rows.append((job.name, *times, f"{found.apart:+.1%}"))
        progress(*rows[-1])
    heads = ("job", "step, ms", "saved by hand, ms", "saved right after, ms", "apart, of the step")
    report(table(heads, rows), f"apart, median of {len(apart)}: {median(apart):.1%}" if apart else "no such job")
    return 0 if rows else 1
