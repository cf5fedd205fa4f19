"""Bug reports as scripts: their truths fit the scripts, and an answer is judged as a reader would."""

import re

import pytest

from bench.cases import answers
from bench.cases.truths import FOLDER, read_cases


def test_each_script_has_a_truth_whose_line_and_words_exist():
    cases = read_cases()
    scripts = {
        str(path.relative_to(FOLDER / "scripts")) for path in (FOLDER / "scripts").rglob("*.py")
    }
    assert {case.script for case in cases} == scripts
    for case in cases:
        re.compile(case.remedy)
        assert bool(re.search("init_process_group|Accelerator", case.path.read_text())) == (
            case.nproc > 1
        )


def restarted():
    (case,) = read_cases(("02_workers",))
    return case


def shown(
    kind,
    *stalls,
    text="",
    steps=(),
    places=(),
):
    """What ``stash show --json`` prints, as far as it is judged."""
    verdict = {
        "kind": kind,
        "stall": None,
        "stalls": list(stalls),
        "text": text,
        "next_steps": list(steps),
    }
    return {"verdict": verdict, "run": {"rows": [], "places": list(places)}}


def place(row, line):
    return {
        "row": row,
        "file": "jobs/02_workers_restarted.py",
        "line": line,
        "text": "for x, y in loader:",
    }


def test_row_line_and_remedy_are_looked_for_where_a_reader_would():
    case = restarted()
    (line,) = case.lines
    advice = ("Keep the workers with persistent_workers=True.",)
    right = answers.judge(
        case, shown("run", "epoch start", steps=advice, places=(place("epoch start", line),))
    )
    assert (right.row, right.place, right.remedy, right.is_wrong) == (True, True, True, False)
    in_words = answers.judge(
        case, shown("run", "epoch start", text=f"(02_workers_restarted.py:{line})")
    )
    assert (in_words.place, in_words.remedy) == (True, False)


@pytest.mark.parametrize(("row", "line"), [("epoch start", 2), ("loop", 0)])
def test_another_line_or_that_of_another_row_is_no_place(row, line):
    case = restarted()
    named = answers.judge(
        case, shown("run", "epoch start", places=(place(row, case.lines[0] + line),))
    )
    assert named.place is False


@pytest.mark.parametrize(
    ("kind", "stalls", "is_wrong"),
    [
        ("compute", ("compute",), True),
        ("tie", ("prep", "epoch start"), False),
        ("cannot tell", (), False),
    ],
)
def test_wrong_is_what_names_something_else_with_confidence(kind, stalls, is_wrong):
    assert answers.judge(restarted(), shown(kind, *stalls)).is_wrong is is_wrong
