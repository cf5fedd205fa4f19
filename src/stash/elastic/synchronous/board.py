"""What the nodes of a rented gang and its head tell each other, through the store at which torchrun's agents meet.

Nodes leave messages and a pulse; the head leaves one order, always whole. All of it is JSON under a prefix that only
who knows the run's token can name. What the messages mean is ``muster``'s business.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

TOKEN = "STASH_RUN_TOKEN"
"""Variable that holds it, on the head and on every node."""
PORT = 29400
_PATIENCE = timedelta(seconds=20)
"""For the store to answer, once it is there."""
_LONGEST = 2**16
"""Bytes of a message that are looked at."""


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
        self._store, self._prefix = store, f"stash/{token}/"
        self._taken = 0

    # Nodes -----------------------------------------------------------------------------------------------------

    def tell(self, what: str, who: str, **facts: Any) -> None:
        number = self._store.add(self._prefix + "told", 1)
        self._store.set(f"{self._prefix}told/{number}", json.dumps({"what": what, "who": who, **facts}))

    def beat(self, who: str) -> None:
        """I am there."""
        self._store.add(f"{self._prefix}pulse/{who}", 1)

    def orders(self) -> GangOrders:
        """Those before the head's first ones are to begin."""
        key = self._prefix + "orders"
        if not self._store.check([key]):
            return GangOrders()
        found = json.loads(self._store.get(key))
        saved = found.pop("saved")
        return GangOrders(**found, saved=None if saved is None else (saved[0], float(saved[1])))

    # Head ------------------------------------------------------------------------------------------------------

    def order(self, orders: GangOrders) -> None:
        self._store.set(self._prefix + "orders", json.dumps(asdict(orders)))

    def news(self) -> list[dict[str, Any]]:
        """Messages since the last call, in their order; what is none is left out."""
        last, found = self._store.add(self._prefix + "told", 0), []
        while self._taken < last:
            key = f"{self._prefix}told/{self._taken + 1}"
            if not self._store.check([key]):
                break  # numbered, and not written yet
            self._taken += 1
            message = _message(self._store.get(key))
            if message is not None:
                found.append(message)
        return found

    def pulse(self, who: str) -> int:
        """How often it beat."""
        return self._store.add(f"{self._prefix}pulse/{who}", 0)


def board_at(address: str, port: int, token: str) -> Noticeboard:
    """A node's; raises RuntimeError where there is no store."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return Noticeboard(TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE), token)


def _message(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw[:_LONGEST])
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("what", "who"))
    return found if whole else None
