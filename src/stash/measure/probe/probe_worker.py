"""One rank of a probe, started by torchrun: runs the parts in order and brings what was found to rank 0.

``python -m stash.measure.probe.probe_worker ORDERS``. Parts of one machine are measured on all nodes at the same
time, by each node's first rank. Knows the order of things and what to do when a peer is lost, not how to measure.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from pydantic import BaseModel

from stash.core.errors import StashError, one_line
from stash.core.records.host import Host, Links, Unmeasured
from stash.lab.zoo.datasets import KINDS
from stash.measure.host.describe import describe
from stash.measure.linux import counters
from stash.measure.probe import copies, disk_reads, exchanges, preparation, streams
from stash.measure.probe.probe_orders import MEETING, PARTS, ProbeOrders, read_orders, shares
from stash.measure.probe.team import AbsentError, Board, Found, Team, join, links
from stash.measure.protocol.wire import WireError, crosses, packed, unpacked

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_GRACE = 25.0
"""Seconds that a node may be slower with a part than its share, as when it flushes what it wrote."""


def main(path: str) -> int:
    """Run the orders in a file; the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    orders = read_orders(path)
    try:
        team = join(float(os.environ.get(MEETING, "120")))
    except AbsentError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    try:
        Run(team, _agreed(team, orders)).run()
    except AbsentError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        # A rank that fails takes its node's others with it, and on node 0 they still have something to save.
        return 1 if team.node > 0 and team.leads else 0
    finally:
        shutil.rmtree(orders.scratch, ignore_errors=True)
    return 0


@crosses
@dataclass(frozen=True)
class Agreement:
    """What node 0 decides for all."""

    budget: float
    parts: tuple[str, ...]
    kind: str | None


@crosses
@dataclass(frozen=True)
class Contribution:
    """What another node found in one part: its ``Links`` as JSON, and its steal time so far."""

    links: str
    steal: float | None


def _agreed(team: Team, own: ProbeOrders) -> ProbeOrders:
    """These orders with node 0's budget, parts and kind of data set; raises AbsentError if it says something else."""
    if team.rank == 0:
        team.publish("orders", packed(Agreement(own.budget, own.parts, own.kind)).decode())
    found = _decoded(0, Agreement, team.wait_for("orders", _GRACE))
    if not set(found.parts) <= set(PARTS) or (found.kind is not None and found.kind not in KINDS):
        raise _strange(0)
    return replace(own, budget=found.budget, parts=found.parts, kind=found.kind)


def _decoded(node: int, kind: type[T], text: str) -> T:
    """A record that a node published: the store they meet in is open to everybody. Raises AbsentError."""
    try:
        found = unpacked(text.encode())
    except WireError:
        raise _strange(node) from None
    if not isinstance(found, kind):
        raise _strange(node)
    return found


def _validated(node: int, model: type[M], text: str) -> M:
    """The same for what ends up in the probe."""
    try:
        return model.model_validate_json(text)
    except ValueError:
        raise _strange(node) from None


def _strange(node: int) -> AbsentError:
    return AbsentError(f"node {node} said what no node of this version says; is the same Stash installed on all?")


class Run:
    """This rank's way through the parts."""

    def __init__(self, team: Team, orders: ProbeOrders) -> None:
        self.team, self.orders = team, orders
        self.data = Path(orders.data) if orders.data else None
        self.began, self.before = time.monotonic(), counters.totals()
        self.free_bytes = psutil.virtual_memory().available
        self.devices = torch.cuda.device_count() if torch.cuda.is_available() else 0

    def run(self) -> None:
        """All parts; raises AbsentError where it makes no sense to go on."""
        team, patience = self.team, _GRACE
        if team.leads:
            self._say("met")
            host = describe(self.data, instance=self.orders.instance, ask_metadata=self.orders.ask_metadata)
            team.publish(f"host/{team.node}", host.model_dump_json())
            if host.limits is not None and host.limits.memory_bytes is not None:
                self.free_bytes = min(self.free_bytes, host.limits.memory_bytes)
        board = self._board() if team.rank == 0 else None
        seconds_for = shares(self._possible(), self.orders.budget)
        for part in self.orders.parts:
            seconds = seconds_for.get(part, 0.0)
            try:
                team.meet(f"begin/{part}", patience)
            except AbsentError:
                if board is None:  # nobody is left who would be told
                    raise
            patience = seconds + _GRACE
            found: Found = ()
            if team.leads and part in seconds_for:
                self._say(part)
            if team.leads or part == "exchanges":
                found = self._measured(part, seconds)
            if team.leads:
                self._report(part, found, board, patience)
        if team.lost is None:
            team.meet("end", patience)
        if team.leads:
            self._say("done")

    def _possible(self) -> list[str]:
        """The parts that take time; the others say at once why they cannot be measured."""
        here = {"streams": self.team.nodes > 1, "exchanges": self.team.world > 1}
        here["preparation"] = self.orders.kind is not None
        return [part for part in self.orders.parts if here.get(part, True)]

    def _say(self, what: str) -> None:
        with self.orders.progress.open("a") as file:
            file.write(json.dumps({"what": what}) + "\n")

    def _board(self) -> Board:
        found = [self.team.wait_for(f"host/{node}", _GRACE) for node in range(self.team.nodes)]
        board = Board(self.orders, [_validated(node, Host, text) for node, text in enumerate(found)])
        board.save()
        return board

    def _report(self, part: str, found: Found, board: Board | None, patience: float) -> None:
        """Tell rank 0 what this node found, or, on rank 0, take what all of them did."""
        elapsed = time.monotonic() - self.began
        own = links(found, elapsed), counters.since(self.before).steal
        if board is None:
            text = packed(Contribution(own[0].model_dump_json(), own[1])).decode()
            self.team.publish(f"found/{part}/{self.team.node}", text)
            return
        others = [self._told(part, node, patience, elapsed) for node in range(1, self.team.nodes)]
        board.take(part, [own, *others], elapsed)
        board.save()

    def _told(self, part: str, node: int, patience: float, elapsed: float) -> tuple[Links, float | None]:
        try:
            if self.team.lost is not None:
                raise AbsentError(self.team.lost)
            told = _decoded(node, Contribution, self.team.wait_for(f"found/{part}/{node}", patience))
            return _validated(node, Links, told.links), told.steal
        except AbsentError:
            why = f"node {node} stopped answering"
            self.team.lost = why
            return links([Unmeasured(link=part, why=why)], elapsed), None

    def _measured(self, part: str, seconds: float) -> Found:
        """One part on this rank; whatever fails in it becomes a sentence."""
        team, orders = self.team, self.orders
        cores = len(os.sched_getaffinity(0))
        scratch, spec = Path(orders.scratch), KINDS[orders.kind or "images"]
        folders = disk_reads.Folders(self.data, scratch, int(spec.sample_bytes * spec.samples_per_file))
        do: dict[str, Callable[[], Found]] = {
            "copies": lambda: copies.measure(seconds, cores, self.free_bytes, self.devices),
            "reads": lambda: disk_reads.measure(folders, seconds),
            "preparation": lambda: preparation.measure(orders.kind, self.data, scratch, cores, seconds),
            "streams": lambda: streams.measure(team, seconds, orders.secret),
            "exchanges": lambda: exchanges.measure(team, seconds, self.devices),
        }
        if part in ("streams", "exchanges") and team.lost is not None:
            return [Unmeasured(link=part, why=team.lost)]
        try:
            return do[part]()
        except (OSError, RuntimeError, MemoryError, AbsentError, StashError) as error:
            return [Unmeasured(link=part, why=one_line(error))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
