"""Libraries whose C code writes files tell of them first, and only of those they write."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from stash.measure.agent import guard
from stash.measure.agent.wraps import files


class File:
    """As ``h5py.File``."""

    def __init__(self, name: object, mode: str = "r", driver: str | None = None) -> None:
        self.mode = mode


class Writer:
    """As ``pyarrow.parquet.ParquetWriter``."""

    def __init__(self, where: object, schema: object = None) -> None:
        self.where = where


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    words: list[tuple[str, bool]] = []
    monkeypatch.setattr(guard, "about_to_write", lambda path, truncates: words.append((path, truncates)))
    return words


def test_a_file_of_hdf5_is_told_unless_it_is_only_read(told: list[tuple[str, bool]]):
    own = type("File", (File,), {"__init__": File.__init__})
    files.wrap_h5py(SimpleNamespace(File=own))
    for mode in ("r", "w", "a"):
        assert own(Path("weights.h5"), mode).mode == mode
    own("weights.h5")
    assert told == [("weights.h5", True), ("weights.h5", False)]
    with pytest.raises(TypeError):
        own()


def test_pictures_and_tables_are_told(told: list[tuple[str, bool]]):
    cv2 = SimpleNamespace(imwrite=lambda filename, image: filename)
    files.wrap_cv2(cv2)
    assert cv2.imwrite("a.png", None) == "a.png"

    def write_file(filename: str, data: object) -> None:
        pass

    io = SimpleNamespace(write_file=write_file)
    files.wrap_torchvision_io(io)
    io.write_file("b.png", None)
    files.wrap_parquet(SimpleNamespace(ParquetWriter=Writer))
    assert Writer("c.parquet").where == "c.parquet"
    assert told == [("a.png", True), ("b.png", True), ("c.parquet", True)]
