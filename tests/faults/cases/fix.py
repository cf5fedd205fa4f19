"""``stash fix``: its search is interrupted, killed, doubled and shut out; the user's files are as they were."""

import signal

from tests.faults.case import Case, Expected
from tests.faults.cases.environments import NOT_OMNIPOTENT, is_root
from tests.faults.cases.saving import (
    SCRIPT,
    STASH,
    checkpoint_is_back,
    hit_by,
    in_closed_folder,
    second_refused,
    starting,
    stash_in,
    wait_until_saved,
    with_checkpoint,
)

FIX = ("fix", "--budget", "3m")
WRITES = ("saves*.fix.json", "saves*.fix.patch")


def searching(run, room):
    """While a launch of the search trains, and has saved."""
    run.wait_for("timing the unmodified script")
    wait_until_saved(run, room)


def killed_and_put_back(run, room):
    """The next command puts back what a killed one left."""
    hit_by(signal.SIGKILL, searching)(run, room)
    run.popen.wait()
    for process in run.processes():
        process.wait(60)
    stash_in(room, "restore")


def cases():
    start = starting(*FIX, SCRIPT)
    for phase, wait in {
        "while it profiles": wait_until_saved,
        "while it searches": searching,
    }.items():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            yield Case(
                "fix",
                f"{number.name} {phase}",
                prepare=with_checkpoint,
                program=start,
                act=hit_by(number, wait),
                check=checkpoint_is_back,
                pace="fast" if number is signal.SIGINT else "slow",
                expected=Expected((130,), ("interrupted",), seconds=10.0, writes=WRITES),
            )
    yield Case(
        "fix",
        "SIGKILL while it searches, then `stash restore`",
        prepare=with_checkpoint,
        program=start,
        act=killed_and_put_back,
        check=checkpoint_is_back,
        expected=Expected((-signal.SIGKILL,), leaves=("stash-*",)),
    )
    for name, words in {"another search": FIX, "a profile": ("profile",)}.items():
        yield Case(
            "fix",
            f"{name} in its folder",
            prepare=with_checkpoint,
            program=start,
            act=second_refused(*words),
            check=checkpoint_is_back,
            expected=Expected((130,), writes=WRITES),
        )
    yield Case(
        "fix",
        "a folder that is read-only",
        prepare=in_closed_folder,
        needs=is_root,
        program=starting(*FIX, SCRIPT, before=(*NOT_OMNIPOTENT, *STASH)),
        expected=Expected((2,), ("is not writable",)),
    )


CASES = list(cases())
