"""On macOS and Windows: what reads profiles works, what measures says in a sentence where it would."""

from __future__ import annotations

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


def python(program: str, platform: str = "win32") -> subprocess.CompletedProcess[str]:
    code = PRELUDE.format(platform=platform) + program
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def stash(*words: str, platform: str = "win32") -> subprocess.CompletedProcess[str]:
    return python(f"sys.argv = {['stash', *words]!r}\nfrom stash.cli.main import main\nmain()", platform)


@pytest.mark.parametrize(
    "words", [("show", str(GOLDEN / "one-node.stash.json")), ("catalog", "show", "p3.2xlarge"), ("lab", "zoo")]
)
def test_what_only_reads_works(words: tuple[str, ...]) -> None:
    found = stash(*words)
    assert found.returncode == 0, found.stderr
    assert found.stdout


@pytest.mark.parametrize(
    ("platform", "system"),
    [
        ("win32", "Windows"),
        pytest.param("darwin", "macOS", marks=pytest.mark.slow),
        pytest.param("freebsd14", "freebsd14", marks=pytest.mark.slow),
    ],
)
def test_a_profile_is_refused_in_one_sentence(platform: str, system: str) -> None:
    found = stash("profile", "train.py", platform=platform)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1, found.stderr
    assert f"stash profile needs Linux, and this is {system}: run it in a Linux container" in found.stderr


def test_so_is_a_probe() -> None:
    found = stash("probe")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1), found.stderr


def test_a_script_that_watches_its_loader_runs_as_ever() -> None:
    found = python("import stash\nbatches = [1]\nassert stash.loader(batches) is batches\n")
    assert found.returncode == 0, found.stderr


def test_a_function_is_refused_in_the_same_words() -> None:
    found = python("import stash\nstash.profile(print)\n")
    assert "UserError: stash.profile needs Linux" in found.stderr
