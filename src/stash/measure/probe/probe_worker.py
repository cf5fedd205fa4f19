"""One rank of a probe, started by torchrun: runs the parts in order and brings what was found to rank 0.

``python -m stash.measure.probe.probe_worker ORDERS``. Parts of one machine are measured on all nodes at the same
time, by each node's first rank. Knows the order of things and what to do when a peer is lost, not how to measure.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import psutil
import torch

from stash.core.errors import StashError, one_line
from stash.core.files import write_whole
from stash.core.jsonl import append_row
from stash.core.records.base import Duration, Number, Record, utc_now
from stash.core.records.host import (
    Copy,
    DiskRead,
    Exchange,
    Host,
    Links,
    PartFigure,
    PartState,
    Probe,
    Stream,
    Unmeasured,
)
from stash.measure.host.describe import describe
from stash.measure.linux import counters
from stash.measure.probe import computing_parts, copies, disk_reads, exchanges, streams
from stash.measure.probe.probe_orders import (
    MEETING,
    ProbeOrders,
    Product,
    read_orders,
    share_budget,
)
from stash.measure.probe.team import AbsentError, Team, join

M = TypeVar("M", bound=Record)


Found = Sequence[Copy | DiskRead | Exchange | PartFigure | PartState | Stream | Unmeasured]

_OF_ONE_NODE: dict[str, type[Record]] = {
    "copies": Copy,
    "exchanges": Exchange,
    "reads": DiskRead,
    "figures": PartFigure,
    "states": PartState,
    "skipped": Unmeasured,
}
"""Fields of ``Links`` that belong to the node that reports them; streams may belong to another."""

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
        Run(team, _agree_on_orders(team, orders)).run_parts()
    except AbsentError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        # A rank that fails takes its node's others with it, and on node 0 they still have something to save.
        return 1 if team.node > 0 and team.leads else 0
    finally:
        shutil.rmtree(orders.scratch, ignore_errors=True)
    return 0


class Agreement(Record):
    """What node 0 decides for all."""

    budget: Duration
    parts: tuple[Literal["compute", "copies", "reads", "streams", "exchanges"], ...]
    products: tuple[Product, ...] = ()


class Contribution(Record):
    """What another node found in one part, and its steal time so far."""

    links: Links
    steal: Number | None


def _agree_on_orders(team: Team, own: ProbeOrders) -> ProbeOrders:
    """These orders with node 0's budget and parts; raises AbsentError if it says something else."""
    if team.rank == 0:
        decided = {"budget": own.budget, "parts": own.parts, "products": own.products}
        team.publish("orders", Agreement.model_validate(decided).model_dump_json())
    found = _parse_record(0, Agreement, team.wait_for("orders", _GRACE))
    return replace(own, budget=found.budget, parts=found.parts, products=found.products)


def _parse_record(node: int, model: type[M], text: str) -> M:
    """A record that a node published: the store they meet in is open to all. Raises AbsentError."""
    try:
        return model.model_validate_json(text)
    except ValueError:
        raise AbsentError(
            f"node {node} published what this version does not know; is the same Stash installed on all?"
        ) from None


def sort_links(found: Found, elapsed: float) -> Links:
    """Measurements of one node, sorted."""
    links = Links(created=utc_now(), elapsed_seconds=elapsed)
    kinds: dict[str, type[Record]] = {**_OF_ONE_NODE, "streams": Stream}
    sorted_links = {
        name: tuple(one for one in found if isinstance(one, kind)) for name, kind in kinds.items()
    }
    return links.model_copy(update=sorted_links)


class Board:
    """What all nodes have found so far, kept by rank 0 and saved after each part as a whole, valid ``Probe``.

    What is still to come stands in it as unmeasured, so a probe that ends early needs no repair.
    """

    def __init__(self, orders: ProbeOrders, hosts: Sequence[Host]) -> None:
        self._orders = orders
        self._left = list(orders.parts)
        self._hosts = [host.model_copy(update={"links": sort_links((), 0.0)}) for host in hosts]
        self._elapsed = 0.0

    def add_part(
        self, part: str, reports: Sequence[tuple[Links, float | None]], elapsed: float
    ) -> None:
        """Add what every node reports of a part, in the order of the nodes: its links, and its steal time so far."""
        for node, (found, steal) in enumerate(reports):
            more = {name: getattr(found, name) for name in _OF_ONE_NODE}
            self._extend(node, more, created=found.created, elapsed_seconds=found.elapsed_seconds)
            self._hosts[node] = self._hosts[node].model_copy(update={"steal_fraction": steal})
        for stream in (one for found, _ in reports for one in found.streams):
            # timed where it arrives, kept where it comes from
            self._extend(stream.source, {"streams": (stream,)})
        self._left.remove(part)
        self._elapsed = elapsed

    def _extend(self, node: int, more: dict[str, tuple[object, ...]], **fields: object) -> None:
        known = self._hosts[node].links
        assert known is not None
        fields |= {name: (*getattr(known, name), *added) for name, added in more.items()}
        self._hosts[node] = self._hosts[node].model_copy(
            update={"links": known.model_copy(update=fields)}
        )

    def make_probe(self) -> Probe:
        """Everything so far."""
        pending = tuple(
            Unmeasured(link=part, why="the probe ended before it was measured")
            for part in self._left
        )
        hosts = []
        for host in self._hosts:
            assert host.links is not None
            whole = host.links.model_copy(update={"skipped": (*host.links.skipped, *pending)})
            hosts.append(host.model_copy(update={"links": whole}))
        return Probe(
            stash_version=self._orders.version,
            created=utc_now(),
            hosts=tuple(hosts),
            budget_seconds=self._orders.budget,
            elapsed_seconds=self._elapsed,
        )

    def save(self) -> None:
        """Replace the result's file in one step; raises OSError."""
        write_whole(self._orders.result, self.make_probe().model_dump_json())


class Run:
    """This rank's way through the parts."""

    def __init__(self, team: Team, orders: ProbeOrders) -> None:
        self.team, self.orders = team, orders
        self.data = Path(orders.data) if orders.data else None
        self.began, self.before = time.monotonic(), counters.read_totals()
        self.free_bytes = psutil.virtual_memory().available
        self.devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self.gpu_users = computing_parts.gpu_users(self.devices) if team.leads else {}

    def run_parts(self) -> None:
        """All parts; raises AbsentError where it makes no sense to go on."""
        team, orders, board, patience = self.team, self.orders, None, _GRACE
        if team.leads:
            self._note_progress("met")
            host = describe(self.data, instance=orders.instance, ask_metadata=orders.ask_metadata)
            team.publish(f"host/{team.node}", host.model_dump_json())
            if host.limits is not None and host.limits.memory_bytes is not None:
                self.free_bytes = min(self.free_bytes, host.limits.memory_bytes)
        if team.rank == 0:
            texts = [team.wait_for(f"host/{node}", _GRACE) for node in range(team.nodes)]
            board = Board(
                orders, [_parse_record(node, Host, text) for node, text in enumerate(texts)]
            )
            board.save()
        # The other parts take no time: they say at once why they cannot be measured.
        possible = {
            "copies": self.devices > 0,
            "streams": team.nodes > 1,
            "exchanges": team.world > 1,
        }
        seconds_for = share_budget(
            [part for part in orders.parts if possible.get(part, True)], orders.budget
        )
        for part in orders.parts:
            seconds = seconds_for.get(part, 0.0)
            try:
                team.meet(f"begin/{part}", patience)
            except AbsentError:
                if board is None:  # no rank is left that takes what would be found
                    raise
            patience = seconds + _GRACE
            if team.leads and part in seconds_for:
                self._note_progress(part)
            if team.leads or part == "exchanges":
                found = self._measure_part(part, seconds)
                if team.leads:
                    self._report_part(part, found, board, patience)
        if team.lost is None:
            team.meet("end", patience)
        if team.leads:
            self._note_progress("done")

    def _note_progress(self, what: str) -> None:
        append_row(self.orders.progress, what=what)

    def _report_part(self, part: str, found: Found, board: Board | None, patience: float) -> None:
        """Publish what this node found for rank 0, or, on rank 0, take what all of them did."""
        team, elapsed = self.team, time.monotonic() - self.began
        own, steal = sort_links(found, elapsed), counters.activity_since(self.before).steal
        if board is None:
            team.publish(
                f"found/{part}/{team.node}", Contribution(links=own, steal=steal).model_dump_json()
            )
            return
        reports = [(own, steal)]
        for node in range(1, team.nodes):
            try:
                if team.lost is not None:
                    raise AbsentError(team.lost)
                other = _parse_record(
                    node, Contribution, team.wait_for(f"found/{part}/{node}", patience)
                )
                reports.append((other.links, other.steal))
            except AbsentError:
                why = f"node {node} stopped answering"
                team.give_up(why)
                reports.append((sort_links([Unmeasured(link=part, why=why)], elapsed), None))
        board.add_part(part, reports, elapsed)
        board.save()

    def _measure_part(self, part: str, seconds: float) -> Found:
        """One part on this rank; whatever fails in it becomes a sentence."""
        team, orders = self.team, self.orders
        cores = len(os.sched_getaffinity(0))
        machine = computing_parts.ComputingMachine(
            cores, self.free_bytes, self.devices, self.gpu_users
        )
        left_alone = {} if orders.force else computing_parts.why_left_alone(self.gpu_users)
        do: dict[str, Callable[[], Found]] = {
            "compute": lambda: computing_parts.measure(
                machine, seconds, orders.products, orders.force
            ),
            "copies": lambda: copies.measure(seconds, self.free_bytes, self.devices, left_alone),
            "reads": lambda: disk_reads.measure(self.data, Path(orders.scratch), seconds),
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
