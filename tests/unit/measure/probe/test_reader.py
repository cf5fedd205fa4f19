"""Reading every byte of every piece, and marking it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.measure.probe import disk_pieces


@pytest.mark.parametrize("readers", [1, 4])
def test_all_bytes_of_all_pieces_are_read_and_marked(tmp_path: Path, readers: int):
    chosen = disk_pieces.written(tmp_path / "scratch", 1_500_000, 6, 10.0)
    assert chosen is not None
    marks, done = disk_pieces.read(chosen.pieces, 10.0, readers)
    assert done == len(chosen.pieces)
    assert marks[-1][1] == done * 1_500_000
    assert [mark[1] for mark in marks] == sorted(mark[1] for mark in marks)
