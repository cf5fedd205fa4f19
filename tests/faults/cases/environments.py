"""Environments: sources, locales, variables and commands that jobs come with, and how long they take.

Each is run as a user would; what Python itself can run, a profile can, and the rest gets one sentence.
"""

import os
import sys
from dataclasses import replace

from tests.faults.case import Case, Expected

PYTHON = sys.executable
NOT_OMNIPOTENT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner")
"""Root, to whom permissions mean something."""
PROFILE = (PYTHON, "-m", "stash", "profile", "--budget", "2", "--noise", "50")
BAD_BYTE = os.fsdecode(b"caf\xe9")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def is_root():
    return os.geteuid() == 0


def copied(name, before=b"", encoding="utf-8"):
    """The job under another name, with bytes before it."""

    def prepare(room):
        text = (room.work / "slow.py").read_text()
        target = room.work / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(before + text.encode(encoding))

    return prepare


def executable(first_line):
    def prepare(room):
        copied("run.py", first_line.encode())(room)
        (room.work / "run.py").chmod(0o755)

    return prepare


def says_command(word):
    """The artefact has that word of the command, as text."""

    def check(outcome, room):
        command = outcome.profile.workload.command if outcome.profile is not None else ()
        return None if word in command else f"the command is {command}, without {word!r}"

    return check


SOURCES = {
    "latin-1, and says so": (b"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n", Expected(rounds=1)),
    "UTF-8 with a mark": (b"\xef\xbb\xbf", Expected(rounds=1)),
    "latin-1, and does not say so": (
        b"NAME = 'caf\xe9'\n",
        Expected((2,), ("python cannot run it",)),
    ),
    "no encoding there is": (b"# coding: klingon\n", Expected((2,), ("python cannot run it",))),
}


def sources():
    for name, (before, expected) in SOURCES.items():
        yield Case(
            "environments",
            f"a script in {name}",
            ("coded.py",),
            prepare=copied("coded.py", before),
            expected=expected,
        )
    for name, variables in {
        "LC_ALL=C": {"LC_ALL": "C"},
        "LC_ALL=C without UTF-8 mode": ASCII,
    }.items():
        yield Case(
            "environments",
            f"a script and a folder with accents under {name}",
            ("é/entraîne.py", "--", "ñ"),
            variables=variables,
            prepare=copied("é/entraîne.py"),
            check=says_command("…"),
            expected=Expected(rounds=1),
        )
    yield Case(
        "environments",
        "an argument with a byte that is no UTF-8",
        ("slow.py", "--", BAD_BYTE),
        check=says_command("…"),
        expected=Expected(rounds=1),
        pace="fast",
    )
    yield Case(
        "environments",
        "an argument with a byte that is no UTF-8, printed in ASCII",
        ("slow.py", "--", BAD_BYTE, "ñ"),
        variables={"PYTHONIOENCODING": "ascii"},
        check=says_command("…"),
        expected=Expected(rounds=1),
    )


VARIABLES = {
    "RANK alone": ({"RANK": "3"}, Expected(rounds=1)),
    "RANK and WORLD_SIZE": ({"RANK": "1", "WORLD_SIZE": "2"}, Expected(rounds=1)),
    "a RANK that is no number": (
        {"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
        Expected(rounds=1),
    ),
    "an empty LOCAL_RANK": ({"LOCAL_RANK": ""}, Expected(rounds=1)),
    "SLURM_STEP_ID alone": ({"SLURM_STEP_ID": "0"}, Expected(rounds=1)),
    "PYTHONINSPECT": ({"PYTHONINSPECT": "1"}, Expected(rounds=1)),
    "PYTHONSAFEPATH": ({"PYTHONSAFEPATH": "1"}, Expected(rounds=1)),
    "PYTHONOPTIMIZE": ({"PYTHONOPTIMIZE": "2"}, Expected(rounds=1)),
    "PYTHONDEVMODE": ({"PYTHONDEVMODE": "1"}, Expected(rounds=1)),
}


def variables():
    for name, (setting, expected) in VARIABLES.items():
        yield Case(
            "environments", f"{name} is set", ("slow.py",), variables=setting, expected=expected
        )
    yield Case(
        "environments",
        "a rank whose launcher is gone",
        ("train.py",),
        ("--start-timeout", "10"),
        variables={
            "RANK": "1",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29791",
        },
        expected=Expected((1,), ("unset both", "took no training step"), leaves=("stash-*",)),
    )


SHUT_OUT = Expected((2,), ("keeps Stash's agent out",), leaves=("stash-*",))
COMMANDS = {
    "python -I": ((PYTHON, "-I", "slow.py"), SHUT_OUT),
    "python -E -S": ((PYTHON, "-E", "-S", "slow.py"), SHUT_OUT),
    "env and python -I": (("env", "A=1", PYTHON, "-I", "slow.py"), SHUT_OUT),
    "python -I inside a shell": (("bash", "-c", f"{PYTHON} -I slow.py; true"), SHUT_OUT),
    "python -u": ((PYTHON, "-u", "slow.py"), Expected(rounds=1)),
}
PROGRAMS = {
    "the run bit and no first line for it": ("", Expected((2,), ("type `stash profile ",))),
    "the run bit and Python in its first line": (f"#!{PYTHON}\n", Expected(rounds=1)),
    "a first line that names what is not there": (
        "#!/nowhere/python\n",
        Expected((2,), ("is not there",)),
    ),
}


def commands():
    for name, (words, expected) in COMMANDS.items():
        yield Case(
            "environments",
            f"the command is {name}",
            ("--", *words),
            expected=expected,
            pace="fast" if "inside" in name else "slow",
        )
    for name, (line, expected) in PROGRAMS.items():
        yield Case(
            "environments",
            f"the command is a script with {name}",
            ("--", "./run.py"),
            prepare=executable(line),
            expected=expected,
        )
    for value in ("nan", "-1", "0"):
        yield Case(
            "environments",
            f"--budget {value}",
            ("slow.py",),
            ("--budget", value),
            expected=Expected((2,), (f"--budget {value}: it must be a number",)),
        )
    yield Case(
        "environments",
        "--noise nan",
        ("slow.py",),
        ("--noise", "nan"),
        expected=Expected((2,), ("--noise nan: it must be more than 0",)),
    )


def spent_at_most(seconds):
    """What passed since the first block is the budget, or a round where that is longer."""

    def check(outcome, room):
        profile = outcome.profile
        if profile is None or profile.seconds_before_blocks is None:
            return "no profile that says when blocks began"
        spent = profile.elapsed_seconds - profile.seconds_before_blocks
        return None if spent <= seconds else f"measured for {spent:.0f} s, not {seconds:.0f}"

    return check


def slow_jobs():
    expected = ("a round takes about",)
    yield Case(
        "environments",
        "steps of 4 s and a budget of 5 s",
        ("slow.py", "--step", "4"),
        ("--budget", "5"),
        check=spent_at_most(7 * 4),
        expected=Expected(says=expected, rounds=1, seconds=120),
    )
    yield Case(
        "environments",
        "batches of 4 s and a budget of 5 s",
        ("slow.py", "--batch", "4"),
        ("--budget", "5"),
        check=spent_at_most(9 * 4),
        expected=Expected(says=expected, rounds=1, seconds=120),
    )
    yield Case(
        "environments",
        "batches of 4 s by two workers and a budget of 5 s",
        ("slow.py", "--batch", "4", "--workers", "2"),
        ("--budget", "5"),
        check=spent_at_most(16 * 4),
        expected=Expected(says=expected, rounds=1, seconds=150),
    )
    for context in ("spawn", "forkserver"):
        for persistent in ((), ("--persistent",)):
            kept = "workers that persist" if persistent else "workers for an epoch"
            yield Case(
                "environments",
                f"a loader that starts {kept} by {context}",
                ("slow.py", "--workers", "2", "--context", context, *persistent),
                ("--budget", "4"),
                expected=Expected(rounds=1, seconds=120),
            )


def in_closed_folder(*words):
    """A profile by somebody to whom the working folder is closed."""

    def program(room):
        out = room.outside / "run.stash.json"
        filled = tuple(word.format(out=out) for word in words)
        return (*NOT_OMNIPOTENT, *PROFILE, *filled)

    return program


def closed(room):
    room.work.chmod(0o555)


def saved_outside(outcome, room):
    import stash

    path = room.outside / "run.stash.json"
    return None if path.exists() and stash.load(path).blocks else f"no profile at {path}"


def shared_memory(setup):
    """A profile in a mount namespace of its own, whose shared memory is another."""

    def program(room):
        words = (*PROFILE, "-o", str(room.work / "run.stash.json"), "train.py", "--workers", "2")
        return ("unshare", "--mount", "bash", "-c", f'{setup} && exec "$@"', "bash", *words)

    return program


READ_ONLY = "mount -t tmpfs -o ro none /dev/shm"
NO_FOLDER = (
    "mount -t tmpfs none /dev && for each in null:3 zero:5 full:7 random:8 urandom:9; "
    "do mknod -m 666 /dev/${each%:*} c 1 ${each#*:}; done && ln -s /proc/self/fd /dev/fd"
)


def places():
    yield Case(
        "environments",
        "a read-only working folder",
        prepare=closed,
        program=in_closed_folder("slow.py"),
        needs=is_root,
        expected=Expected((2,), ("is not writable; choose another with -o",)),
    )
    for name in ("slow.py", "train.py"):
        yield Case(
            "environments",
            f"a read-only working folder with -o elsewhere ({name})",
            prepare=closed,
            program=in_closed_folder("-o", "{out}", name),
            needs=is_root,
            check=saved_outside,
        )
    named = ("could not use shared memory", "/dev/shm")
    for name, setup in {"is read-only": READ_ONLY, "is missing": NO_FOLDER}.items():
        yield Case(
            "environments",
            f"/dev/shm {name}",
            program=shared_memory(setup),
            needs=is_root,
            expected=Expected((1,), named, leaves=("stash-*",)),
        )


def paced(case):
    """What is refused is over at once."""
    return (
        replace(case, pace="fast") if case.pace == "slow" and case.expected.codes == (2,) else case
    )


CASES = [paced(case) for case in (*sources(), *variables(), *commands(), *slow_jobs(), *places())]
