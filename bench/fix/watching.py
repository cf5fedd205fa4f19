"""What watching costs the steps that ``stash fix`` times: a job by itself, in trials that watch it, in bare ones.

The three take turns, launch by launch, and each times the same script: by its own clock, by every step's stamps with
all that is recorded, and by when its steps end (``agent/runner/trial``). A short step shows most, so a job of
``bench.fix`` whose samples cost nothing is the usual one, as a person repairs it. ``python -m bench.fix.watching``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median

from bench.fix.jobs import JOBS
from bench.fix.stopwatch import TORCHRUN
from bench.machine import arguments
from bench.table import progress, report, table
from stash.measure.launcher import job as jobs
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.launcher.session import ProfileSession
from stash.measure.launcher.trials import Trials
from stash.measure.ranks import RankOptions, cluster

SCRIPT = "train.py"


def by_itself(steps: int) -> float:
    """Seconds of a step by the script's own clock; raises RuntimeError with what it printed without one."""
    done = subprocess.run((*TORCHRUN, SCRIPT, "--steps", str(steps)), capture_output=True, text=True, check=False)
    found = re.search(r"seconds a step ([\d.e-]+)", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout + done.stderr)
    return float(found[1])


def in_trial(trials: Trials, seconds: float) -> float:
    """Seconds of a step in a launch of ``stash fix``; raises RuntimeError if none was timed."""
    found = trials.run({}, {}, seconds)
    if found.step_seconds is None:
        raise RuntimeError(f"no step was timed: {found.failure}")
    return found.step_seconds + (found.epoch_seconds or 0.0)


def main() -> int:
    options = arguments(
        __doc__, job=("8 workers for", "part of a job's name"), rounds=(6, "launches of each"),
        seconds=(5.0, "of each launch"),
    )  # fmt: skip
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = next(each for each in JOBS if options.job in each.name)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.chdir(folder)
        Path(SCRIPT).write_text(chosen.repaired)
        where = cluster(RankOptions(), ranks=False)
        session = ProfileSession(jobs.script(SCRIPT, ()), where, ProfileOptions(budget=3.0))
        session.launches.passing = True
        session.request()
        session.run(lambda *_: None)
        watched, bare = (stack.enter_context(Trials(session, bare=each)) for each in (False, True))
        arms = {"watched": watched, "bare": bare}
        times: dict[str, list[float]] = {"by itself": [], "watched": [], "bare": []}
        for number in range(options.rounds):
            for name in list(times)[:: 1 if number % 2 == 0 else -1]:
                steps = max(20, round(options.seconds / median(times["by itself"] or [5e-3])))
                trials = arms.get(name)
                times[name].append(by_itself(steps) if trials is None else in_trial(trials, options.seconds))
                progress(name, f"{times[name][-1] * 1e3:.2f} ms")
        os.chdir("/")
    rows, own = [], fmean(times["by itself"])
    for name, each in times.items():
        ends = f"{min(each) * 1e3:.2f} to {max(each) * 1e3:.2f}"
        rows.append((name, f"{fmean(each) * 1e3:.2f}", ends, f"{fmean(each) / own - 1:+.0%}"))
    report(table((chosen.name, "mean, ms a step", "launches", "beside itself"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
