"""What ``stash fix`` makes of a case whose fault a setting cures: whether it finds it, proves it, and keeps its word.

*Found*: with a right knob (``truths.csv``) a step is shorter by 5 %. *Proven*: one of them is kept. What is kept is
then run by itself, in turns with the script as typed, by the script's own watch; *false* is a promise of which less
than half is there. What only a person can write is judged by ``FIXED=1``.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases.answers import command_of, folder_of, run, time_step
from bench.cases.truths import Case

HEADS = ("case", "found", "proven", "false", "kept", "promised", "by itself", "took, s")
_FOUND, _KEPT_WORD = 0.05, 0.5
_ROUNDS, _PATIENCE = 3, 1800.0


def fix(case: Case, budget: str, keep: Path) -> list[object]:
    """Run ``stash fix --apply`` as a user types it: a row of the table; record and output stay in ``keep``."""
    stem = case.name.replace("/", "-")
    with folder_of(case) as folder:
        options = ("--apply", "--budget", budget, "-o", "run.fix.json")
        ended = run(command_of(case, "fix", *options), folder, _PATIENCE)
        (keep / f"{stem}.fix.txt").write_text(ended.output, encoding="utf-8")
        if ended.code:
            return [case.name, "CRASH", *[None] * (len(HEADS) - 3), round(ended.seconds)]
        text = (folder / "run.fix.json").read_text()
        (keep / f"{stem}.fix.json").write_text(text)
        found = json.loads(text)
        realised = _run_by_itself(case, folder / case.path.name, found)
    return [case.name, *judge(case, found, realised), round(ended.seconds)]


def judge(case: Case, record: dict[str, Any], realised: float | None) -> list[object]:
    """The cells of a record; ``realised``: share of the step, ``None`` where the script does not tell it."""
    right = [each for each in record["tried"] if each["knob"] in case.knobs]
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    saves = [each["saves"]["value"] for each in right if each["saves"]]
    promised = record["together"]["value"] / record["step_seconds"] if kept else 0.0
    checks = (
        max(saves, default=0.0) >= _FOUND * record["step_seconds"],
        any(each in kept for each in right),
        realised is not None and realised < _KEPT_WORD * promised,
    )
    shares = (promised if kept else None, realised)
    return [
        *("yes" if each else "no" for each in checks),
        ", ".join(each["name"] for each in kept),
        *(None if share is None else f"{share:.0%}" for share in shares),
    ]


def _run_by_itself(case: Case, patched: Path, record: dict[str, Any]) -> float | None:
    """Share of the step that is saved without Stash."""
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    if not kept or not case.tells_time:
        return None
    variables = {name: value for each in kept for name, value in each["variables"].items()}
    if any(each["written"] == "explained" for each in kept):
        patched, variables = case.path, {"FIXED": "1"}
    shares = []
    for _ in range(_ROUNDS):
        typed, changed = time_step(case), time_step(case, patched, **variables)
        if not typed or changed is None:
            return None
        shares.append(1 - changed / typed)
    return median(shares)
