"""fio asked for the same reads, and its log understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.measure.probe import disk_pieces


def test_fio_s_log_becomes_marks_of_the_reads_alone():
    log = "11, 8000000, 0, 1048576, 0\n12, 500000, 0, 1048576, 0\n"
    assert disk_pieces.marks_of(log) == [(0.0, 0), (pytest.approx(0.008), 1 << 20), (pytest.approx(0.0085), 2 << 20)]


@pytest.mark.parametrize("log", ["", "no log", "1, 2"])
def test_what_fio_does_not_log_is_unknown(log: str):
    assert disk_pieces.marks_of(log) is None


def test_fio_reads_one_stretch_or_the_fronts_of_several_files():
    a, b = Path("/a"), Path("/b")
    stretch = disk_pieces.command([disk_pieces.Piece(a, 8, 8), disk_pieces.Piece(a, 16, 8)], 3, False, Path("logs"))
    assert stretch is not None
    assert {"--offset=8", "--size=16", "--nrfiles=1"} <= set(stretch)
    fronts = disk_pieces.command([disk_pieces.Piece(a, 0, 8), disk_pieces.Piece(b, 0, 8)], 3, True, Path("logs"))
    assert fronts is not None
    assert {"--filename=/a:/b", "--size=16", "--direct=1"} <= set(fronts)
    assert (
        disk_pieces.command([disk_pieces.Piece(a, 0, 8), disk_pieces.Piece(b, 8, 8)], 3, True, Path("logs")) is None
    )


@pytest.mark.skipif(not disk_pieces.present(), reason="fio is not installed")
def test_fio_reads_every_byte_once_and_leaves_no_log(tmp_path: Path):
    chosen = disk_pieces.written(tmp_path / "scratch", 2 << 20, 2, 10.0)
    assert chosen is not None
    marks = disk_pieces.read_with_fio(chosen.pieces, 20.0, False, tmp_path / "logs")
    assert marks is not None
    assert marks[-1][1] == 4 << 20
    assert 0 < marks[-1][0] < 10
    assert list((tmp_path / "logs").iterdir()) == []
