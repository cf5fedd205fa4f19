"""Signals: each, to the launcher or a process of the job, in every phase."""

from __future__ import annotations

import signal
from collections.abc import Callable

from runs import Started

from tests.faults.case import Case, Expected, Room

FOREVER = ("--budget", "300", "--precision", "0.05")


def while_measuring(number: signal.Signals) -> Callable[[Started, Room], None]:
    """Send it to the launcher once a round is done."""

    def act(run: Started, room: Room) -> None:
        run.wait_for("round 1 done")
        run.popen.send_signal(number)

    return act


CASES = [
    Case(
        "signals", f"{number.name} to the launcher while it measures", ("train.py", "--workers", "1"), FOREVER,
        act=while_measuring(number),
        expected=Expected((130,), ("interrupted",), rounds=1),
        pace="quick" if number is signal.SIGINT else "fast",
    )
    for number in (signal.SIGINT, signal.SIGTERM)
]  # fmt: skip
