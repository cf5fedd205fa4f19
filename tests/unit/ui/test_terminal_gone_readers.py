"""What is printed once its reader is gone: lost, and no error."""

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from stash.ui.arguments import readers_may_leave
with readers_may_leave():
    print("before", flush=True)
    sys.stdin.readline()
    for stream in (sys.stdout, sys.stderr):
        print("after", file=stream, flush=True)
    sys.exit(7)
"""
CODE = [sys.executable, "-c", PROGRAM]


def test_a_closed_pipe_is_no_error():
    program = subprocess.Popen(
        CODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout.readline() == b"before\n"
    program.stdout.close()
    program.stdin.write(b"\n")
    program.stdin.close()
    assert program.stderr.read() == b"after\n"
    assert program.wait(60) == 7


def test_nor_is_a_closed_terminal():
    ours, theirs = pty.openpty()
    program = subprocess.Popen(CODE, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(ours, 6) == b"before"
    os.close(ours)
    program.communicate(b"\n", 60)
    assert program.returncode == 7


def test_streams_that_are_no_files_are_left_as_they_are(capsys):
    from stash.ui.arguments import readers_may_leave

    before = sys.stdout
    with readers_may_leave():
        assert sys.stdout is before
        print("words")
    assert capsys.readouterr().out == "words\n"


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8:strict", b"caf\xc3\xa9 \\udcff"),
        ("ascii", b"caf\\xe9 \\udcff"),
        ("utf-8:surrogateescape", b"caf\xc3\xa9 \xff"),
    ],
)
def test_letters_that_the_encoding_does_not_have_are_no_error(encoding, shown):
    program = "from stash.ui.arguments import readers_may_leave\nwith readers_may_leave(): print('caf\\xe9 \\udcff')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    assert printed.stdout == shown + b"\n"
