"""Logs of JSON lines: whole lines or none, whatever their writers died of, and followed through a change of files."""

import errno
import os

import pytest

from stash.core.jsonl import TO_ADD, Tail, add_lines, append_row, whole_lines


@pytest.fixture
def log(tmp_path):
    descriptor = os.open(tmp_path / "log", TO_ADD | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


def test_what_a_writer_was_killed_within_makes_way_for_the_next_line(tmp_path):
    path = tmp_path / "log"
    append_row(path, number=1)
    with path.open("ab") as file:
        file.write(b'{"number": 2, "te')
    append_row(path, number=3)
    assert Tail(path).read_new_rows() == [{"number": 1}, {"number": 3}]
    path.write_bytes(b'{"num')
    append_row(path, number=4)
    assert Tail(path).read_new_rows() == [{"number": 4}]


def test_where_there_is_no_room_nothing_is_added(log, tmp_path, monkeypatch):
    add_lines(log, b'{"number": 1}\n')
    write = os.write
    room = [5, 0]

    def write_some(descriptor, content):
        if not (left := room.pop(0)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[:left])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_some)
        with pytest.raises(OSError, match="No space left"):
            add_lines(log, b'{"number": 2}\n')
    add_lines(log, b'{"number": 3}\n')
    assert (tmp_path / "log").read_bytes() == b'{"number": 1}\n{"number": 3}\n'


def test_more_than_a_call_takes_is_written_by_several(log, tmp_path, monkeypatch):
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, content: write(descriptor, content[:7]))
        add_lines(log, b'{"number": 1}\n{"number": 2}\n')
    assert Tail(tmp_path / "log").read_new_rows() == [{"number": 1}, {"number": 2}]


def test_a_line_ends_where_its_newline_is_and_nowhere_within_its_texts():
    texts = '"a\u2028b"\n"c\u0085d"\n"e\x0cf"\n"cut sh'
    assert whole_lines(texts.encode()) == ['"a\u2028b"', '"c\u0085d"', '"e\x0cf"']
    assert whole_lines(b'"\xff"\n') == ['"\ufffd"']


def test_a_log_is_followed_through_its_removal_and_into_the_file_that_replaces_it(
    tmp_path,
):
    path = tmp_path / "log"
    tail = Tail(tmp_path / "log")
    assert tail.read_new_rows() == []
    append_row(path, number=1)
    assert tail.read_new_rows() == [{"number": 1}]
    append_row(path, number=2)
    path.rename(tmp_path / "aside")
    assert tail.read_new_rows() == [{"number": 2}]
    append_row(path, number=3)
    append_row(tmp_path / "aside", number=2.5)
    assert tail.read_new_rows() == [{"number": 2.5}, {"number": 3}]
    append_row(path, number=4)
    assert tail.read_new_rows() == [{"number": 4}]
