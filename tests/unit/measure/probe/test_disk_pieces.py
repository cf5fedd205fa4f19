"""Which pieces of files are read, and how."""

import os

import pytest

from stash.core import pagecache
from stash.measure.probe import disk_pieces


def test_files_that_are_not_in_the_page_cache_come_first(disk):
    for number in range(20):
        (disk / f"{number:02d}").write_bytes(os.urandom(4 * pagecache.PAGE))
    unread = {f"{number:02d}" for number in range(0, 20, 2)}
    disk_pieces.evict_pieces([disk_pieces.Piece(disk / name, 0, 1) for name in unread])
    large, small = disk_pieces.choose_from_data(disk)
    assert large is None
    assert {piece.path.name for piece in small.pieces[:10]} == unread
    assert small.file_bytes == 4 * pagecache.PAGE
    first, second = small.halves()
    assert not set(first) & set(second)
    assert len(first) + len(second) == 20


def test_a_large_file_is_cut_into_pieces_from_front_to_back(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(5 * disk_pieces.PIECE_BYTES // 2)
    large, small = disk_pieces.choose_from_data(tmp_path)
    assert small is None
    assert [piece.offset for piece in large.pieces] == [0, disk_pieces.PIECE_BYTES]


def test_what_is_written_stays_within_a_tenth_of_the_free_space(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(disk_pieces.shutil, "disk_usage", lambda path: usage)
    chosen = disk_pieces.write_files(tmp_path / "scratch", 30_000, 100, 5.0)
    assert len(chosen.pieces) == 3
    assert disk_pieces.write_files(tmp_path / "scratch", 30_000, 100, 5.0) is None


@pytest.mark.parametrize("readers", [1, 4])
def test_all_bytes_of_all_pieces_are_read_and_marked(tmp_path, readers):
    chosen = disk_pieces.write_files(tmp_path / "scratch", 1_500_000, 6, 10.0)
    marks, done = disk_pieces.read_pieces(chosen.pieces, 10.0, readers)
    assert done == len(chosen.pieces)
    assert marks[-1][1] == done * 1_500_000
    assert [mark[1] for mark in marks] == sorted(mark[1] for mark in marks)
