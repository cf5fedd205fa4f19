"""The fault matrix under pytest: its quick cases always, its fast ones as slow tests; `make faults` plays all."""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.cases import all_cases
from tests.faults.driver import play


def _as_parameter(case):
    marks = [] if case.pace == "quick" else [pytest.mark.slow]
    return pytest.param(case, id=f"{case.kind}: {case.name}", marks=marks)


@pytest.mark.parametrize(
    "case", [_as_parameter(case) for case in all_cases() if case.pace != "slow"]
)
def test_fault(case):
    if not case.needs():
        pytest.skip("this machine cannot play it")
    # Not pytest's folder: the names of sockets of loader workers have 107 bytes, and its own is long.
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        verdict = play(case, Path(folder))
    assert not verdict.problems, "; ".join(verdict.problems)


def test_no_two_cases_have_one_name():
    names = [(case.kind, case.name) for case in all_cases()]
    assert len(names) == len(set(names))


def test_the_page_has_a_row_for_every_kind_and_counts_its_cases():
    page = (Path(__file__).parents[2] / "docs/reliability.md").read_text()
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([\d,]+) \|", page, re.M)
    assert {kind: int(cases) for kind, cases in rows} == Counter(case.kind for case in all_cases())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_grows_with_the_number_of_profiles():
    words = [sys.executable, "-m", "tests.faults.soak", "--profiles", "5", "--at-once", "2"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout + done.stderr
