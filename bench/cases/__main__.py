"""Bug reports as scripts: what Stash says at the first command, judged against what is true.

Each script (``scripts/``, whose headers say what was reported where) runs as typed and with ``FIXED=1``, the
difference being the truth, and then under ``stash profile``. Judged are: no crash; the row that is named; its line;
the remedy's words; and *wrong*: something else is named, without "cannot tell". ``truths.csv`` has the right answers.
What was printed stays in ``build/cases``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from bench.cases.answers import Answer, fix, largest_operator, profile, time_step
from bench.cases.truths import Case, read_cases
from bench.machine import ROOT, machine
from bench.table import deliver, progress, table

KEPT = ROOT / "build" / "cases"
HEADS = ("case", "typed, ms", "fixed, ms", "says", "row", "place", "remedy", "wrong", "crash", "took, s")
_MARKS = {True: "yes", False: "no", None: "–"}


def cells(case: Case, answer: Answer, typed: float | None, fixed: float | None) -> list[object]:
    """One line of the table."""
    says = answer.says[:60] if answer.crashed else ", ".join(answer.headings) or answer.kind
    return [
        case.name, typed, fixed, says, *(_MARKS[each] for each in (answer.row, answer.place, answer.remedy)),
        "WRONG" if answer.is_wrong else "", "CRASH" if answer.crashed else "", round(answer.seconds),
    ]  # fmt: skip


def summary(answers: Iterable[Answer]) -> str:
    """How many are right in all that can be right, wrong, crashed."""
    answers = list(answers)
    right = sum(not each.crashed and False not in (each.row, each.place, each.remedy) for each in answers)
    rows = sum(each.row is True for each in answers)
    places = [each.place for each in answers if each.place is not None]
    remedies = sum(each.remedy is True for each in answers)
    return (
        f"{right} of {len(answers)} right in row, place and remedy; {rows} rows, {sum(places)} of {len(places)} "
        f"places, {remedies} remedies; {sum(each.is_wrong for each in answers)} wrong with confidence, "
        f"{sum(each.crashed for each in answers)} crashes"
    )


def main() -> None:
    """Print the table; each line goes to standard error as soon as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=(), help="cases whose names contain one of these")
    parser.add_argument("--budget", default="30", help="of stash profile (default: 30)")
    parser.add_argument("--out", type=Path, default=Path("-"), help="write the table to this file")
    parser.add_argument("--fix", action="store_true", help="also whether stash fix --budget 2m keeps the remedy")
    parser.add_argument("--peers", action="store_true", help="also the largest operator by torch.profiler")
    parser.add_argument("--no-truth", action="store_true", help="do not run the scripts by themselves")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    heads = [*HEADS, *(("fix keeps", "fix") if given.fix else ()), *(("torch.profiler",) if given.peers else ())]
    rows: list[list[object]] = []
    answers: list[Answer] = []
    for case in read_cases(tuple(given.only)):
        times = [
            time_step(case, fixed) if case.is_repairable and not given.no_truth else None for fixed in (False, True)
        ]
        answer = profile(case, given.budget, KEPT)
        row = cells(case, answer, *times)
        if given.fix:
            names, found = fix(case, "2m", KEPT)
            row += [names, _MARKS[found]]
        if given.peers:
            row.append(largest_operator(case))
        progress(*row)
        rows.append(row)
        answers.append(answer)
    deliver("\n\n".join([machine(), table(heads, rows), summary(answers)]), given.out)


if __name__ == "__main__":
    main()
