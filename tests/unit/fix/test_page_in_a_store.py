"""Records of ``stash fix`` in a store."""

import json

import pytest
from test_page import KEPT, OTHERS, fix
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.fix_records import FILE
from stash.core.intervals import Interval


def asked(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.output


@pytest.fixture
def records(tmp_path):
    """Monday's keeps two changes; Tuesday's one of them, which saves 10 ms less, of a step of 400 ms."""
    monday = tmp_path / "monday.fix.json"
    tuesday = tmp_path / "tuesday.fix.json"
    FILE.save(fix(), monday)
    less = KEPT[0].model_copy(update={"saves": Interval(value=0.0481, low=0.0451, high=0.0511)})
    gone = KEPT[1].model_copy(update={"standing": "no difference"})
    FILE.save(fix(step_seconds=0.4, tried=(less, gone, *OTHERS)), tuesday)
    return monday, tuesday


def test_a_store_takes_lists_shows_and_answers_questions_about_fixes(records, tmp_path):
    store = tmp_path / "runs"
    id, _ = asked("store", "add", records[0], "--store", store).split()
    listed = asked("list", store)
    assert id in listed
    assert "fix, 2 kept" in listed
    assert "412 ms" in listed
    assert "1.21 times as fast" in asked("show", id, "--store", store)
    assert "num\\_workers 2 -\\> 6" in asked("report", id, "--store", store, "--format", "md")
    sql = "select name, standing, round(1000 * saves, 1) as ms from fixes where standing = 'kept' order by name"
    answer = json.loads(asked("query", sql, "--store", store, "--format", "json"))
    assert answer == [
        {"name": "cores=own", "standing": "kept", "ms": 6.0},
        {"name": "workers=6", "standing": "kept", "ms": 58.1},
    ]
    assert "1 artefact is whole" in asked("store", "verify", store)
    assert "2 kept" in asked("list", store, "--json") or '"findings": 2' in asked(
        "list", store, "--json"
    )
