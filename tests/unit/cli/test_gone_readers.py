"""What is printed when nobody reads any more: lost, and no error."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from stash.cli.readers import readers_may_leave
with readers_may_leave():
    print("before", flush=True)
    sys.stdin.readline()
    for stream in (sys.stdout, sys.stderr):
        print("after", file=stream, flush=True)
    sys.exit(7)
"""
CODE = [sys.executable, "-c", PROGRAM]


def test_a_closed_pipe_is_no_error() -> None:
    program = subprocess.Popen(CODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == b"before\n"
    program.stdout.close()
    program.stdin.write(b"\n")
    program.stdin.close()
    assert program.stderr.read() == b"after\n"
    assert program.wait(60) == 7


def test_nor_is_a_closed_terminal() -> None:
    ours, theirs = pty.openpty()
    program = subprocess.Popen(CODE, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(ours, 6) == b"before"
    os.close(ours)
    program.communicate(b"\n", 60)
    assert program.returncode == 7


def test_streams_that_are_no_files_are_left_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from stash.cli.readers import readers_may_leave

    before = sys.stdout
    with readers_may_leave():
        assert sys.stdout is before
        print("words")
    assert capsys.readouterr().out == "words\n"
