"""Records of ``stash fix`` in a store, and two of them compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stores import at
from test_page import KEPT, OTHERS, fix
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.artefact import to_bytes
from stash.core.errors import UserError
from stash.core.fix_records import FILE
from stash.core.intervals import Interval
from stash.report.fix_comparison import difference


def asked(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.output


@pytest.fixture
def records(tmp_path: Path) -> tuple[Path, Path]:
    """Monday's keeps two changes; Tuesday's one of them, which saves 10 ms less, of a step of 400 ms."""
    monday, tuesday = tmp_path / "monday.fix.json", tmp_path / "tuesday.fix.json"
    FILE.save(fix(), monday)
    less = KEPT[0].model_copy(update={"saves": Interval(value=0.0481, low=0.0451, high=0.0511)})
    gone = KEPT[1].model_copy(update={"standing": "no difference"})
    FILE.save(fix(step_seconds=0.4, tried=(less, gone, *OTHERS)), tuesday)
    return monday, tuesday


def test_a_store_takes_lists_shows_and_answers_questions_about_fixes(records: tuple[Path, Path], tmp_path: Path):
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
        {"name": "cores=own", "standing": "kept", "ms": 6.0}, {"name": "workers=6", "standing": "kept", "ms": 58.1}
    ]  # fmt: skip
    assert "1 artefact is whole" in asked("store", "verify", store)
    assert "2 kept" in asked("list", store, "--json") or '"findings": 2' in asked("list", store, "--json")


def test_two_records_are_compared_change_by_change(records: tuple[Path, Path]):
    text = " ".join(asked("compare", *records).split())
    assert "A step as typed takes 400.0 ms instead of 412.0; no more: cores=own." in text
    assert "-10.0 +/- 5.0 ms" in text  # halves of 4 and 3
    (found,) = json.loads(asked("compare", *records, "--json"))
    assert found["same_job"]
    by_name = {each["name"]: each for each in found["changes"]}
    assert by_name["cores=own"]["after"] == "no difference"
    assert by_name["workers=6"]["saves_more"]["value"] == pytest.approx(-0.01)


def test_a_difference_needs_both_savings_and_its_interval_both_intervals():
    first, bad = KEPT[0], OTHERS[2]
    assert difference(first, bad) is None
    assert difference(None, first) is None
    alone = first.model_copy(update={"saves": Interval(value=0.06)})
    found = difference(first, alone)
    assert found is not None
    assert found.half_width is None


def test_other_jobs_are_named_and_other_files_refused(records: tuple[Path, Path], tmp_path: Path):
    other = tmp_path / "other.fix.json"
    FILE.save(fix(ranks=4), other)
    assert "these are different jobs, in ranks (2 and 4)" in " ".join(asked("compare", records[0], other).split())
    profile = tmp_path / "run.stash.json"
    profile.write_bytes(to_bytes(at(1)))
    with pytest.raises(UserError, match=r"is no \*\.fix\.json"):
        asked("compare", records[0], profile)
    with pytest.raises(UserError, match=r"there is no file .*none\.fix\.json"):
        asked("compare", records[0], tmp_path / "none.fix.json")
    with pytest.raises(UserError, match="on both sides"):
        asked("compare", records[0], records[0])
