"""Clocks that jump or stand still: the whole machine's or the job's alone, as it starts or while it measures.

Nothing may depend on them but the dates that a person reads: no rank is taken for hung, no round is lost.
"""

import os
from pathlib import Path

from tests.faults.case import Case, Expected

SITE = Path(__file__).parents[1] / "scripts" / "jumping"
HOUR = 3600
JUMPS = {
    "jumps an hour ahead": f"shift {HOUR}",
    "jumps an hour back": f"shift {-HOUR}",
    "stands still": "stand 1000000000",
}
WHOSE = {"the machine's": "all", "the job's": "job"}
WHEN = ("as the job starts", "while it measures")
OFTEN = ("--budget", "8", "--noise", "0.05")
"""Long enough for several looks of the launcher at the ranks after the jump."""


def jumping(words, measuring):
    """Once a round is done; else once there is a launcher, as a clock that was wrong before it is merely wrong."""

    def act(run, room):
        if measuring:
            run.wait_for("round 1 done")
        else:
            run.wait_until(lambda: any(room.temporary.glob("stash-*/launch-*")))
        (room.work / "jump").write_text(words)

    return act


def sane(outcome, room):
    """Nothing that was measured is negative or as long as the jump."""
    if outcome.profile is None:
        return "no profile"
    times = [block.seconds for block in outcome.profile.blocks]
    wrong = [seconds for seconds in times if not 0 < seconds < 600]
    elapsed = outcome.profile.elapsed_seconds
    if wrong or not 0 < elapsed < 600:
        return f"blocks of {wrong} s, {elapsed} s in all"
    return None


def _case(whose, what, when):
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    return Case(
        "clocks",
        f"{whose} clock {what} {when}",
        ("train.py", "--step-seconds", "0.02"),
        OFTEN,
        {"PYTHONPATH": path, "FAULTS_JUMP": "jump", "FAULTS_JUMP_OF": WHOSE[whose]},
        act=jumping(JUMPS[what], when == WHEN[1]),
        check=sane,
        expected=Expected((0,), never=("no rank of", "disturbed by"), rounds=2, writes=("jump",)),
        pace="fast" if (whose, what) == ("the job's", "stands still") else "slow",
    )


CASES = [_case(whose, what, when) for whose in WHOSE for what in JUMPS for when in WHEN]
