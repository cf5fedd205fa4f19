"""Shared machines: other profiles, other users, limits, and environments that are not as usual.

What one profile does is told to the others, touches nothing of theirs, and where a limit ends it, a sentence says so.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import stash
from stash.measure.protocol.folder import claim
from tests.faults.case import Case, Expected

MEMORY = Path("/sys/fs/cgroup/memory")
USER = 65534
"""The user that Debian calls nobody."""
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
SYSTEM_PYTHON = "/usr/bin/python3"
LOG = ("stash-*",)
"""What a failed profile may leave: its log."""


def is_root():
    return os.geteuid() == 0


def usual(room, *before, job=("train.py",)):
    """A profile as the driver would start it, with words before it."""
    output = str(room.work / "run.stash.json")
    own = ("-m", "stash", "profile", "--budget", "2", "--noise", "50", "-o", output)
    return (*before, sys.executable, *own, *job)


def started_by(*before):
    """That program starts the profile."""
    return lambda room: usual(room, *before)


def beside(run, room):
    """Another profile, with a temporary folder of its own, while the first measures; then that one is interrupted."""
    temporary = room.outside / "tmp"
    temporary.mkdir()
    run.wait_for("round 1 done")
    other = str(room.outside / "other.stash.json")
    words = [
        sys.executable,
        "-m",
        "stash",
        "profile",
        "--budget",
        "2",
        "--noise",
        "50",
        "-o",
        other,
        "train.py",
    ]
    subprocess.run(
        words,
        cwd=room.work,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
        capture_output=True,
    )
    run.popen.send_signal(signal.SIGINT)


def both_say_so(outcome, room):
    other = stash.load(room.outside / "other.stash.json")
    mute = [
        name
        for name, profile in (("first", outcome.profile), ("other", other))
        if profile is None or not any("another profile" in note for note in profile.notes)
    ]
    return f"the {mute[0]} does not mention the other" if mute else None


def of_another_user(room):
    """The temporary folder is everybody's; a killed and a living profile of somebody else have folders in it."""
    room.temporary.chmod(0o1777)
    for path in (room.work, *room.work.rglob("*")):
        os.chown(path, USER, USER)
    for path in (room.temporary.parent, room.outside):
        path.chmod(0o755)
    dead = room.temporary / "stash-of-root"
    dead.mkdir(mode=0o700)
    os.close(claim(dead))


def untouched(outcome, room):
    return (
        None
        if (room.temporary / "stash-of-root" / "owner").exists()
        else "removed what another user's run left"
    )


@lru_cache(maxsize=1)
def users_python():
    """Words that run Python with Stash as another user, who cannot reach root's home; empty if none do."""
    if not is_root() or shutil.which("setpriv") is None:
        return ()
    path = os.pathsep.join([str(Path(stash.__file__).parents[1]), sysconfig.get_path("purelib")])
    for python in (sys.executable, SYSTEM_PYTHON):
        words = (*AS_USER, "env", f"PYTHONPATH={path}", python)
        if (
            subprocess.run(
                [*words, "-c", "import torch"], capture_output=True, check=False, cwd="/"
            ).returncode
            == 0
        ):
            return words
    return ()


def has_users():
    return bool(users_python())


def as_user(*limits):
    """Another user starts the profile, through a program that sets limits."""
    return lambda room: (*users_python()[:-1], *limits, users_python()[-1], *usual(room)[1:])


def limited(option, *before):
    return started_by(*before, "prlimit", f"--{option}")


def in_group(room):
    """In a memory control group of its own, which the shell that starts it enters."""
    return (
        "sh",
        "-c",
        f'echo $$ > {_group(room)}/cgroup.procs && exec "$@"',
        "sh",
        *usual(room, job=("fails.py", "--how", "exhaust", "--when", "step")),
    )


def _group(room):
    return MEMORY / f"stash-faults-{room.work.parent.name}"


def make_group(room):
    _group(room).mkdir()
    (_group(room) / "memory.limit_in_bytes").write_text(str(1 << 30))


def remove_group(outcome, room):
    _group(room).rmdir()


def has_groups():
    return is_root() and (MEMORY / "memory.limit_in_bytes").exists() and os.access(MEMORY, os.W_OK)


def customised(name, text):
    """A customisation of Python's start of the user's own."""

    def prepare(room):
        (room.work / "own").mkdir()
        (room.work / "own" / f"{name}.py").write_text(text)

    return prepare


def both(*prepared):
    def prepare(room):
        for each in prepared:
            each(room)

    return prepare


def own_path():
    return {"PYTHONPATH": os.pathsep.join(filter(None, ["own", os.environ.get("PYTHONPATH")]))}


def other_environment(room):
    """As conda makes them: an interpreter with a prefix of its own, no virtual one; with PyTorch, without Stash."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base, prefix = Path(sys.base_prefix), room.outside / "env"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(Path(sys.executable).resolve(), prefix / "bin" / "python")
    library = prefix / "lib" / version
    library.mkdir(parents=True)
    for path in (base / "lib" / version).iterdir():
        if path.name != "site-packages":
            (library / path.name).symlink_to(path)
    packages = library / "site-packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith(
            ("__", "stash", "typer", "pydantic", "psutil")
        ):
            (packages / path.name).symlink_to(path)


def in_other_environment(*arguments):
    def program(room):
        return usual(
            room, job=("--", str(room.outside / "env" / "bin" / "python"), *arguments, "in_env.py")
        )

    return program


RUNS = Expected(rounds=1)
RUNS_OR_SAYS = Expected(
    (0, 1, 2),
    never=(r"Traceback \(most recent call last\)(?:.*\n)*.*/stash/",),
    rounds=0,
    leaves=LOG,
)
"""Where a limit may be too tight, or not."""
AT_LIMITS = {
    "64 open files": ("nofile=64",),
    "24 open files": ("nofile=24",),
    "12 open files": ("nofile=12",),
    "3 GB of addresses": (f"as={3 << 30}",),
    "1 GB of addresses": (f"as={1 << 30}",),
    "64 kB of locked memory": ("memlock=65536",),
    "files of 1 MB": ("fsize=1048576",),
}
CUSTOMISED = {
    "raises": ("raise RuntimeError('of the user')", RUNS),
    "raises an ImportError": ("import no_such_module", RUNS),
    "prints": ("print('hello from the start of Python')", RUNS),
}

CASES = [
    Case(
        "concurrency",
        "two profiles at once",
        options=("--budget", "300", "--noise", "0.05"),
        act=beside,
        check=both_say_so,
        expected=Expected((130,), ("another profile",), rounds=1),
        pace="fast",
    ),
    Case(
        "concurrency",
        "two users with one temporary folder",
        prepare=of_another_user,
        program=as_user(),
        variables={"HOME": "/nonexistent"},
        check=untouched,
        needs=has_users,
        pace="fast",
        expected=Expected(rounds=1, leaves=("stash-of-root",)),
    ),
    *(
        Case("concurrency", f"with {name}", program=limited(*words), expected=RUNS_OR_SAYS)
        for name, words in AT_LIMITS.items()
    ),
    *(
        Case(
            "concurrency",
            f"with {count} processes of a user",
            prepare=of_another_user,
            needs=has_users,
            program=as_user("prlimit", f"--nproc={count}"),
            expected=replace(RUNS_OR_SAYS, leaves=LOG),
        )
        for count in (12, 40)
    ),
    Case(
        "concurrency",
        "a memory control group of 1 GB",
        prepare=make_group,
        program=in_group,
        check=remove_group,
        needs=has_groups,
        expected=Expected(
            (1,), (r"ended by SIGKILL \(killed, or out of memory\)|ran out of memory",), leaves=LOG
        ),
    ),
    Case(
        "concurrency",
        "no HOME",
        program=started_by("env", "-u", "HOME"),
        expected=RUNS,
        pace="fast",
    ),
    Case(
        "concurrency", "a HOME that is not there", variables={"HOME": "/nonexistent"}, expected=RUNS
    ),
    *(
        Case(
            "concurrency",
            f"a {name} that {what}",
            prepare=customised(name, text),
            variables=own_path(),
            expected=expected,
        )
        for name in ("sitecustomize", "usercustomize")
        for what, (text, expected) in CUSTOMISED.items()
    ),
    Case(
        "concurrency",
        "an environment like conda's, without Stash",
        prepare=other_environment,
        program=in_other_environment(),
        expected=RUNS,
        pace="fast",
    ),
    *(
        Case(
            "concurrency",
            f"the same, with a {name} that raises",
            prepare=both(other_environment, customised(name, "raise RuntimeError('of the user')")),
            variables={**own_path(), "PYTHONUSERBASE": "own"},
            program=in_other_environment(),
            expected=RUNS,
        )
        for name in ("sitecustomize", "usercustomize")
    ),
    Case(
        "concurrency",
        "a launcher in the system's Python",
        job=("--", "sh", "foreign.sh"),
        variables={
            "SYSTEM_PYTHON": SYSTEM_PYTHON,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        expected=RUNS,
        needs=Path(SYSTEM_PYTHON).exists,
    ),
]
