"""Plays one case of the fault matrix, and says what is wrong with what came of it.

Whatever is done to a profile: it ends in time, leaves no process, nothing in the temporary folder, no file of the
user's changed, no traceback of Stash's own, and an artefact that can be read or none.
"""

import contextlib
import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from runs import Outcome, Started, two_ranks

import stash
from stash.analysis.step_times import step_matrix
from stash.measure.protocol.folder import has_owner
from tests.faults.case import Case, Room

SCRIPTS = Path(__file__).parent / "scripts"
_FOLDERS = "|".join(path.name for path in Path(stash.__file__).parent.iterdir() if path.is_dir())
OWN_TRACE = re.compile(rf'File "[^"]*/stash/(?:{_FOLDERS})/')
USUAL = {"budget": "2", "noise": "50"}
"""Options of every case, unless it gives its own."""
TORCHS_OWN = ("torchinductor_*",)
"""What PyTorch keeps in the temporary folder from run to run, with or without Stash."""
_PARTING = 5.0
"""Seconds for processes to notice that what they belong to has ended."""


@dataclass(frozen=True)
class Verdict:
    """What came of a case."""

    case: Case
    problems: tuple[str, ...]
    code: int
    seconds: float
    """From what was done to it (or from its start) to its end."""
    rounds: int | None
    """Kept; ``None`` without an artefact."""
    last_line: str
    """Its last line."""


def play(case, folder):
    """Play ``case`` in an empty folder of its own."""
    room = Room(folder / "work", folder / "tmp", folder / "outside")
    for path in (room.work, room.temporary, room.outside):
        path.mkdir(parents=True)
    shutil.copytree(
        SCRIPTS, room.work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    if case.prepare is not None:
        case.prepare(room)
    before, shared = _contents(room.work), shared_memory()
    run = _started(case, room)
    began = time.monotonic()
    problems = []
    try:
        if case.act is not None:
            case.act(run, room)
            began = time.monotonic()
    except AssertionError as error:
        problems.append(f"could not be played: {error}")
    outcome, hung = _ended(run, case.expected.seconds * _slowness())
    seconds = time.monotonic() - began
    problems += [f"still running after {seconds:.0f} s"] if hung else []
    problems += list(_wrong(case, room, outcome, before))
    problems += [f"left {name} in shared memory" for name in left_in_memory(shared)]
    rounds = None if outcome.profile is None else len(step_matrix(outcome.profile).rounds)
    return Verdict(
        case, tuple(problems), outcome.code, seconds, rounds, outcome.error or _last(outcome.stdout)
    )


def _started(case, room):
    output, log = room.work / "run.stash.json", room.outside / "stderr.log"
    usual = [
        word
        for name, value in USUAL.items()
        if f"--{name}" not in case.options
        for word in (f"--{name}", value)
    ]
    if "RANK" not in case.variables:
        usual += two_ranks([*case.options, *case.job], room.work)
    words = (*usual, "-o", str(output), *case.options, *case.job)
    variables = {"TMPDIR": str(room.temporary), "PYTHONDONTWRITEBYTECODE": "1", **case.variables}
    variables.setdefault("XDG_STATE_HOME", str(room.state))
    words = case.program(room) if case.program is not None else words
    return Started(words, output, log, room.work, variables, own=case.program is None)


def _ended(run, limit):
    """What it came to; and whether it had to be killed after ``limit`` seconds."""
    try:
        stdout, _ = run.popen.communicate(timeout=limit)
        hung = False
    except subprocess.TimeoutExpired:
        run.kill()
        stdout, _ = run.popen.communicate()
        hung = True
    deadline = time.monotonic() + _PARTING * _slowness()
    while (left := run.processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    survivors = [" ".join(process.cmdline()) for process in left]
    run.kill()
    profile = None
    with contextlib.suppress(Exception):  # what cannot be read is told by ``_wrong``
        profile = run.artefact()
    return Outcome(run.popen.returncode, stdout, run.stderr_text(), profile, survivors), hung


def _wrong(case, room, outcome, before):
    expected, words = case.expected, outcome.stdout + outcome.stderr
    if outcome.code not in expected.codes:
        yield f"exit status {outcome.code}, not {' or '.join(map(str, expected.codes))}"
    yield from (f"does not say {text!r}" for text in expected.says if not re.search(text, words))
    yield from (f"says {text!r}" for text in expected.never if re.search(text, words))
    if OWN_TRACE.search(words):
        yield "a traceback of Stash's own"
    yield from (f"left running: {command[:80]}" for command in outcome.survivors)
    artefact = room.work / "run.stash.json"
    if artefact.exists() and outcome.profile is None:
        yield "an artefact that cannot be read"
    kept = None if outcome.profile is None else len(step_matrix(outcome.profile).rounds)
    if expected.rounds is None and artefact.exists():
        yield f"an artefact of {kept} rounds, where there is nothing to keep"
    if expected.rounds and (kept or 0) < expected.rounds:
        yield f"{kept or 0} rounds kept, not {expected.rounds}"
    may = ("run.stash.json", *expected.writes, "*.pyc")
    after = _contents(room.work)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and not _matches(name, may):
            yield f"{name} was {'removed' if name not in after else 'changed' if name in before else 'written'}"
    left = (path.name for path in room.temporary.iterdir())
    yield from (
        f"left {name} in the temporary folder"
        for name in left
        if not _matches(name, (*TORCHS_OWN, *expected.leaves))
    )
    if list(room.state.rglob("owner")):
        yield "left files of the user's to be put back"
    if case.check is not None and (wrong := case.check(outcome, room)) is not None:
        yield wrong


def _matches(name, patterns):
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _contents(folder):
    """Every file below a folder, with a digest of its content; a link counts as where it leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def shared_memory():
    with contextlib.suppress(OSError):
        # other tests' own
        return {name for name in os.listdir("/dev/shm") if not name.startswith("stash-test-")}
    return set()


def left_in_memory(before):
    """What came since and stays; other programs' comes and goes."""
    deadline = time.monotonic() + _PARTING * _slowness()
    while (
        left := sorted(name for name in shared_memory() - before if not _is_in_use(name))
    ) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _is_in_use(name):
    """Whether a live process has it: one of a case that is played at the same time."""
    path = Path("/dev/shm", name)
    if has_owner(path):
        return True
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if os.fsencode(path) in maps.read_bytes():
                return True
    return False


def _slowness():
    """How much longer than on a quiet machine things may take now: as often as its cores are wanted."""
    return max(1.0, 1.5 * os.getloadavg()[0] / (os.cpu_count() or 1)) * 2


def _last(text):
    return (text.strip().splitlines() or [""])[-1]
