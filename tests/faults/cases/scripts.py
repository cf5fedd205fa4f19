"""Scripts' own failures: how, when, on which rank or in a loader's worker; and words that name no job.

The profile fails with one sentence that says what happened and when, keeps the rounds that were done, and leaves
nothing but the log that it names.
"""

from dataclasses import replace

from tests.faults.case import Case, Expected

FOREVER = ("--budget", "300", "--noise", "0.05")
ONE, TWO = ("--nproc-per-node", "1"), ("--nproc-per-node", "2")
BEFORE, AFTER = "before its first training step", r"after \d+ training steps"

SAYS = {
    "raise": "failed {when}: RuntimeError: the data ended at sample 7",
    "exit": "ended with exit code 3 {when}",
    "fatal": "fatal: no licence\n(?:.*\n)*.*ended with exit code 1 {when}",
    "_exit": "ended with exit code 5 {when}",
    "segfault": "was ended by SIGSEGV {when}",
    "kill": r"was ended by SIGKILL \(killed, or out of memory\) {when}",
    "memory": "ran out of memory {when}",
    "recursion": "failed {when}: RecursionError: maximum recursion depth exceeded",
}
"""How a script may fail, and what is said of it."""
FAILURES = {
    "import": ("raise", "exit"),
    "setup": ("raise", "fatal", "kill", "recursion"),
    "step": ("raise", "_exit", "segfault", "memory"),
    "later": ("raise", "_exit", "segfault", "kill", "memory"),
}
"""When; of each moment those failures that can look different then."""


def fail_after_a_round(run, room):
    """Let it fail once a round is done."""
    run.wait_for("round 1 done")
    (room.work / "now").touch()


def only_the_log(outcome, room):
    """A failure's log stays, in the one folder of the run, and is named; nothing else of that folder does."""
    left = sorted(
        str(path.relative_to(room.temporary)) for path in room.temporary.rglob("stash-*/*")
    )
    names = [name.partition("/")[2] for name in left]
    if names != ["output.log", "owner"]:
        return f"left {left}, where only a log and its owner may stay"
    return None if str(room.temporary / left[0]) in outcome.stderr else "its log is not named"


def case(name, how, when, says, *more, pace="slow", **given):
    """A job that fails ``how`` it is told and ``when``."""
    later = when == "later"
    return Case(
        "scripts",
        name,
        ("fails.py", "--how", how, "--when", when, *more),
        (*ONE, *FOREVER) if later else ONE,
        act=fail_after_a_round if later else None,
        check=only_the_log,
        expected=Expected(
            (1,), (says,), rounds=1 if later else None, writes=("now",), leaves=("stash-*",)
        ),
        pace=pace,
        **given,
    )


def _alone(when, how):
    moment = {
        "import": "before torch",
        "setup": "before training",
        "step": "in warm-up",
        "later": "while measured",
    }
    says = SAYS[how].format(when=AFTER if when in ("step", "later") else BEFORE)
    pace = "quick" if (when, how) == ("setup", "raise") else "fast" if when == "step" else "slow"
    return case(f"{how} {moment[when]}", how, when, says, pace=pace)


def _of_two(when, how, rank):
    """One of two ranks fails: the other notices, and is not taken for the cause."""
    one = case(
        f"{how} of rank {rank} of 2, {when}",
        how,
        when,
        SAYS[how].format(when=AFTER),
        "--rank",
        str(rank),
    )
    by_itself = how in ("raise", "memory")
    says = (
        one.expected.says
        if by_itself
        else (rf"rank {rank} of fails.py (was ended by|ended with(out a word)?)",)
    )
    expected = replace(one.expected, says=says, never=("error: .*[Cc]onnection (closed|reset)",))
    return replace(one, options=(*one.options[len(ONE) :], *TWO), expected=expected)


def _in_worker(how, says):
    return case(f"{how} in a loader's worker", how, "worker", says)


def _refused(name, job, says):
    return Case("scripts", name, job, expected=Expected((2,), (says,)), pace="fast")


def hung(one, *wait):
    """The same, of a job that stands still and is ended after a minute, or when it was not to start for longer."""
    return replace(one, options=(*ONE, *wait), expected=replace(one.expected, seconds=120))


CASES = [
    *(_alone(when, how) for when, hows in FAILURES.items() for how in hows),
    *(
        _of_two(when, how, rank)
        for when, how, rank in (
            ("later", "kill", 1),
            ("later", "kill", 0),
            ("step", "segfault", 1),
            ("later", "raise", 1),
            ("step", "memory", 1),
            ("step", "_exit", 0),
        )
    ),
    _in_worker("raise", "RuntimeError: the data ended at sample 7"),
    _in_worker("kill", r"DataLoader worker \(pid"),
    _in_worker("_exit", r"DataLoader worker \(pid"),
    _in_worker("memory", "ran out of memory"),
    hung(
        case("deadlock before training", "deadlock", "setup", "took no training step within"),
        "--start-timeout",
        "15",
    ),
    hung(
        case(
            "deadlock while measured", "deadlock", "later", "no rank of fails.py ended a step for"
        ),
        "--budget",
        "30",
        "--noise",
        "0.05",
    ),
    case(
        "a hint about memory before it exits",
        "_exit",
        "step",
        "ended with exit code 5",
        "--chatter",
        "hint",
    ),
    case(
        "a hint about memory before it raises",
        "raise",
        "step",
        "data ended at sample 7",
        "--chatter",
        "hint",
    ),
    case(
        "a progress bar of 4 MB before it exits",
        "_exit",
        "step",
        "ended with exit code 5",
        "--chatter",
        "bar",
    ),
    Case(
        "scripts",
        "an exception in a thread that no other joins",
        ("fails.py", "--how", "thread", "--when", "step"),
        expected=Expected(rounds=1),
    ),
    _refused(
        "a script that is not there",
        ("trian.py",),
        r"there is no script trian.py; did you mean train.py",
    ),
    _refused("a folder for a script", ("jumping",), "jumping is a folder"),
    _refused(
        "a file of bytes for a script",
        ("samples.bin",),
        "cannot read samples.bin|python cannot run it",
    ),
]
