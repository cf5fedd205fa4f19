"""Signals: each, to the launcher or a process of the job, in every phase of a profile and of a probe.

A table is spanned, not written: whom it hits, when, and what must come of it are looked up by signal.
"""

import contextlib
import signal
import sys
import time
from pathlib import Path

import psutil

from tests.faults.case import Case, Expected

FOREVER = ("--budget", "300", "--noise", "0.05")
SHORT = ("--budget", "10", "--noise", "0.05")
WORKERS = ("train.py", "--workers", "1")
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
KEPT = 2
"""Rounds that must be kept of a profile that is hit while it measures: all but the one that may just have ended."""
SUSPENDED = 2.0
"""Seconds between SIGTSTP and SIGCONT."""


def loading(run, room):
    """While Python imports what the command needs."""
    maps = Path("/proc", str(run.popen.pid), "maps")
    run.wait_until(lambda: "pydantic_core" in maps.read_text())


def starting(run, room):
    run.wait_until(lambda: list(room.temporary.glob("stash-*/owner")))


def importing(run, room):
    run.wait_until(run.ranks)


def warming_up(run, room):
    run.wait_until(lambda: list(room.temporary.glob("stash-*/launch-*/beat.*")))


def measuring(run, room):
    run.wait_until(lambda: rounds_done(room) > KEPT)


def rounds_done(room):
    """As the ranks' journals have it."""
    journals = room.temporary.glob("stash-*/launch-*/journal.jsonl")
    return sum(journal.read_text().count('{"kind": "round"') for journal in journals)


PHASES = {
    "while it is loaded": loading,
    "while it starts": starting,
    "while ranks import": importing,
}
PHASES |= {"while it warms up": warming_up, "while it measures": measuring}


def launcher(run):
    return psutil.Process(run.popen.pid)


def torchrun(run):
    return run.ranks()[0].parent()


def rank(number):
    return lambda run: run.ranks()[number]


def loader_worker(run):
    trainer = run.ranks()[1]
    return next(each for each in trainer.children() if each.cmdline() == trainer.cmdline())


OF_THE_JOB = {
    "torchrun": torchrun,
    "rank 0": rank(0),
    "rank 1": rank(1),
    "a loader's worker": loader_worker,
}


def sent(number, wait, whom):
    """Send it once; SIGTSTP is followed by SIGCONT."""

    def act(run, room):
        wait(run, room)
        process = whom(run)
        process.send_signal(number)
        if number is signal.SIGTSTP:
            time.sleep(SUSPENDED)
            process.send_signal(signal.SIGCONT)

    return act


def again_and_again_from_the_stop_on(number):
    """From the last round to the launcher's end, so that each moment of showing and saving is hit."""

    def act(run, room):
        run.wait_until(lambda: list(room.temporary.glob("stash-*/launch-*/stop")))
        while run.popen.poll() is None:
            run.popen.send_signal(number)
            time.sleep(0.02)

    return act


def once_the_ranks_are_gone(number):
    """When what is left is to show and to save."""

    def act(run, room):
        run.wait_until(lambda: list(room.temporary.glob("stash-*/launch-*/stop")))
        with contextlib.suppress(AssertionError):  # it may be faster than we are
            run.wait_until(lambda: not run.ranks())
        with contextlib.suppress(psutil.Error):
            launcher(run).send_signal(number)

    return act


def of_launcher(number, phase):
    rounds = KEPT if PHASES[phase] is measuring else None
    options = FOREVER
    if number is signal.SIGTSTP:
        expected, options = Expected((0,), rounds=1, seconds=120), SHORT
    elif number is signal.SIGKILL:
        expected = Expected((-number,), rounds=rounds, leaves=("stash-*",), seconds=20)
    elif PHASES[phase] is loading:
        expected = Expected((130, -number), never=("Traceback",), seconds=30)
    else:
        expected = Expected((130,), ("interrupted",), ("Traceback",), rounds=rounds, seconds=30)
    fast = PHASES[phase] is measuring or number is signal.SIGKILL
    return Case(
        "signals",
        f"{number.name} to the launcher {phase}",
        WORKERS,
        options,
        act=sent(number, PHASES[phase], launcher),
        expected=expected,
        pace="fast" if fast else "slow",
    )


def of_job(number, phase, name):
    """What torchrun, a rank or a worker dies of is told; what it is only suspended by changes nothing."""
    if number is signal.SIGTSTP:
        expected, options = Expected((0,), rounds=1, seconds=120), SHORT
    else:
        rounds = KEPT if PHASES[phase] is measuring else None
        expected, options = (
            Expected((1,), ("error: ",), rounds=rounds, leaves=("stash-*",), seconds=60),
            FOREVER,
        )
    return Case(
        "signals",
        f"{number.name} to {name} {phase}",
        WORKERS,
        options,
        act=sent(number, PHASES[phase], OF_THE_JOB[name]),
        expected=expected,
    )


def while_saving():
    for number in (*REQUESTS, signal.SIGKILL):
        dies = number is signal.SIGKILL
        yield Case(
            "signals",
            f"{number.name} to the launcher once its ranks are gone",
            WORKERS,
            SHORT,
            act=once_the_ranks_are_gone(number),
            expected=Expected(
                (0, 130, -9) if dies else (0, 130),
                never=("Traceback",),
                rounds=1,
                writes=(".run.stash.json.*.tmp",) if dies else (),
                leaves=("stash-*",) if dies else (),
            ),
        )
    for number in REQUESTS:
        yield Case(
            "signals",
            f"{number.name} to the launcher again and again from the last round on",
            WORKERS,
            SHORT,
            act=again_and_again_from_the_stop_on(number),
            expected=Expected(
                (0, 130, -number), never=("Traceback",), rounds=1
            ),  # Python itself ends at the last
        )


def of_probe(number):
    """A probe says what it was interrupted by, and leaves neither a process nor a file beside the data."""

    def begun(run, room):
        run.wait_for("reading files")

    dies = number is signal.SIGKILL
    return Case(
        "signals",
        f"{number.name} to a probe that reads files",
        program=lambda room: (
            sys.executable,
            "-m",
            "stash",
            "probe",
            "--budget",
            "60",
            "-o",
            "run.host.json",
        ),
        act=sent(number, begun, launcher),
        expected=Expected(
            (-9,) if dies else (130,),
            () if dies else ("interrupted",),
            ("Traceback",),
            leaves=("stash-*",) if dies else (),
            seconds=30,
        ),
    )


CASES = [
    *(of_launcher(number, phase) for phase in PHASES for number in (*REQUESTS, signal.SIGKILL)),
    *(of_launcher(signal.SIGTSTP, phase) for phase in ("while ranks import", "while it measures")),
    *while_saving(),
    *(
        of_job(number, "while it measures", name)
        for name in OF_THE_JOB
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGTSTP)
    ),
    *(of_job(signal.SIGKILL, "while ranks import", name) for name in ("torchrun", "rank 1")),
    *(
        of_probe(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
    ),
]
