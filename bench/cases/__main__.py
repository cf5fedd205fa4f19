"""Bug reports as scripts: what Stash says at the first command, judged against what is true.

Each script (``scripts/``, whose headers say what was reported where) runs as typed and with ``FIXED=1``, the
difference being the truth, and then under ``stash profile``. Judged are: no crash; the row that is named; its line;
the remedy's words; and *wrong*: something else is named, without "cannot tell". ``truths.csv`` has the right answers.
What was printed stays in ``build/cases``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.cases.answers import Answer, profile, time_step
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
    "took, s",
)
_MARKS = {True: "yes", False: "no", None: "–"}


def cells(case: Case, answer: Answer, typed: float | None, fixed: float | None) -> list[object]:
    """One line of the table."""
    says = answer.says[:60] if answer.crashed else ", ".join(answer.headings) or answer.kind
    return [
        case.name,
        typed,
        fixed,
        says,
        *(_MARKS[each] for each in (answer.row, answer.place, answer.remedy)),
        "WRONG" if answer.is_wrong else "",
        "CRASH" if answer.crashed else "",
        round(answer.seconds),
    ]


def summary(answers: Iterable[Answer]) -> str:
    """How many are right in all that can be right, wrong, crashed."""
    answers = list(answers)
    right = sum(
        not each.crashed and False not in (each.row, each.place, each.remedy) for each in answers
    )
    return (
        f"{right} of {len(answers)} right in row, place and remedy; "
        f"{sum(each.is_wrong for each in answers)} wrong with confidence, "
        f"{sum(each.crashed for each in answers)} crashes"
    )


def main() -> None:
    """Print the table; each line goes to standard error as soon as it is known."""
    given = arguments(
        __doc__,
        only=("", "cases whose names contain one of these, with commas between"),
        budget=("30", "of stash profile"),
        out=("-", "write the table to this file"),
        no_truth=(False, "do not run the scripts by themselves"),
    )
    KEPT.mkdir(parents=True, exist_ok=True)
    rows: list[list[object]] = []
    answers: list[Answer] = []
    for case in read_cases(tuple(given.only.split(","))):
        is_timed = case.is_repairable and not given.no_truth
        times = [time_step(case, fixed) if is_timed else None for fixed in (False, True)]
        answers.append(profile(case, given.budget, KEPT))
        rows.append(cells(case, answers[-1], *times))
        progress(*rows[-1])
    deliver("\n\n".join([machine(), table(HEADS, rows), summary(answers)]), Path(given.out))


if __name__ == "__main__":
    main()
