"""Endings: a job that ends by itself, well or not; what would follow it; what it would leave behind."""

import contextlib
import os
import signal
import sys

import psutil

from stash.measure.protocol.folder import claim
from tests.faults.case import Case, Expected
from tests.faults.cases.signals import FOREVER, KEPT, SHORT, measuring, warming_up

TORCHRUN = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"


def now(run, room):
    """Let the job end in its way, in the middle of its rounds."""
    measuring(run, room)
    (room.work / "now").touch()


def now_in_warm_up(run, room):
    warming_up(run, room)
    (room.work / "now").touch()


def data(change):
    """Do something to the job's data, in the middle of its rounds."""

    def act(run, room):
        measuring(run, room)
        change(room)

    return act


def ends(
    name,
    words,
    *says,
    options=(),
    act=now,
    rounds=KEPT,
    pace="slow",
):
    """However it ends: that is no success, and what was measured is kept."""
    writes, leaves = ("now", "samples.bin"), ("stash-*",)
    return Case(
        "endings",
        name,
        ("ending.py", *words),
        (*FOREVER, *options),
        act=act,
        pace=pace,
        expected=Expected((1,), says, rounds=rounds, writes=writes, leaves=leaves, seconds=90),
    )


ALONE = ("--nproc-per-node", "1")
BY_THEMSELVES = [
    ends(
        "all ranks exit with 3", ("exit",), r"rank 0 of ending.py ended with exit code 3 after \d+"
    ),
    ends(
        "rank 1 alone exits with 3",
        ("exit", "--rank", "1"),
        "rank 1 of ending.py ended with exit code 3",
    ),
    ends(
        "a script exits with words",
        ("exits-with-words",),
        "fatal: no licence",
        "exit code 1",
        pace="fast",
    ),
    ends(
        "one process exits with words",
        ("exits-with-words",),
        "fatal: no licence",
        "exit code 1",
        options=ALONE,
    ),
    ends(
        "one process raises SystemExit",
        ("raises-exit",),
        "ending.py ended with exit code 3",
        options=ALONE,
    ),
    ends(
        "ranks exit, destroying their group",
        ("exit", "--cleans-up"),
        "rank 0 of ending.py ended with exit code 3",
    ),
    ends("ranks fail, destroying their group", ("fails", "--cleans-up"), "ValueError: loss is nan"),
    ends("ranks fail", ("fails",), "ValueError: loss is nan"),
    ends("rank 1 alone fails", ("fails", "--rank", "1"), "ValueError: loss is nan"),
    ends("rank 1 leaves at once", ("leaves-at-once", "--rank", "1"), "exit code 3|without a word"),
    ends("rank 1 aborts", ("aborts", "--rank", "1"), "SIGABRT|without a word"),
    ends(
        "ranks exit while they warm up", ("exit",), "exit code 3", act=now_in_warm_up, rounds=None
    ),
    ends(
        "the data are deleted",
        ("never", "--workers", "1"),
        "No such file|FileNotFoundError",
        act=data(lambda room: (room.work / "samples.bin").unlink()),
    ),
    ends(
        "the data are cut short",
        ("never", "--workers", "1"),
        "Error",
        act=data(lambda room: (room.work / "samples.bin").write_bytes(b"")),
    ),
]


def runs(*lines):
    """The job is a shell script of these lines."""

    def prepare(room):
        (room.work / "run.sh").write_text("\n".join((*lines, "")))

    return prepare


def follows(name, *lines, pace="slow"):
    """A script's last lines must never run: the folder gets no new file."""
    return Case(
        "endings",
        name,
        ("--", "bash", "run.sh"),
        SHORT,
        prepare=runs(*lines),
        pace=pace,
        expected=Expected(rounds=1, seconds=180),
    )


PARENT = (
    f"import subprocess; subprocess.run('{TORCHRUN} train.py', shell=True); open('uploaded', 'w')"
)
WHAT_FOLLOWS = [
    follows("train.py && upload", f"{TORCHRUN} train.py && touch uploaded", pace="fast"),
    follows(
        "train.py || repair; upload, in a shell that traps SIGTERM",
        "trap 'touch trapped' TERM",
        f"{TORCHRUN} train.py || touch repaired",
        "touch uploaded",
    ),
    follows("one process, and then upload", f"{sys.executable} train.py; touch uploaded"),
    follows(
        "a short training, and then upload", f"{TORCHRUN} train.py --steps 300 && touch uploaded"
    ),
    follows("a Python program that uploads after its child", f'{sys.executable} -c "{PARENT}"'),
    follows(
        "a training that cannot be asked to end",
        f"{TORCHRUN} ending.py never --deaf; touch uploaded",
    ),
]


def none_escaped(seconds):
    """Helpers that clean their environment, and sleep for so long, by which they are found."""

    def check(outcome, room):
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline() == ["sleep", str(seconds)]:
                    left.append(process)
        for process in left:
            process.kill()
        return f"{len(left)} processes escaped" if left else None

    return check


def helper(seconds):
    """A line that starts one, in a session and without a parent of its own."""
    return f"(setsid env -i sleep {seconds} &)"


def interrupt(run, room):
    measuring(run, room)
    run.popen.send_signal(signal.SIGINT)


def killed(whom):
    """Kill the launcher, the supervisor of its launch, or both at once."""

    def act(run, room):
        measuring(run, room)
        launcher = psutil.Process(run.popen.pid)
        (supervisor,) = [
            each for each in launcher.children() if "supervisor.py" in " ".join(each.cmdline())
        ]
        for process in {
            "launcher": [launcher],
            "supervisor": [supervisor],
            "both": [supervisor, launcher],
        }[whom]:
            process.send_signal(signal.SIGKILL)

    return act


def a_killed_run(room):
    """Its folder is all that it left."""
    folder = room.temporary / "stash-killed"
    folder.mkdir(mode=0o700)
    os.close(claim(folder))


LEFT = [
    Case(
        "endings",
        "a helper that cleans its environment, at the job's end",
        ("--", "bash", "run.sh"),
        SHORT,
        prepare=runs(helper(86399.25), f"{TORCHRUN} train.py"),
        check=none_escaped(86399.25),
        expected=Expected(rounds=1, seconds=180),
    ),
    Case(
        "endings",
        "a helper that cleans its environment, when the launcher is killed",
        ("--", "bash", "run.sh"),
        FOREVER,
        prepare=runs(helper(86399.75), f"{TORCHRUN} train.py"),
        check=none_escaped(86399.75),
        act=killed("launcher"),
        expected=Expected((-9,), rounds=KEPT, leaves=("stash-*",)),
        pace="fast",
    ),
    Case(
        "endings",
        "the supervisor of a launch is killed",
        ("train.py",),
        FOREVER,
        act=killed("supervisor"),
        expected=Expected((1,), ("SIGKILL",), rounds=KEPT, leaves=("stash-*",)),
    ),
    Case(
        "endings",
        "launcher and supervisor are killed at once",
        ("train.py", "--workers", "1"),
        FOREVER,
        act=killed("both"),
        expected=Expected((-9,), rounds=KEPT, leaves=("stash-*",), seconds=20),
    ),
    Case(
        "endings",
        "shared memory that a job made and did not remove",
        ("ending.py", "never", "--shared"),
        SHORT,
        expected=Expected(rounds=1, seconds=180),
    ),
    Case(
        "endings",
        "what a killed run had left is swept, which is said",
        ("train.py",),
        SHORT,
        prepare=a_killed_run,
        expected=Expected(says=("removed what a killed run",), rounds=1, seconds=180),
    ),
    Case(
        "endings",
        "a job that cannot be asked to end, interrupted",
        ("ending.py", "never", "--deaf"),
        FOREVER,
        act=interrupt,
        expected=Expected((130,), ("interrupted",), rounds=KEPT, seconds=60),
    ),
]

CASES = [*BY_THEMSELVES, *WHAT_FOLLOWS, *LEFT]
