"""What the nodes of a rented gang and its head tell each other, through the store at which torchrun's agents meet.

Nodes leave messages and a pulse; the head leaves one order, always whole. All of it is JSON, signed with the run's
secret, which is not in the store: whoever reaches that can list and change what is in it, and what is not signed for
its place counts for nothing. What the messages mean is ``barrier``'s business.
"""

from __future__ import annotations

import hmac
import json
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

from stash.core.membership import signature

PORT = 29400
_PATIENCE = timedelta(seconds=20)
"""For the store to answer, once it is there."""
_LONGEST = 2**16
"""Bytes of a message that are looked at."""
_PREFIX = "stash/"


class _Store(Protocol):
    def add(self, key: str, amount: int) -> int: ...

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...


@dataclass(frozen=True)
class GangOrders:
    """What all nodes are to do."""

    round: int = 1
    """Another one is another rendezvous: every agent starts anew."""
    listens: bool = False
    """Whether some script looks for requests to save."""
    wanted: str | None = None
    """The latest request, its own word."""
    saved: tuple[str | None, float] | None = None
    """Of the checkpoint that was saved last: the word it answers, and the seconds it took."""
    over: bool = False
    """End, whatever you do."""


class Noticeboard:
    """Either end of it; every call may raise RuntimeError, when the store is gone."""

    def __init__(self, store: _Store, token: str) -> None:
        self._store, self._secret = store, token.encode()
        self._taken = self._ordered = 0
        self._orders = GangOrders()
        self._pulses: dict[str, int] = {}
        """Of each node; what was there before, put back by somebody, counts for nothing, as with orders."""

    # Nodes -----------------------------------------------------------------------------------------------------

    def tell(self, what: str, who: str, **facts: Any) -> None:
        number = self._store.add(_PREFIX + "told", 1)
        self._put(f"told/{number}", {"what": what, "who": who, **facts})

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

    # Head ------------------------------------------------------------------------------------------------------

    def order(self, orders: GangOrders) -> None:
        self._ordered += 1
        self._put("orders", {**asdict(orders), "number": self._ordered})

    def news(self) -> list[dict[str, Any]]:
        """Messages since the last call, in their order; what is none is left out."""
        last, found = self._store.add(_PREFIX + "told", 0), []
        while self._taken < last:
            place = f"told/{self._taken + 1}"
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

    # Both ------------------------------------------------------------------------------------------------------

    def _put(self, place: str, message: dict[str, Any]) -> None:
        text = json.dumps(message)
        self._store.set(_PREFIX + place, f"{self._tag(place, text)} {text}")

    def _get(self, place: str) -> dict[str, Any] | None:
        """What a member of the run put there; ``None`` if there is nothing, or somebody else's."""
        if not self._store.check([_PREFIX + place]):
            return None
        tag, _, text = bytes(self._store.get(_PREFIX + place)[:_LONGEST]).decode(errors="replace").partition(" ")
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
