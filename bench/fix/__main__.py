"""What ``stash fix`` promises against what its patch brings, job by job.

Each script is given to ``stash fix`` as a user types it; then the script as it was, the patched one and a repair by
hand run by themselves, without Stash, in turns, and time their own steps. *Promised* is what the page says,
*realised* what the stopwatch says; *by hand* is what a person saves who knows the fault. Jobs are named by part of
their names. What came of a job is kept in ``bench/fix/data``: started again, only the rest is run.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.fix.jobs import JOBS, Job
from bench.fix.rows import Outcome, keep, read, sign_outcome
from bench.fix.stopwatch import Arm, call, stopwatch
from bench.machine import ROOT, STASH, arguments
from bench.table import progress, report, table

WITHIN, ROUNDS = "5m", 3
"""Time of each ``stash fix``, and rounds of the stopwatch."""
KEPT = ROOT / "build" / "fix"
"""Where the record of every job stays."""


def run(job: Job) -> Outcome:
    """Fix one job and hold it to the stopwatch; raises RuntimeError with what was printed if that fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(job.script)
        record, fixed = _run_fix(job, folder, (*STASH, "fix", "--budget", WITHIN))
        took = time.monotonic() - began
        arms = {"typed": Arm(job.script)} | (
            {"by hand": Arm(job.repaired_script)} if job.repair else {}
        )
        arms |= {} if fixed is None else {"fixed": fixed}
        step = record["step_seconds"]
        after = record["after_seconds"] or step
        expected = {arm: step if arm == "typed" else after for arm in arms}
        times = (
            stopwatch(folder, arms, expected, ROUNDS) if len(arms) > 1 else {"typed": [step] * 2}
        )
        means = {arm: float(np.mean(each)) for arm, each in times.items()}
        gains = np.array(times["typed"]) - np.array(times.get("fixed", times["typed"]))
        kept = tuple(each["name"] for each in record["tried"] if each["standing"] == "kept")
        together = record["together"] or {"value": 0.0}
        doubt = (
            (together["high"] - together["low"]) / 2 if together.get("high") is not None else None
        )
        found = Outcome(
            job,
            means["typed"],
            means.get("fixed"),
            float(gains.std(ddof=1) / len(gains) ** 0.5),
            means.get("by hand"),
            together["value"],
            kept,
            took,
            time.monotonic() - began,
            doubt=doubt,
        )
        return sign_outcome(found)


def _run_fix(job: Job, folder: Path, command: Sequence[str]) -> tuple[dict[str, Any], Arm | None]:
    """The record of a search, and the script with what it keeps; ``None`` if that is nothing, or written by hand."""
    (folder / "train.fix.patch").unlink(missing_ok=True)
    call((*command, "--json", "-o", "train.fix.json", "train.py"), folder)
    shutil.copy(
        folder / "train.fix.json", KEPT / f"{re.sub(r'[^a-z0-9]+', '-', job.name)}.fix.json"
    )
    record = json.loads((folder / "train.fix.json").read_text())
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    if not kept or any(each["written"] == "explained" for each in kept):
        return record, None
    words = tuple(
        word for each in kept if each["written"] == "command" for word in each["how"].split()
    )
    variables = {name: value for each in kept for name, value in each["variables"].items()}
    return record, Arm(_apply_patch(folder, job.script), words, variables)


def _apply_patch(folder: Path, script: str) -> str:
    """The script with the patch applied, by git; as it is if there is none."""
    patch = folder / "train.fix.patch"
    if patch.exists():
        call(("git", "init", "-q", "."), folder)
        call(("git", "apply", patch.name), folder)
    text = (folder / "train.py").read_text()
    (folder / "train.py").write_text(script)
    return text


HEADS = (
    "job",
    "step, ms",
    "kept",
    "promised, ms",
    "realised, ms",
    "off",
    "by hand, ms",
    "took",
    "run",
)
"""``off`` is of the step."""


def row(found: Outcome) -> list[str]:
    """One line of the table."""
    off = (found.promised - found.saved_seconds) / found.typed
    hand = "" if found.by_hand is None else f"{(found.typed - found.by_hand) * 1e3:.2f}"
    doubt = "" if found.doubt is None else f" ± {found.doubt * 1e3:.2f}"
    return [
        found.job.name,
        f"{found.typed * 1e3:.2f}",
        ", ".join(found.kept) or "nothing",
        f"{found.promised * 1e3:.2f}{doubt}",
        "a person writes it"
        if found.kept and found.fixed is None
        else f"{found.saved_seconds * 1e3:.2f} ± {2 * found.spread * 1e3:.2f}",
        f"{off:+.1%}" if found.fixed is not None else "",
        hand,
        f"{found.took:.0f} s",
        f"{found.day}, {found.commit}, {found.machine.partition(', ')[0]}",
    ]


def summary(all_found: Sequence[Outcome]) -> list[tuple[str, str, str]]:
    """Each goal, and what was reached."""
    kept = [each for each in all_found if each.fixed is not None]
    sound = [each for each in all_found if not each.job.repair and not each.job.knobs]
    hand = [each for each in all_found if each.by_hand is not None]
    off = [(each.promised - each.saved_seconds) / each.typed for each in kept]
    by_machine: dict[str, list[float]] = {}
    for error, outcome in zip(off, kept, strict=True):
        by_machine.setdefault(outcome.machine.partition(", ")[0], []).append(abs(error))
    held = [
        abs(each.promised - each.saved_seconds) <= each.doubt + 2 * each.spread
        for each in kept
        if each.doubt
    ]
    faster = sum(each.saved_seconds > 0 for each in kept)
    slower = sum(each.saved_seconds < -2 * each.spread for each in kept)
    speeds = [(each.by_hand or 0.0) / (each.fixed or each.typed) for each in hand]
    return [
        (
            "promised against realised, median",
            f"{median(map(abs, off)):.1%}" if off else "–",
            "≤ 2 % of the step",
        ),
        *(
            (f"the same on {name}, median", f"{median(each):.1%}", "")
            for name, each in sorted(by_machine.items())
        ),
        ("the same with its sign, median", f"{median(off):+.1%}" if off else "–", "0"),
        ("promised and realised intervals meet", f"{sum(held)} of {len(held)}", "≥ 95 %"),
        ("kept and faster in later runs", f"{faster} of {len(kept)}", "≥ 95 %"),
        ("kept and slower", str(slower), "0"),
        (
            "of the speed of the repair by hand, median",
            f"{median(speeds):.0%}" if speeds else "–",
            "≥ 95 %",
        ),
        (
            "time of stash fix, longest",
            f"{max((each.took for each in all_found), default=0):.0f} s",
            "≤ 300 s",
        ),
        (
            "nothing to fix: kept something",
            f"{sum(bool(each.kept) for each in sound)} of {len(sound)}",
            "≤ 5 %",
        ),
        (
            "nothing to fix: longest time",
            f"{max((each.took for each in sound), default=0):.0f} s",
            "≤ 60 s",
        ),
        (
            "jobs so far",
            f"{len(all_found)} of {len(JOBS)}, {np.mean([each.whole for each in all_found] or 0):.0f} s each",
            "",
        ),
    ]


def main() -> int:
    names = arguments(__doc__, names=([], "parts of jobs' names; else all")).names
    KEPT.mkdir(parents=True, exist_ok=True)
    found, failed, rows = [], [], read(JOBS)
    for job in (job for job in JOBS if not names or any(part in job.name for part in names)):
        if job.name in rows:
            found.append(rows[job.name])
            continue
        try:
            found.append(run(job))
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            failed.append((job.name, " ".join(str(error).split())[-800:]))
            progress(job.name, "failed", failed[-1][1])
            continue
        keep(found[-1], JOBS)
        progress(*row(found[-1]))
    parts = [table(HEADS, map(row, found)), table(("goal", "reached", "wanted"), summary(found))]
    if failed:
        parts.append(table(("failed", "why"), failed))
    report(*parts)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
