"""Who shows records in notebooks: named by the package's front, and by no module below it."""

from __future__ import annotations

import subprocess
import sys

from stash.core import notebooks


def test_a_record_is_shown_by_whoever_was_named_last(monkeypatch):
    monkeypatch.setattr(notebooks, "_shown", [])
    assert notebooks.html_of("a record") is None
    notebooks.show_with(lambda record: f"first {record}")
    notebooks.show_with(lambda record: f"second {record}")
    assert notebooks.html_of("a record") == "second a record"


def test_the_package_names_one_and_loads_it_only_when_it_is_asked():
    program = (
        "import sys, stash; from stash.core import notebooks; "
        "before = 'stash.report.notebook' in sys.modules or 'pydantic' in sys.modules; "
        "p = stash.load('tests/golden/one-node.stash.json'); "
        "middle = 'stash.report.notebook' in sys.modules; html = p._repr_html_(); "
        "after = 'stash.report.notebook' in sys.modules; "
        "heavy = 'jinja2' in sys.modules or 'torch' in sys.modules; "
        "print(before, middle, after, html.startswith('<div class='), heavy)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True", "False"]
