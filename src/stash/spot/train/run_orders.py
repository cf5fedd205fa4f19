"""What one asynchronous training is asked to do, and what it writes while it does: lines of JSON in a folder.

Whoever starts it (on this machine, on rented ones) writes orders and appends wishes; the program
on the head (``head``) appends what happens. So either may die, and the other still knows. Pure but for the files.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ORDERS = "orders.json"
EVENTS = "events.jsonl"
WISHES = "wishes.jsonl"
UPDATES = "updates.jsonl"
RAY_HEAD = ("--include-dashboard=false", "--no-monitor")
"""Words of ``ray start --head``: nothing listens there that asks for no token (the dashboard, counters)."""


Address = tuple[str, int]


@dataclass(frozen=True)
class WorkerPlace:
    """A worker, and what its machine is."""

    name: str
    type: str
    samples: int
    """Of a lease: the machine's batch."""
    gpus: int = 1
    """That share a lease, as far as the machine has them."""


@dataclass(frozen=True)
class TrainingOrders:
    """One training."""

    job: str
    """``file.py:name``."""
    checkpoints: str
    """A folder that every server reaches."""
    servers: tuple[str, ...]
    workers: tuple[WorkerPlace, ...]
    seconds: float | None = None
    """Of training, at most."""
    loss: float | None = None
    """To be reached by the running mean."""
    checkpoint_seconds: float = 30.0
    at_once: int = 1
    """Workers that a server lets send, or receive, at the same time: as many as it takes to fill its link."""
    address: str | None = None
    """Of the head's Ray, where machines join; ``None``: everything on this machine."""
    interface: str = "127.0.0.1"
    model: str | None = None
    replace: bool = True


def write_orders(folder: Path, orders: TrainingOrders) -> None:
    (folder / ORDERS).write_text(json.dumps(asdict(orders)))


def read_orders(folder: Path) -> TrainingOrders:
    data = json.loads((folder / ORDERS).read_text())
    data["workers"] = tuple(WorkerPlace(**each) for each in data["workers"])
    data["servers"] = tuple(data["servers"])
    return TrainingOrders(**data)
