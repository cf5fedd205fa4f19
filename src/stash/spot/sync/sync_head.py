"""The head of a rented gang, on an on-demand machine: keeps the store at which torchrun meets, and the muster.

``python -m stash.spot.sync.sync_head FOLDER ADDRESS PORT MIN MAX``. In FOLDER ``address`` appears once nodes
may come, ``events.jsonl`` says what happens, and ``wishes.jsonl`` is what a controller asks for. It trains nothing.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from stash.core.files import write_whole
from stash.core.membership import TOKEN
from stash.spot.sync.board import Noticeboard
from stash.spot.sync.group_monitor import GroupMonitor
from stash.spot.sync.meeting import READY, meeting_store
from stash.spot.train.run_orders import EVENTS, WISHES, Tape

_LOOK_SECONDS = 0.5
_LAST_SECONDS = 45.0
"""For nodes to hear that it is over, and to end: the store is gone with the head."""


def keep(folder: Path, address: str, port: int, least: int, most: int, token: str) -> None:
    """Until the job is over."""
    board = Noticeboard(meeting_store(address, port), token)
    write_whole(folder / "address", f"{address}\n")
    print(READY, flush=True)
    events, wishes = Tape(folder / EVENTS), Tape(folder / WISHES)

    def tell(what: str, who: str, **facts: Any) -> None:
        events.tell(at=time.time(), what=what, who=who, **facts)

    muster, farewell = GroupMonitor(least, most, tell, time.monotonic()), None
    told = muster.orders
    board.order(told)
    while farewell is None or (muster.nodes and time.monotonic() < farewell):
        for message in board.news():
            _hear(muster, message)
        if any(wish.get("do") == "stop" for wish in wishes.news()):
            muster.stop(time.monotonic())
        muster.look({who: board.pulse(who) for who in muster.nodes}, time.monotonic())
        if muster.orders != told:
            told = muster.orders
            board.order(told)
        if muster.over and farewell is None:
            farewell = time.monotonic() + _LAST_SECONDS
        time.sleep(_LOOK_SECONDS)


def _hear(muster: GroupMonitor, message: dict[str, Any]) -> None:
    try:
        muster.hear(message, time.monotonic())
    except (KeyError, TypeError, ValueError) as error:  # of a stranger, or of another version
        print(f"a message that means nothing: {message!r:.200} ({error!r})", flush=True)


if __name__ == "__main__":
    place, own, number, fewest, all_of_them = sys.argv[1:]
    keep(Path(place), own, int(number), int(fewest), int(all_of_them), os.environ[TOKEN])
