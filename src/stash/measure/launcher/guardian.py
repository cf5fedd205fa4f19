"""Waits for the end of a launcher that cannot do it any more, ends what is left of its job, and puts files back.

A process of its own, in a session of its own. The launcher ends it when there is nothing left to guard, so it only
comes to act where the launcher was killed. Standard library only: it has to be there before the job is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PERIOD = 0.5
_MAX_SECONDS = 30.0
"""For a supervisor to end its launch; it takes a few."""


def main(launcher: int, run: Path, kept: Path) -> int:
    """Guard what ``run`` keeps in ``kept`` for as long as process ``launcher``, which has started this one, lives."""
    from stash.core.end_tree import end_at_once
    from stash.core.interrupts import REQUESTS
    from stash.measure.launcher.guarded import report_sentences
    from stash.measure.launcher.neighbours import remove_run
    from stash.measure.linux.processes import find_by_variable, find_by_word
    from stash.measure.protocol.orders import VARIABLE
    from stash.measure.protocol.put_back import put_all_back

    for number in REQUESTS:  # they are for the launcher to follow; this process ends with it
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == launcher:
        with suppress(OSError):
            os.utime(kept)  # a sign of life: what is written later is somebody else's
        time.sleep(_PERIOD)
    orders = [f"{launch}/orders.json" for launch in run.glob("launch-*")]
    deadline = time.monotonic() + _MAX_SECONDS
    while (
        any(find_by_word(f"{VARIABLE}={each}") for each in orders) and time.monotonic() < deadline
    ):  # supervisors
        time.sleep(0.05)
    end_at_once(
        lambda: [process for each in orders for process in find_by_variable(VARIABLE, each)]
    )
    found = report_sentences(put_all_back(kept) + remove_run(run, late=False))
    if found:
        print(
            f"stash: the profile (process {launcher}) was killed; {'; '.join(found)}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))
