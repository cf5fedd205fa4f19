"""Where the nodes of a gang meet: torch's store, kept by none of them, and what head and nodes write into it.

Whichever node is revoked, the meeting place stays. Nodes leave messages and a pulse; the head leaves one order,
always whole. All of it is JSON, signed with the run's secret, which is not in the store: whoever reaches that can
list and change what is in it, and what is not signed for its place counts for nothing. What messages mean,
``group_monitor`` knows.

``python -m stash.spot.sync.rendezvous ADDRESS PORT`` keeps a store until it is killed, as an emulated head does.
``… ADDRESS PORT FOLDER MIN MAX`` is the head of a rented gang, on an on-demand machine: in FOLDER ``address`` appears
once nodes may come, ``events.jsonl`` has what happens, and ``wishes.jsonl`` what a controller asks for. It trains
nothing.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core.files import write_whole
from stash.core.membership import TOKEN, signature
from stash.spot.sync.group_monitor import GangOrders, GroupMonitor, GroupPhase
from stash.spot.train.run_orders import EVENTS, WISHES, EventLog

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

PORT = 29400
READY = "the store is there"
_PATIENCE = timedelta(seconds=20)
"""For the store to answer, once it is there."""
_MAX_BYTES = 2**16
"""Of a message that is read."""
_PREFIX = "stash/"
_LOOK_SECONDS = 0.5
_LAST_SECONDS = 45.0
"""For nodes to read that it is over, and to end: the store is gone with the head."""


def meeting_store(address: str, port: int) -> TCPStore:
    """Open torch's store at one address (port 0: a free one): by itself it would listen on all of them, and agents
    unpickle what they find there.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listening = socket.create_server((address, port))
    bound = listening.getsockname()[1]
    return TCPStore(address, bound, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())


class Noticeboard:
    """Either end of it; every call may raise RuntimeError, when the store is gone."""

    def __init__(self, store: TCPStore, token: str) -> None:
        self._store, self._secret = store, token.encode()
        self._taken = self._ordered = 0
        self._orders = GangOrders()
        self._pulses: dict[str, int] = {}
        """Of each node; what was there before, and put back by a stranger, counts for nothing, as with orders."""

    def post(self, what: str, who: str, **facts: Any) -> None:
        number = self._store.add(_PREFIX + "messages", 1)
        self._put(f"messages/{number}", {"what": what, "who": who, **facts})

    def beat(self, who: str) -> None:
        """I am there."""
        self._put(f"pulse/{who}", {"at": time.time_ns()})

    def orders(self) -> GangOrders:
        """Those before the head's first ones are to begin."""
        found = self._get("orders")
        if found is not None and (number := found.pop("number")) > self._ordered:
            self._ordered, saved = number, found.pop("saved")
            self._orders = GangOrders(**found, saved=None if saved is None else (saved[0], float(saved[1])))
        return self._orders

    def order(self, orders: GangOrders) -> None:
        self._ordered += 1
        self._put("orders", {**asdict(orders), "number": self._ordered})

    def news(self) -> list[dict[str, Any]]:
        """Messages since the last call, in their order; what is none is left out."""
        last, found = self._store.add(_PREFIX + "messages", 0), []
        while self._taken < last:
            place = f"messages/{self._taken + 1}"
            if not self._store.check([_PREFIX + place]):
                break  # numbered, and not written yet
            self._taken += 1
            message = self._get(place)
            if message is not None and all(isinstance(message.get(key), str) for key in ("what", "who")):
                found.append(message)
        return found

    def pulse(self, who: str) -> int:
        """When it beat last, by its own clock; 0 if it never did."""
        found = self._get(f"pulse/{who}")
        self._pulses[who] = max(0 if found is None else int(found["at"]), self._pulses.get(who, 0))
        return self._pulses[who]

    def _put(self, place: str, message: dict[str, Any]) -> None:
        text = json.dumps(message)
        self._store.set(_PREFIX + place, f"{self._tag(place, text)} {text}")

    def _get(self, place: str) -> dict[str, Any] | None:
        """What a member of the run put there; ``None`` if there is nothing, or a stranger's."""
        if not self._store.check([_PREFIX + place]):
            return None
        tag, _, text = bytes(self._store.get(_PREFIX + place)[:_MAX_BYTES]).decode(errors="replace").partition(" ")
        if not hmac.compare_digest(tag.encode(), self._tag(place, text).encode()):
            return None
        found: dict[str, Any] = json.loads(text)
        return found

    def _tag(self, place: str, text: str) -> str:
        return signature(self._secret, b"board", place.encode(), text.encode()).hex()


def board_at(address: str, port: int, token: str) -> Noticeboard:
    """A node's; raises RuntimeError where there is no store."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return Noticeboard(TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE), token)


def keep(folder: Path, address: str, port: int, least: int, most: int, token: str) -> None:
    """Be the head of a rented gang until its job is over."""
    board = Noticeboard(meeting_store(address, port), token)
    write_whole(folder / "address", f"{address}\n")
    print(READY, flush=True)
    events, wishes = EventLog(folder / EVENTS), EventLog(folder / WISHES)

    def emit(what: str, who: str, **facts: Any) -> None:
        events.append(at=time.time(), what=what, who=who, **facts)

    monitor = GroupMonitor(least, most, emit, time.monotonic())
    ordered, last = monitor.orders, float("inf")
    board.order(ordered)
    while monitor.phase is not GroupPhase.OVER or (monitor.nodes and time.monotonic() < last):
        for message in board.news():
            try:
                monitor.on_message(message, time.monotonic())
            except (KeyError, TypeError, ValueError) as error:  # of a stranger, or of another version
                print(f"a message that means nothing: {message!r:.200} ({error!r})", flush=True)
        if any(wish.get("do") == "stop" for wish in wishes.news()):
            monitor.stop(time.monotonic())
        monitor.look({who: board.pulse(who) for who in monitor.nodes}, time.monotonic())
        if monitor.orders != ordered:
            ordered = monitor.orders
            board.order(ordered)
        if monitor.phase is GroupPhase.OVER and last == float("inf"):
            last = time.monotonic() + _LAST_SECONDS
        time.sleep(_LOOK_SECONDS)


def main(address: str, port: str, *gang: str) -> None:
    """Keep a store, or be a gang's head."""
    if gang:
        folder, least, most = gang
        keep(Path(folder), address, int(port), int(least), int(most), os.environ[TOKEN])
    else:
        store = meeting_store(address, int(port))
        print(READY, flush=True)
        signal.pause()
        del store


if __name__ == "__main__":
    main(*sys.argv[1:])
