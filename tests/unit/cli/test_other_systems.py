"""On macOS and Windows: what reads profiles works, what measures says in a sentence where it would."""

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
PRELUDE = """
import ctypes, os, signal, sys
import numpy, psutil, pydantic, rich.console, scipy.stats, typer, yaml  # what was built for Linux
sys.platform = {platform!r}
for name in ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "POSIX_FADV_DONTNEED", "geteuid"):
    delattr(os, name)
del signal.SIGHUP
sys.modules["fcntl"] = sys.modules["resource"] = None
def no_libc(*_, **__):
    raise OSError("there is no C library to load by that name")
ctypes.CDLL = no_libc
"""


def python(program, platform):
    code = PRELUDE.format(platform=platform) + program
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


MAIN = """
from stash.cli.main import main
for words in {lines!r}:
    sys.argv = ["stash", *words.split()]
    try:
        main()
    except SystemExit as ended:
        print("ended with", ended.code or 0, flush=True)
"""


READING = (f"show {GOLDEN / 'one-node.stash.json'}", "catalog show p3.2xlarge", "lab zoo")
MEASURING = ("profile train.py", "probe")
FROM_PYTHON = """
import stash
batches = [1]
assert stash.loader(batches) is batches  # a script that watches its loader runs as ever
try:
    stash.profile(print)
except Exception as error:
    print(error, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("platform", "system"),
    [
        ("win32", "Windows"),
        pytest.param("darwin", "macOS", marks=pytest.mark.slow),
        pytest.param("freebsd14", "freebsd14", marks=pytest.mark.slow),
    ],
)
def test_what_reads_works_and_what_measures_is_refused_in_one_sentence(platform, system):
    found = python(MAIN.format(lines=(*READING, *MEASURING)) + FROM_PYTHON, platform)
    assert found.returncode == 0, found.stderr
    *shown, refused = found.stdout.split("ended with 0\n")
    assert len(shown) == len(READING)
    assert all(shown)
    assert refused == "ended with 2\n" * len(MEASURING)
    assert found.stderr.count("\n") == 3, found.stderr
    for name in ("stash profile", "stash probe", "stash.profile"):
        assert (
            f"{name} needs Linux, and this is {system}: run it in a Linux container" in found.stderr
        )
