"""Recorded jobs of two gloo ranks: what their traces say against what the jobs' own stopwatches clocked.

``python -m bench.trace.truth`` prints a line for each job of ``tests/recorded/traces``; ``--record FOLDER`` runs the
jobs of ``bench/trace/job.py`` and records all again.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from stash.trace.command import read_job

RECORDED = Path("tests/recorded/traces")
_PARTS = {
    "computing": ("compute", "host"),
    "loop": ("loop",),
    "input": ("input",),
    "exchange": ("exchange",),
    "contention": ("contention",),
}
"""What a stopwatch can tell, and the parts of a trace's step that it is."""


@dataclass(frozen=True)
class JobTruth:
    """One job: errors as shares of its step, by part, and the rank that was late."""

    name: str
    errors: Mapping[str, float]
    late: int | None
    """By the stopwatches; ``None`` where no rank is late by 5 % of the step."""
    blamed: int | None

    @property
    def largest(self) -> float:
        return max(map(abs, self.errors.values()))


def check_job(folder: Path) -> JobTruth:
    """A job's traces against its truth."""
    trace = read_job([str(folder)])
    counted = [step.number for step in trace.steps if not step.why_left_out]
    first = min(step.number for step in trace.steps)
    truth = json.loads((folder / "truth").read_text())
    clocked = [_stopwatch_parts(truth, number - first) for number in counted]
    step = trace.step_seconds
    errors = {}
    for name, parts in _PARTS.items():
        if name in clocked[0]:
            found = sum(part.seconds for part in trace.traced if part.name in parts)
            errors[name] = (found - fmean(fmean(each[name]) for each in clocked)) / step
    waits = (
        [fmean(each["contention"][rank] for each in clocked) for rank in range(len(truth))]
        if clocked[0]["met"]
        else []
    )
    late = None
    if waits and max(waits) > 0.05 * step:
        late = waits.index(min(waits))
    worst = max(trace.ranks, key=lambda rank: rank.late_seconds or 0.0)
    return JobTruth(folder.name, errors, late, None if late is None else worst.rank)


def _stopwatch_parts(truth: list[list[dict[str, Any]]], number: int) -> dict[str, Any]:
    """One step by the stopwatches: for each part, seconds of each rank."""
    steps = [rank[number] for rank in truth]
    waits, moves = [0.0] * len(steps), [0.0] * len(steps)
    meetings = list(zip(*(step["met"] for step in steps), strict=True))
    for meeting in meetings:
        there = max(begin for begin, _ in meeting)
        for rank, (begin, end) in enumerate(meeting):
            waits[rank] += there - begin
            moves[rank] += end - there
    found: dict[str, Any] = {name: [step[name] for step in steps] for name in ("loop", "input")}
    found["met"] = len(meetings)
    if meetings:
        found |= {
            "computing": [step["compute"] for step in steps],
            "exchange": moves,
            "contention": waits,
        }
    return found


def check_all(folder: Path = RECORDED) -> Iterator[JobTruth]:
    """Every recorded job."""
    for job in sorted(each for each in folder.iterdir() if (each / "truth").exists()):
        yield check_job(job)


def keep_recording(recorded: Path, folder: Path) -> None:
    """A job's traces and truth, packed, without the names of files here."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = [json.loads(path.read_text()) for path in sorted(recorded.glob("rank*.truth"))]
    begin = min(step["begin"] for rank in truth for step in rank)
    for rank in truth:
        for step in rank:
            step["met"] = [[round(moment - begin, 6) for moment in pair] for pair in step["met"]]
            step |= {name: round(step[name] - begin, 6) for name in ("begin", "end")}
            step |= {name: round(step[name], 6) for name in ("input", "compute", "loop")}
    (folder / "truth").write_text(json.dumps(truth))
    for path in sorted(recorded.glob("rank*.json")):
        text = re.sub(rb'"traceName": "[^"]*"', b'"traceName": ""', path.read_bytes())
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(text, 9, mtime=0))


def _record(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as there:
        words = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            "bench/trace/job.py",
            there,
        ]
        subprocess.run([sys.executable, *words], check=True)
        for job in sorted(Path(there).iterdir()):
            keep_recording(job, folder / job.name)


def main() -> None:
    if sys.argv[1:2] == ["--record"]:
        _record(Path(sys.argv[2]))
        return
    found = list(check_all())
    for job in found:
        errors = " ".join(f"{name} {error:+.1%}" for name, error in job.errors.items())
        print(f"{job.name:16} late {job.late!s:5} blamed {job.blamed!s:5} {errors}")
    errors = [abs(error) for job in found for error in job.errors.values()]
    right = sum(job.late == job.blamed for job in found if job.late is not None)
    late = sum(job.late is not None for job in found)
    print(
        f"{len(found)} jobs: mean error {fmean(errors):.2%} of the step, largest {max(errors):.2%}; "
        f"late rank right in {right} of {late}"
    )


if __name__ == "__main__":
    main()
