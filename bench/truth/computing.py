"""How right a profile's ledger is on jobs that really compute: ``python -m bench.truth.computing [--only TEXT]``.

Each kind of ``computing_job`` times itself, untouched, before and after ``stash profile`` measures it. Told are each
row's seconds of a step by both, the error in points of the whole step, what the job's own two runs differ by, and
whether the printed interval held the truth, by itself and within that difference.

A row is what the job would be faster by without it. Of a job without workers the stopwatch says that; workers compete
with the step for cores, and those of a new epoch still start in its first steps: there it is the difference to runs
without input and without restarts. What ranks exchange is the difference to a run in which they do not.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.machine import STASH, arguments, machine, run
from bench.table import show
from bench.truth.computing_job import KINDS
from bench.truth.emulated import TORCHRUN

JOB = Path(__file__).with_name("computing_job.py")
ROWS = {
    "compute": ("compute", "collector", "contention"),
    "exchange": ("interconnect",),
    "input": ("prep", "fetch"),
} | {name: (name,) for name in ("loop", "epoch start", "evaluation", "checkpoint")}
"""The job's own rows, and those of Stash's ledger that say the same."""
SMALL = 0.005
"""Of the step: rows that are smaller by both are not judged."""
HEADS = (
    "kind",
    "row",
    "own, ms",
    "runs differ, ms",
    "ledger, ms",
    "error, points",
    "holds",
    "within runs",
    "says",
)


@dataclass(frozen=True)
class Judged:
    """One row of one kind; seconds of a step."""

    kind: str
    row: str
    own: tuple[float, float]
    found: float
    low: float | None
    high: float | None
    step: float
    says: str

    @property
    def truth(self) -> float:
        return fmean(self.own)

    @property
    def points(self) -> float:
        """Of the step."""
        return 100 * (self.found - self.truth) / self.step

    @property
    def apart(self) -> float:
        """Seconds by which the job's own two runs differ."""
        return abs(self.own[1] - self.own[0])

    def holds(self, more: float = 0.0) -> bool | None:
        """Whether the interval, wider by ``more`` at both ends, has the truth; ``None`` without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low - more <= self.truth <= self.high + more

    def cells(self) -> tuple[object, ...]:
        held = [
            {None: "–", True: "yes", False: "**no**"}[self.holds(more)]
            for more in (0.0, self.apart)
        ]
        times = (f"{1000 * seconds:.2f}" for seconds in (self.truth, self.apart, self.found))
        return (self.kind, self.row, *times, f"{self.points:+.1f}", *held, self.says)


def run_untouched(kind: str, seconds: float, folder: Path) -> dict[str, float]:
    """What the job says of itself: seconds of a step by row."""
    job = KINDS[kind]

    def run_job(*without: str) -> dict[str, float]:
        start = (*TORCHRUN, "--nproc-per-node", job.ranks) if job.ranks > 1 else (sys.executable,)
        words = [str(word) for word in (*start, JOB, kind, seconds, *without)]
        rows = json.loads(run(words, folder))
        return {name: value for name, value in rows.items() if name != "steps"}

    rows = run_job()
    if job.ranks > 1:
        alone = run_job("exchange")["compute"]
        return {**rows, "compute": alone, "exchange": rows["compute"] - alone}
    if not job.workers:
        return rows
    return take_differences(
        rows, run_job("input"), None if job.keeps_workers else run_job("restarts")
    )


def take_differences(
    rows: Mapping[str, float],
    without_input: Mapping[str, float],
    without_restarts: Mapping[str, float] | None,
) -> dict[str, float]:
    """Rows as what the job is faster by without input, and without restarts if it has any; they keep their sum."""
    whole = sum(rows.values())
    starts = rows["epoch start"]
    if without_restarts is not None:
        starts = without_restarts["epoch start"] + whole - sum(without_restarts.values())
    compute = without_input["compute"]
    moved = ("epoch start", "compute", "input")
    rest = sum(value for name, value in rows.items() if name not in moved)
    found = {"epoch start": starts, "compute": compute, "input": whole - starts - compute - rest}
    return {**rows, **found}


def run_profile(kind: str, budget: float, folder: Path) -> dict[str, Any]:
    """What Stash says of it, as ``stash show --json`` prints it."""
    ranks = ("--nproc-per-node", str(KINDS[kind].ranks)) if KINDS[kind].ranks > 1 else ()
    asked = ("--quiet", "--budget", str(budget), "-o", "job.stash.json", *ranks)
    run((*STASH, "profile", *asked, str(JOB), kind, "1e9"), folder)
    return json.loads(run((*STASH, "show", "job.stash.json", "--json"), folder))


def judge(
    kind: str, own: tuple[Mapping[str, float], Mapping[str, float]], answer: Mapping[str, Any]
) -> list[Judged]:
    """Each row that is of a size in either account."""
    rows = {row["name"]: row for row in answer["run"]["rows"]}
    step = fmean(sum(times.values()) for times in own)
    judged = []
    for name, theirs in ROWS.items():
        found = [rows[each] for each in theirs if each in rows]
        times = tuple(each.get(name, 0.0) for each in own)
        seconds = sum(row["seconds"] for row in found)
        if max(seconds, *times) < SMALL * step:
            continue
        known = [row for row in found if row["low"] is not None]
        main = found[0] if len(known) == 1 else {}
        rest = seconds - main.get("seconds", 0.0)
        low, high = (None if main.get(end) is None else main[end] + rest for end in ("low", "high"))
        says = answer["verdict"]["stall"] or answer["verdict"]["kind"]
        judged.append(Judged(kind, name, (times[0], times[1]), seconds, low, high, step, says))
    return judged


def main() -> None:
    asked = arguments(
        __doc__,
        only=("", "kinds whose name contains this"),
        seconds=(10.0, "of each run of the job by itself"),
        budget=(30.0, "of a profile"),
    )
    chosen = [kind for kind in KINDS if asked.only in kind]
    judged: list[Judged] = []

    def measure() -> Iterator[tuple[object, ...]]:
        for kind in chosen:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                before = run_untouched(kind, asked.seconds, folder)
                answer = run_profile(kind, asked.budget, folder)
                after = run_untouched(kind, asked.seconds, folder)
                rows = judge(kind, (before, after), answer)
            judged.extend(rows)
            yield from (row.cells() for row in rows)

    print(machine(), end="\n\n")
    show(HEADS, measure())
    errors = [abs(row.points) for row in judged]
    held = [(row.holds(), row.holds(row.apart)) for row in judged if row.holds() is not None]
    print(
        f"\n{len(chosen)} kinds, {len(judged)} rows: error {fmean(errors):.1f} points of the step in the mean, "
        f"{median(errors):.1f} in the middle, {max(errors):.1f} at most; of {len(held)} intervals "
        f"{sum(bool(alone) for alone, _ in held)} held the truth, {sum(bool(wide) for _, wide in held)} within what "
        "the job's own runs differ by."
    )


if __name__ == "__main__":
    main()
