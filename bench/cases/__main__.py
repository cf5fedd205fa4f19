"""Bug reports as scripts: what Stash says at the first command, judged against what is true.

Each script (``scripts/``, whose headers say what was reported where) runs as typed and with ``FIXED=1``, the
difference being the truth, and then under ``stash profile``. Judged are: no crash; the row that is named; its line;
the remedy's words; and *wrong*: something else is named, without "cannot tell". ``truths.csv`` has the right answers.
``--fix`` and ``--beside`` judge ``stash fix`` and other tools (``fixes``, ``beside``). What was printed stays in
``build/cases``.
"""

from __future__ import annotations

from pathlib import Path

from bench.cases import beside, fixes
from bench.cases.answers import profile, time_step
from bench.cases.truths import Case, read_cases
from bench.machine import ROOT, arguments, machine
from bench.table import deliver, progress, table

KEPT = ROOT / "build" / "cases"
HEADS = (
    "case",
    "typed, ms",
    "fixed, ms",
    "says",
    "row",
    "place",
    "remedy",
    "wrong",
    "crash",
    "all right",
    "took, s",
)
_MARKS = {True: "yes", False: "no", None: "–"}


def ask_stash(case: Case, budget: str, is_timed: bool) -> list[object]:
    """A row of what ``stash profile`` says, with what a step takes as typed and with the remedy."""
    times = [
        time_step(case, **more) if is_timed and case.is_repairable else None
        for more in ({}, {"FIXED": "1"})
    ]
    answer = profile(case, budget, KEPT)
    says = answer.says[:60] if answer.crashed else ", ".join(answer.headings) or answer.kind
    judged = (answer.row, answer.place, answer.remedy)
    marks = [_MARKS[each] for each in (*judged, answer.is_wrong, answer.crashed)]
    right = _MARKS[not answer.crashed and False not in judged]
    return [case.name, *times, says, *marks, right, round(answer.seconds)]


def main() -> None:
    """Print the table; each line goes to standard error as soon as it is known."""
    given = arguments(
        __doc__,
        only=("", "cases whose names contain one of these, with commas between"),
        budget=("", "of stash profile (30 unless given), or of stash fix (5m)"),
        fix=(False, "run stash fix on cases that a setting cures, and what it keeps by itself"),
        beside=(False, "run PyTorch's profiler and TraceML"),
        out=("-", "write the table to this file"),
        no_truth=(False, "do not run the scripts by themselves"),
    )
    KEPT.mkdir(parents=True, exist_ok=True)
    heads, rows = fixes.HEADS if given.fix else beside.HEADS if given.beside else HEADS, []
    for case in read_cases(tuple(given.only.split(","))):
        if given.beside:
            rows.append(beside.ask_tools(case, KEPT))
        elif not given.fix:
            rows.append(ask_stash(case, given.budget or "30", not given.no_truth))
        elif case.knobs:
            rows.append(fixes.fix(case, given.budget or "5m", KEPT))
        else:
            continue
        progress(*rows[-1])
    columns = zip(heads, zip(*rows, strict=True), strict=True)
    counts = [
        f"{head} {column.count('yes')}"
        for head, column in columns
        if set(column) <= set(_MARKS.values())
    ]
    counted = f"of {len(rows)}: {', '.join(counts)}"
    deliver("\n\n".join([machine(), table(heads, rows), counted]), Path(given.out))


if __name__ == "__main__":
    main()
