"""Who shows records in notebooks: named by the package's front, and by no module below it."""

import subprocess
import sys
from pathlib import Path

import pytest

import stash

ROOT = Path(__file__).parents[3]


def test_the_package_names_one_and_loads_it_only_when_it_is_asked():
    program = (
        "import sys, stash; "
        "before = 'stash.report.output' in sys.modules or 'pydantic' in sys.modules; "
        "p = stash.load('tests/golden/one-node.stash.json'); "
        "middle = 'stash.report.output' in sys.modules; repr(p); "
        "after = 'stash.report.output' in sys.modules; "
        "heavy = 'jinja2' in sys.modules or 'torch' in sys.modules; "
        "print(before, middle, after, heavy)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", "True", "False"]


@pytest.mark.parametrize(
    "file",
    [
        *sorted(ROOT.glob("tests/golden/*.stash.json")),
        ROOT / "docs/pictures/squeezenet1_0.stash.json",
    ],
    ids=str,
)
def test_the_text_of_a_profile_is_short_and_plain(file):
    for text in (repr(stash.load(file)), str(stash.load(file))):
        lines = text.splitlines()
        assert 5 < len(lines) <= 40
        assert max(map(len, lines)) <= 80
        assert text.isascii()
        assert "compute" in text


def test_the_text_of_a_profile_of_nothing_says_why():
    nothing = stash.load(ROOT / "tests/golden/one-node.stash.json").model_copy(
        update={"blocks": ()}
    )
    assert "has no complete round" in repr(nothing)
