"""Bug reports as scripts: what Stash says at the first command, judged against what is true.

Each script (``scripts/``, whose headers say what was reported where) runs as typed and with ``FIXED=1``, the
difference being the truth, and then under ``stash profile``. Judged are: no crash; the row that is named; its line;
the remedy's words; and *wrong*: something else is named, without "cannot tell". ``truths.csv`` has the right answers.
What was printed stays in ``build/cases``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.cases import beside, fixes
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


def fix_cases(cases: Iterable[Case], budget: str) -> str:
    """The page of ``--fix``."""
    rows, answers = [], []
    for case in (case for case in cases if case.knobs):
        answers.append(fixes.fix(case, budget, KEPT))
        rows.append(fixes.cells(case, answers[-1]))
        progress(*rows[-1])
    return "\n\n".join([machine(), table(fixes.HEADS, rows), fixes.summary(answers)])


def ask_tools(cases: Iterable[Case]) -> str:
    """The page of ``--beside``."""
    rows, right = [], dict.fromkeys(beside.TOOLS, 0)
    for case in cases:
        said = beside.ask_tools(case, KEPT)
        row = [case.name]
        for name, answer in said.items():
            row += [answer.words.replace("|", "/")[:90], _MARKS[answer.right]]
            right[name] += answer.right is True
        rows.append(row)
        progress(*row)
    heads = ["case", *(head for name in beside.TOOLS for head in (name, "right"))]
    counts = ", ".join(f"{name} {count} of {len(rows)} right" for name, count in right.items())
    return "\n\n".join([machine(), table(heads, rows), counts])


def main() -> None:
    """Print the table; each line goes to standard error as soon as it is known."""
    given = arguments(
        __doc__,
        only=("", "cases whose names contain one of these, with commas between"),
        budget=("", "of stash profile (30 unless given), or of stash fix (5m)"),
        fix=(
            False,
            "run stash fix instead, on cases that a setting cures, and what it keeps by itself",
        ),
        beside=(False, "run PyTorch's profiler and TraceML instead"),
        out=("-", "write the table to this file"),
        no_truth=(False, "do not run the scripts by themselves"),
    )
    KEPT.mkdir(parents=True, exist_ok=True)
    cases = read_cases(tuple(given.only.split(",")))
    if given.fix:
        deliver(fix_cases(cases, given.budget or "5m"), Path(given.out))
        return
    if given.beside:
        deliver(ask_tools(cases), Path(given.out))
        return
    rows: list[list[object]] = []
    answers: list[Answer] = []
    for case in cases:
        is_timed = case.is_repairable and not given.no_truth
        times = [time_step(case, **more) if is_timed else None for more in ({}, {"FIXED": "1"})]
        answers.append(profile(case, given.budget or "30", KEPT))
        rows.append(cells(case, answers[-1], *times))
        progress(*rows[-1])
    deliver("\n\n".join([machine(), table(HEADS, rows), summary(answers)]), Path(given.out))


if __name__ == "__main__":
    main()
