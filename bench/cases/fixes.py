"""What ``stash fix`` makes of a case whose fault a setting cures: whether it finds it, proves it, and keeps its word.

*Found*: with a right knob (``truths.csv``) a step is shorter by 5 %. *Proven*: one of them is kept. What is kept is
then run by itself, in turns with the script as typed, by the script's own watch; *false* is a promise of which less
than half is there. What only a person can write is judged by ``FIXED=1``.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases.answers import command_of, folder_of, run, time_step
from bench.cases.truths import Case

HEADS = ("case", "found", "proven", "kept", "promised", "by itself", "false", "took, s")
_FOUND = 0.05
_ROUNDS = 3
_KEPT_WORD = 0.5
_PATIENCE = 1800.0


@dataclass(frozen=True)
class Fixed:
    """What was found; shares of the step."""

    crash: str = ""
    found: bool = False
    proven: bool = False
    kept: tuple[str, ...] = ()
    promised: float | None = None
    realised: float | None = None
    """``None`` where the script does not say what a step takes."""
    seconds: float = 0.0

    @property
    def is_false(self) -> bool:
        if self.promised is None or self.realised is None:
            return False
        return self.realised < _KEPT_WORD * self.promised


def fix(case: Case, budget: str, keep: Path) -> Fixed:
    """Run ``stash fix --apply`` as a user types it; its record and output stay in ``keep``."""
    kept = keep / f"{case.name.replace('/', '-')}.fix"
    with folder_of(case) as folder:
        options = ("--apply", "--budget", budget, "-o", "run.fix.json")
        ended = run(command_of(case, "fix", *options), folder, _PATIENCE)
        kept.with_suffix(".fix.txt").write_text(ended.output, encoding="utf-8")
        record = folder / "run.fix.json"
        if ended.code or "Traceback" in ended.output or not record.exists():
            last = (ended.output.strip().splitlines() or ["nothing"])[-1]
            return Fixed(crash=last, seconds=ended.seconds)
        shutil.copy(record, kept.with_suffix(".fix.json"))
        found = json.loads(record.read_text())
        realised = _run_by_itself(case, folder / case.path.name, found)
    return judge(case, found, realised, ended.seconds)


def judge(
    case: Case, found: dict[str, Any], realised: float | None = None, seconds: float = 0.0
) -> Fixed:
    """What a record says of a case."""
    right = [each for each in found["tried"] if each["knob"] in case.knobs]
    kept = [each for each in found["tried"] if each["standing"] == "kept"]
    saves = [each["saves"]["value"] for each in right if each["saves"] is not None]
    together = found["together"]
    return Fixed(
        found=max(saves, default=0.0) >= _FOUND * found["step_seconds"],
        proven=any(each in kept for each in right),
        kept=tuple(each["name"] for each in kept),
        promised=together["value"] / found["step_seconds"] if together and kept else None,
        realised=realised,
        seconds=seconds,
    )


def _run_by_itself(case: Case, patched: Path, found: dict[str, Any]) -> float | None:
    """Share of the step that is saved without Stash."""
    kept = [each for each in found["tried"] if each["standing"] == "kept"]
    if not kept or not case.tells_time:
        return None
    by_hand = any(each["written"] == "explained" for each in kept)
    variables = {name: value for each in kept for name, value in each["variables"].items()}
    times = []
    for _ in range(_ROUNDS):
        typed = time_step(case)
        changed = time_step(case, FIXED="1") if by_hand else time_step(case, patched, **variables)
        if typed is None or changed is None:
            return None
        times.append(1 - changed / typed)
    return median(times)


def cells(case: Case, answer: Fixed) -> list[object]:
    """One line of the table."""
    promised, realised = (
        None if share is None else f"{share:.0%}" for share in (answer.promised, answer.realised)
    )
    return [
        case.name,
        answer.crash[:60] or ("yes" if answer.found else "no"),
        "yes" if answer.proven else "no",
        ", ".join(answer.kept),
        promised,
        realised,
        "FALSE" if answer.is_false else "",
        round(answer.seconds),
    ]


def summary(answers: list[Fixed]) -> str:
    """How many are found, proven, false."""
    return (
        f"of {len(answers)}: {sum(each.found for each in answers)} found, "
        f"{sum(each.proven for each in answers)} proven, "
        f"{sum(each.is_false for each in answers)} promised falsely, "
        f"{sum(bool(each.crash) for each in answers)} crashed"
    )
