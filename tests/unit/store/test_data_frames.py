"""Frames of files, folders and stores: typed, unknown where it is unknown, alike in both libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stores import at, made, put_fix

import stash
from stash.core.artefact import save
from stash.core.errors import ArtefactError, StoreError, UserError
from stash.store.schema import TABLES

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save(at(1), tmp_path / "run.stash.json")
    return tmp_path / "run.stash.json"


def test_a_file_is_a_row(file: Path) -> None:
    frame = stash.frame(file)
    assert frame.loc[0, "id"] == "run"
    assert frame.loc[0, "step_seconds"] == pytest.approx(0.176)
    assert frame.loc[0, "network_pct"] is pandas.NA
    assert str(frame["batch"].dtype) == "Int64"


@pytest.mark.parametrize("table", TABLES)
def test_every_table_in_both_libraries(tmp_path: Path, table: str) -> None:
    put_fix(made(tmp_path / "runs"))
    names = [column.name for column in TABLES[table]]
    first, second = (stash.frame(str(tmp_path / "runs"), table, library) for library in ("pandas", "polars"))
    assert list(first.columns) == list(second.columns) == names
    assert len(first) == len(second) > 0


def test_files_and_stores_together(file: Path, tmp_path: Path) -> None:
    made(tmp_path / "runs", days=2)
    frame = stash.frame([file, tmp_path / "runs"], library="polars")
    assert frame["created"].to_list() == [f"2026-11-0{day}T12:00:00+00:00" for day in (1, 2, 1)]
    assert len(stash.frame([])) == 0


def test_what_cannot_be_a_frame_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no table 'runs'; there are artefacts, profiles"):
        stash.frame(file, "runs")
    with pytest.raises(UserError, match="it is one of pandas, polars"):
        stash.frame(file, library="dask")
    with pytest.raises(ArtefactError, match="there is no file"):
        stash.frame(tmp_path / "none.stash.json")
    (tmp_path / "bad.stash.json").write_text("{")
    with pytest.raises(StoreError, match=r"bad\.stash\.json is damaged"):
        stash.frame(tmp_path)


def test_a_library_that_is_missing_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        stash.frame(file)
