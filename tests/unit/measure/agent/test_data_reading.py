"""What making batches reads: files counted and dropped when they are opened, and what is no data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.utils.data  # noqa: F401 - batches are made in processes that have it

from stash.measure.agent.data import reading
from stash.measure.agent.data.tally import COLD, WARM, Tally, _Own
from stash.measure.linux import pagecache
from stash.measure.run import orders as the_orders
from stash.measure.run.orders import Orders

FILES, PAGES = 3, 16


@pytest.fixture
def tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tally]:
    """A profile of this process whose data lie in ``data``."""
    (tmp_path / "run").mkdir()
    data = tmp_path / "data"
    data.mkdir()
    for number in range(FILES):
        with (data / f"{number}.bin").open("wb") as file:
            file.write(os.urandom(PAGES * pagecache.PAGE))
            file.flush()
            os.fsync(file.fileno())
    given = Orders(str(tmp_path / "run"), ("solo",), 1.0, data_root=str(data))
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current.cache_clear()
    reading._holds_data.cache_clear()
    own = Tally(str(tmp_path / "run" / "tally"))
    monkeypatch.setattr(_Own, "tally", own)
    monkeypatch.setattr(reading._Swept, "generation", -1)
    yield own
    monkeypatch.undo()
    the_orders.current.cache_clear()
    reading._holds_data.cache_clear()


def read_all(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        path.read_bytes()


def test_in_a_warm_block_opened_files_are_counted(tally: Tally, tmp_path: Path) -> None:
    read_all(tmp_path / "data")
    tally.set_mode(WARM)
    with reading.recorded(tally):
        read_all(tmp_path / "data")
    totals = tally.totals()
    assert (totals["batches"], totals["files"], totals["pages"]) == (1, FILES, FILES * PAGES)
    assert totals["bytes"] == FILES * PAGES * pagecache.PAGE
    assert totals["resident"] == FILES * PAGES
    assert totals["making_ns"] > 0


def test_in_a_cold_block_they_are_dropped_before_they_are_read(tally: Tally, tmp_path: Path) -> None:
    read_all(tmp_path / "data")
    tally.set_mode(COLD)
    with reading.recorded(tally):
        read_all(tmp_path / "data")
    totals = tally.totals()
    if totals["resident"] == FILES * PAGES:
        pytest.skip("the temporary folder is a RAM disk")
    assert totals["resident"] == 0
    assert totals["files"] == FILES


def test_a_file_held_open_is_dropped_once_a_block(tally: Tally, tmp_path: Path) -> None:
    with (tmp_path / "data" / "0.bin").open("rb") as held:
        held.read()
        tally.set_mode(COLD)
        for _ in range(2):
            with reading.recorded(tally):
                held.seek(0)
        assert tally.totals()["files"] == 1


def test_what_is_opened_outside_a_batch_is_not_counted(tally: Tally, tmp_path: Path) -> None:
    tally.set_mode(WARM)
    with reading.recorded(tally):
        pass
    read_all(tmp_path / "data")
    assert tally.totals()["files"] == 0


def test_with_a_data_root_only_what_lies_below_it_is_data(tally: Tally, tmp_path: Path) -> None:
    assert reading.is_data(str(tmp_path / "data" / "0.bin"))
    assert not reading.is_data(str(tmp_path / "data" / "code.py"))
    assert not reading.is_data(str(tmp_path / "elsewhere.bin"))


def test_without_one_it_is_what_no_system_owns(tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Orders(str(tmp_path / "run"), ("solo",), 1.0)
    monkeypatch.setenv(the_orders.VARIABLE, str(given.write()))
    the_orders.current.cache_clear()
    reading._holds_data.cache_clear()
    assert reading.is_data(str(tmp_path / "elsewhere.bin"))
    assert not reading.is_data("/proc/self/maps")
    assert not reading.is_data(str(tmp_path / "run" / "journal.jsonl"))
    assert not reading.is_data(os.__file__)


def test_a_folder_is_swept_whole(tally: Tally, tmp_path: Path) -> None:
    read_all(tmp_path / "data")
    assert reading.sweep_folder(str(tmp_path / "data"), cold=False) == (FILES * PAGES, FILES * PAGES)
    assert reading.sweep_folder(str(tmp_path / "data"), cold=False, limit=1) == (PAGES, PAGES)
