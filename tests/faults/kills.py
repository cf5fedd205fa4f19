"""Counts what `docs/reliability.md` promises: ``python -m tests.faults.kills --kills 40 --requests 60``.

Profiles whose job writes over two files of the user's are killed in five ways at spread moments: how many times both
files are as they were, and after how many seconds. ``profile``, ``fix``, ``watch`` and ``characterize`` are killed in
these ways at random moments, and after the next command nothing may be left: files as they were (not of a run that is
watched: it is the real one), no process, nothing in shared memory. And signals that ask a profile to end are sent at
moments spread over its start: how many are followed. Prints three tables; exit status 1 unless all were.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # as pytest's settings do

from runs import Started

from stash.core.interrupts import REQUESTS
from tests.faults.__main__ import _signals_as_in_a_terminal
from tests.faults.driver import SCRIPTS, left_in_memory, shared_memory

_MAX_SECONDS = 60.0
"""After which a file counts as not restored, and a request as not followed."""
_SPREAD_OF_KILLS, _SPREAD_OF_REQUESTS = 1.5, 6.0
"""Seconds after the job's first write, and after the start, over which moments are spread."""
FOREVER = ("--budget", "300", "--noise", "0.05", "--nproc-per-node", "2")
_RANDOM_SECONDS = 20.0
"""After a command's start, within which it is killed."""
STUDY = """
workloads: [{name: mine, command: [overwrites.py]}]
targets: [{engine: local}]
settings: {budget: 60s}
"""
COMMANDS = {
    "profile": ("profile", *FOREVER, "-o", "run.stash.json", "overwrites.py"),
    "fix": ("fix", "--budget", "300", "-o", "run.fix.json", "overwrites.py"),
    "watch": ("watch", "-o", "run.watch.jsonl", "overwrites.py"),
    "characterize": ("characterize", "study.yaml"),
}


@dataclass(frozen=True)
class Outcome:
    """Of one attempt."""

    kind: str
    seconds: float | None
    """Until it was as it should be; ``None`` if it never was."""


@contextlib.contextmanager
def started(command):
    """One of the commands in a folder of its own, and what was in the user's files before."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder, work = Path(name), Path(name) / "work"
        for each in ("work", "tmp"):
            (folder / each).mkdir()
        (work / "overwrites.py").write_bytes((SCRIPTS / "overwrites.py").read_bytes())
        (work / "study.yaml").write_text(STUDY)
        files = {work / each: f"the user's {each}".encode() for each in ("last.bin", "log.txt")}
        for path, content in files.items():
            path.write_bytes(content)
            os.utime(path, (1, 1))
        variables = {"TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state")}
        words = ("setsid", sys.executable, "-m", "stash", *COMMANDS[command])
        run = Started(words, folder / "none", folder / "log", work, variables, own=False)
        try:
            yield run, files
        finally:
            run.kill()
            run.popen.communicate()


def launcher(run):
    run.popen.kill()


def group(run):
    os.killpg(run.popen.pid, signal.SIGKILL)


def session(run):
    _kill(each for each in run.processes() if os.getsid(each.pid) == run.popen.pid)


def launcher_and_supervisor(run):
    _kill(
        each
        for each in run.processes()
        if "guardian.py" not in " ".join(each.cmdline()) and _is_stashs(each, run)
    )


def everything(run):
    """As the end of a control group does, or of the machine; then the next command is typed."""
    processes = run.processes()
    for process in processes:  # none of them sees another die
        with contextlib.suppress(psutil.Error):
            process.suspend()
    _kill(processes)
    gone(run)
    type_next_command(run.log.parent)


def type_next_command(folder):
    """Any command puts back and sweeps what killed ones left."""
    subprocess.run(
        [sys.executable, "-m", "stash", "lab", "zoo"],
        check=True,
        capture_output=True,
        cwd=folder / "work",
        env={
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "TMPDIR": str(folder / "other"),
        },
    )


KILLS = {
    "the launcher": launcher,
    "its process group": group,
    "its session": session,
    "launcher and supervisor": launcher_and_supervisor,
    "every process, then the next command": everything,
}


def _kill(processes):
    for process in list(processes):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _is_stashs(process, run):
    return process.pid == run.popen.pid or "supervisor.py" in " ".join(process.cmdline())


def gone(run):
    deadline = time.monotonic() + _MAX_SECONDS
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not run.processes()


def killed(kind, after):
    with started("profile") as (run, files):
        run.wait_until(lambda: all(_content(path) != content for path, content in files.items()))
        time.sleep(after)
        began = time.monotonic()
        KILLS[kind](run)
        while changed(files):
            if time.monotonic() - began > _MAX_SECONDS:
                return Outcome(kind, None)
            time.sleep(0.01)
        seconds = time.monotonic() - began
        return Outcome(kind, seconds if gone(run) and not changed(files) else None)


def killed_at_random(command, kind, after):
    """One command, killed ``after`` so many seconds; seconds until nothing of it was left, its job's end included."""
    before = shared_memory()
    with started(command) as (run, files):
        time.sleep(after)
        began = time.monotonic()
        KILLS[kind](run)
        if command == "watch":  # its job goes on, and is the user's to end
            _kill(each for each in run.processes() if each.pid != run.popen.pid)
        ended = gone(run)
        type_next_command(run.log.parent)
        faults = [f"{name} was changed" for name in changed(files) if command != "watch"]
        faults += [
            f"left {name} in shared memory"
            for name in left_in_memory(before)
            if name.startswith("stash")
        ]
        faults += [
            f"left running: {' '.join(each.cmdline())[:80]}"
            for each in run.processes()
            if not ended
        ]
        print(
            f"{command}, {kind} after {after:.1f} s: {'; '.join(faults) or 'nothing left'}",
            file=sys.stderr,
        )
        return Outcome(command, None if faults else time.monotonic() - began)


def changed(files):
    """The names of those that are not as they were."""
    return [path.name for path, content in files.items() if _content(path) != content]


def _content(path):
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def asked(number, after):
    with started("profile") as (run, _):
        time.sleep(after)
        run.popen.send_signal(number)
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.popen.communicate(timeout=_MAX_SECONDS)
        followed = run.popen.returncode in (130, -number) and gone(run)
        return Outcome(number.name, time.monotonic() - began if followed else None)


def table(outcomes, what, well):
    """In Markdown: a row a kind."""
    kinds = defaultdict(list)
    for each in outcomes:
        kinds[each.kind].append(each.seconds)
        kinds["all"].append(each.seconds)
    kinds["all"] = kinds.pop("all", [])
    rows = [f"| {what} | times | {well} | median s | longest |", "| --- " * 5 + "|"]
    for kind, seconds in kinds.items():
        known = [each for each in seconds if each is not None]
        middle, longest = (f"{median(known):.1f}", f"{max(known):.1f}") if known else ("–", "–")
        rows.append(f"| {kind} | {len(seconds)} | {len(known)} | {middle} | {longest} |")
    return "\n".join(rows)


def spread(count, kinds, seconds):
    return [(kinds[each % len(kinds)], seconds * each / max(count - 1, 1)) for each in range(count)]


def draw_kills(count):
    """Each command as often as the others, in any way at any moment; the same ones every time."""
    chance = random.Random(0)
    return [
        (command, chance.choice(list(KILLS)), chance.uniform(0, _RANDOM_SECONDS))
        for _, command in zip(range(count), cycle(COMMANDS), strict=False)
    ]


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument(
        "--random", type=int, default=60, help="kills of four commands at random moments"
    )
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N")
    options = parser.parse_args()
    _signals_as_in_a_terminal()
    kills = spread(options.kills, list(KILLS), _SPREAD_OF_KILLS)
    requests = spread(options.requests, [each.name for each in REQUESTS], _SPREAD_OF_REQUESTS)
    with ThreadPoolExecutor(options.side_by_side) as pool:
        restored = list(pool.map(lambda each: killed(*each), kills))
        followed = list(pool.map(lambda each: asked(signal.Signals[each[0]], each[1]), requests))
    # one by one: memory is shared
    cleaned = [killed_at_random(*each) for each in draw_kills(options.random)]
    print(
        table(restored, "killed (`kill -9`)", "files restored"),
        table(cleaned, "killed in any of these ways", "nothing left"),
        table(followed, "asked to end by", "followed"),
        sep="\n\n",
    )
    return 1 if any(each.seconds is None for each in restored + cleaned + followed) else 0


if __name__ == "__main__":
    sys.exit(main())
