"""What a job finds in its standard input, at its first start and at the next."""

import os
import pty
import subprocess
from contextlib import contextmanager

from stash.measure.launcher import process
from stash.measure.launcher.process import handed_on


@contextmanager
def given(monkeypatch, descriptor):
    monkeypatch.setattr(process, "_STDIN", descriptor)
    try:
        yield
    finally:
        os.close(descriptor)


def received():
    with handed_on() as descriptor:
        return subprocess.run(
            ["head", "-c", "5"], stdin=descriptor, capture_output=True, check=True
        ).stdout


def test_every_start_reads_a_file_from_the_same_place(monkeypatch, tmp_path):
    (tmp_path / "words").write_text("read here on")
    with given(monkeypatch, os.open(tmp_path / "words", os.O_RDONLY)):
        os.lseek(process._STDIN, 5, os.SEEK_SET)
        assert [received(), received()] == [b"here ", b"here "]
        assert os.lseek(process._STDIN, 0, os.SEEK_CUR) == 5


def test_a_pipe_is_handed_on_as_it_is(monkeypatch):
    reading, writing = os.pipe()
    os.write(writing, b"yes\n")
    os.close(writing)
    with given(monkeypatch, reading):
        assert [received(), received()] == [b"yes\n", b""]


def test_a_terminal_that_is_somebody_elses_is_not_read(monkeypatch):
    leader, terminal = pty.openpty()
    os.close(leader)
    with given(monkeypatch, terminal):
        monkeypatch.setattr(os, "isatty", lambda descriptor: True)
        monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp() + 1)
        with handed_on() as descriptor:
            assert descriptor == subprocess.DEVNULL
        monkeypatch.setattr(os, "tcgetpgrp", lambda descriptor: os.getpgrp())
        with handed_on() as descriptor:
            assert descriptor == terminal


def test_a_closed_one_is_empty(monkeypatch):
    monkeypatch.setattr(process, "_STDIN", 1_000_000)
    assert received() == b""
