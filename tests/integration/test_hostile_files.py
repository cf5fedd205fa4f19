"""Files that would take all memory, all time or Python's stack: one sentence, exit code 2, in seconds, within bounds.

Each kind of file that people give to Stash is read by the command that reads it, in a child with limits of its own.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_files import BOMBS, HARMLESS, KINDS, ONE

from stash.cli.main import app, main

SECONDS, BYTES = 10.0, 2**30
"""Of the processor, so that a busy machine does not count; and of memory, beyond what a command has anyway."""
WAITS = 120
"""Seconds after which a child that waits for something is ended."""
JOB = "job,user,submit,gpus,model,steps\nj1,me,{submit},1,A3C,{steps}\n"
MARKET = (
    "# stash market 1\n# source: x\n# max_gap: 129600\nat,cloud,region,zone,instance,kind,usd_per_hour,available\n"
    "2020-02-27T17:42:36Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409,\n"
)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The modules of commands are imported once, before children are forked."""
    for words in (("show", ONE), ("compare", ONE, "none"), ("market", "show", "none"), KINDS["jobs.csv"]):
        with suppress(Exception, SystemExit):
            app(list(words), standalone_mode=False)


@dataclass
class Ended:
    code: int
    seconds: float
    grown: int
    """Bytes."""
    printed: str


def ended(folder: Path, words: Sequence[str]) -> Ended:
    """A command in a child of this process, which has all of Stash's modules, with bounds on memory and time."""
    log = folder / "printed.txt"
    child = os.fork()
    if not child:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        code = 70
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            bound = pages * resource.getpagesize() + 2 * BYTES
            resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
            resource.setrlimit(resource.RLIMIT_CPU, (int(2 * SECONDS), int(2 * SECONDS)))
            signal.alarm(WAITS)
            os.chdir(folder)
            sys.argv = ["stash", *words]
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 71
        except BaseException as error:
            print(f"Traceback {type(error).__name__}: {error}"[:500])
        finally:
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
            print(f"\n{grown}")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    lines = log.read_text(errors="replace").rstrip().splitlines()
    number = int(lines[-1]) if lines and lines[-1].isdecimal() else -1
    return Ended(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, number, "\n".join(lines[:-1]))


def problem_with(found: Ended) -> str | None:
    """What is wrong with how a command met a hostile file, if anything."""
    if found.code != 2:
        return f"exit code {found.code} after {found.seconds:.0f} s: {found.printed[-300:]}"
    errors = [line for line in found.printed.splitlines() if line.strip()]
    if "Traceback" in found.printed or not errors or not errors[0].startswith("error: "):
        return f"no sentence: {found.printed[-300:]}"
    if len(found.printed) > 5_000:
        return f"{len(found.printed)} characters"
    if found.seconds > SECONDS:
        return f"{found.seconds:.0f} s"
    if found.grown > BYTES:
        return f"{found.grown / 2**20:.0f} MB"
    return None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", KINDS)
def test_no_file_takes_all_memory_or_time_or_shows_a_traceback(tmp_path: Path, name: str) -> None:
    wrong = {}
    (tmp_path / "train.py").write_text("")
    for bomb in (each for each in BOMBS if (name, each.__name__) not in HARMLESS):
        path = tmp_path / name
        bomb(path)
        words = [str(path) if word == "FILE" else word for word in KINDS[name]]
        problem = problem_with(ended(tmp_path, words))
        if problem is not None:
            wrong[bomb.__name__] = problem
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert wrong == {}


@pytest.mark.parametrize("words", [("show", "x" * 5000), ("compare", ONE, "x/" * 3000)])
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert problem_with(ended(tmp_path, words)) is None


@pytest.mark.parametrize(
    "given", [{"steps": "1e18"}, {"steps": "1e308"}, {"submit": "1e18"}, {"submit": "1e308"}, {"steps": "9" * 5000}]
)
def test_a_course_of_centuries_is_refused_with_its_line(tmp_path: Path, given: dict[str, str]) -> None:
    values = {"submit": "0", "steps": "1000", **given}
    (tmp_path / "jobs.csv").write_text(JOB.format(**values) + "j2,me,0,1,A3C,1000\n")
    found = ended(tmp_path, [str(tmp_path / "jobs.csv") if word == "FILE" else word for word in KINDS["jobs.csv"]])
    assert problem_with(found) is None
    assert "jobs.csv:2: " in found.printed


def test_a_market_that_unpacks_to_more_than_its_bound_is_refused(tmp_path: Path) -> None:
    row = MARKET.splitlines(keepends=True)[-1].encode()
    bomb = gzip.compress(MARKET.encode()) + gzip.compress(row * 200_000, 9) * 300
    (tmp_path / "x.market.csv.gz").write_bytes(bomb)
    found = ended(tmp_path, ["market", "show", "x.market.csv.gz"])
    assert problem_with(found) is None
    assert "MiB of text" in found.printed
