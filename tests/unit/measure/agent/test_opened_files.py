"""Libraries whose C code opens files tell of them first: of those they write, and of those they read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from stash.measure.agent import guard
from stash.measure.agent.data import reads
from stash.measure.agent.wraps import opened_files


class File:
    """As ``h5py.File``."""

    def __init__(self, name, mode="r", driver=None):
        self.mode = mode


class Writer:
    """As ``pyarrow.parquet.ParquetWriter``."""

    def __init__(self, where, schema=None):
        self.where = where


@pytest.fixture(autouse=True)
def read(monkeypatch):
    """Files that were about to be read."""
    words: list[object] = []
    monkeypatch.setattr(reads, "about_to_read", words.append)
    return words


@pytest.fixture
def written(monkeypatch):
    words: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        guard, "about_to_write", lambda path, truncates: words.append((path, truncates))
    )
    return words


def test_a_file_of_hdf5_is_named_as_it_is_opened(written, read):
    own = type("File", (File,), {"__init__": File.__init__})
    opened_files.wrap_h5py(SimpleNamespace(File=own))
    for mode in ("r", "w", "a"):
        assert own(Path("weights.h5"), mode).mode == mode
    own("weights.h5")
    assert written == [("weights.h5", True), ("weights.h5", False)]
    assert read == [Path("weights.h5"), "weights.h5"]
    with pytest.raises(TypeError):
        own()


def test_pictures_and_tables_are_named(written, read):
    cv2 = SimpleNamespace(
        imwrite=lambda filename, image: filename, imread=lambda filename, flags=1: flags
    )
    opened_files.wrap_cv2(cv2)
    assert cv2.imwrite("a.png", None) == "a.png"
    assert cv2.imread("c.png", 0) == 0

    def write_file(filename, data):
        pass

    def read_file(path):
        return path

    io = SimpleNamespace(write_file=write_file, read_file=read_file)
    opened_files.wrap_torchvision_io(io)
    io.write_file("b.png", None)
    assert io.read_file("d.png") == "d.png"
    assert read == ["c.png", "d.png"]
    opened_files.wrap_parquet(SimpleNamespace(ParquetWriter=Writer))
    assert Writer("c.parquet").where == "c.parquet"
    assert written == [("a.png", True), ("b.png", True), ("c.parquet", True)]
