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


ProbePart = Copy | DiskRead | Exchange | PartFigure | PartState | Stream | Unmeasured
Found = Sequence[ProbePart]
_KINDS: dict[str, type[Record]] = {
    "copies": Copy,
    "exchanges": Exchange,
    "reads": DiskRead,
    "figures": PartFigure,
    "states": PartState,
    "skipped": Unmeasured,
    "streams": Stream,
}
"""Fields of ``Links``."""
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


class NodeReport(Record):
    """What one node has found so far, and its steal time."""

    links: Links
    steal: Number | None = None


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
    sorted_links = {
        name: tuple(one for one in found if isinstance(one, kind)) for name, kind in _KINDS.items()
    }
    links = Links(created=utc_now(), elapsed_seconds=elapsed)
    return links.model_copy(update=sorted_links)


def make_probe(
    orders: ProbeOrders,
    hosts: Sequence[Host],
    reports: Sequence[NodeReport],
    left: Sequence[str],
    elapsed: float,
) -> Probe:
    """What all nodes have found so far, as a whole, valid probe.

    The parts that are ``left`` stand in it as unmeasured, so a probe that ends early needs no repair.
    """
    why = "the probe ended before it was measured"
    pending = tuple(Unmeasured(link=part, why=why) for part in left)
    streams = [stream for report in reports for stream in report.links.streams]
    whole = []
    for node, (host, report) in enumerate(zip(hosts, reports, strict=True)):
        # a stream is timed where it arrives, and kept where it comes from
        own = {
            "streams": tuple(stream for stream in streams if stream.source == node),
            "skipped": report.links.skipped + pending,
        }
        known = {"links": report.links.model_copy(update=own), "steal_fraction": report.steal}
        whole.append(host.model_copy(update=known))
    return Probe(
        stash_version=orders.version,
        created=utc_now(),
        hosts=tuple(whole),
        budget_seconds=orders.budget,
        elapsed_seconds=elapsed,
    )


class Run:
    """This rank's way through the parts."""

    def __init__(self, team: Team, orders: ProbeOrders) -> None:
        self.team, self.orders = team, orders
        self.data = Path(orders.data) if orders.data else None
        self.began, self.before = time.monotonic(), counters.read_totals()
        self.free_bytes = psutil.virtual_memory().available
        self.devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        self.gpu_users = computing_parts.gpu_users(self.devices) if team.leads else {}
        self.found: list[ProbePart] = []
        self.hosts: list[Host] = []
        """Of all nodes; this and ``reports`` at rank 0."""
        self.reports: list[NodeReport] = []

    def run_parts(self) -> None:
        """All parts; raises AbsentError where it makes no sense to go on."""
        team, orders, patience = self.team, self.orders, _GRACE
        if team.leads:
            self._describe_hosts()
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
                if team.rank > 0:  # no rank is left that takes what would be found
                    raise
            patience = seconds + _GRACE
            if team.leads and part in seconds_for:
                self._note_progress(part)
            if team.leads or part == "exchanges":
                self.found += self._measure_part(part, seconds)
                if team.leads:
                    self._report_part(part, patience)
        if team.lost is None:
            team.meet("end", patience)
        if team.leads:
            self._note_progress("done")

    def _describe_hosts(self) -> None:
        team, orders = self.team, self.orders
        self._note_progress("met")
        host = describe(self.data, instance=orders.instance, ask_metadata=orders.ask_metadata)
        team.publish(f"host/{team.node}", host.model_dump_json())
        if host.limits is not None and host.limits.memory_bytes is not None:
            self.free_bytes = min(self.free_bytes, host.limits.memory_bytes)
        if team.rank == 0:
            for node in range(team.nodes):
                text = team.wait_for(f"host/{node}", _GRACE)
                self.hosts.append(_parse_record(node, Host, text))
                self.reports.append(NodeReport(links=sort_links((), 0.0)))
            self._save(orders.parts, 0.0)

    def _note_progress(self, what: str) -> None:
        append_row(self.orders.progress, what=what)

    def _save(self, left: Sequence[str], elapsed: float) -> None:
        probe = make_probe(self.orders, self.hosts, self.reports, left, elapsed)
        write_whole(self.orders.result, probe.model_dump_json())

    def _report_part(self, part: str, patience: float) -> None:
        """Publish what this node found for rank 0, or, on rank 0, take what all of them did."""
        team, elapsed = self.team, time.monotonic() - self.began
        steal = counters.activity_since(self.before).steal
        own = NodeReport(links=sort_links(self.found, elapsed), steal=steal)
        if team.rank > 0:
            team.publish(f"found/{part}/{team.node}", own.model_dump_json())
            return
        self.reports[0] = own
        for node in range(1, team.nodes):
            why = f"node {node} stopped answering"
            try:
                if team.lost is not None:
                    raise AbsentError(team.lost)
                text = team.wait_for(f"found/{part}/{node}", patience)
                self.reports[node] = _parse_record(node, NodeReport, text)
            except AbsentError:
                team.give_up(why)
                last = self.reports[node].links
                skipped = (*last.skipped, Unmeasured(link=part, why=why))
                self.reports[node] = NodeReport(links=last.model_copy(update={"skipped": skipped}))
        self._save(self.orders.parts[self.orders.parts.index(part) + 1 :], elapsed)

    def _measure_part(self, part: str, seconds: float) -> Found:
        """One part on this rank; whatever fails in it becomes a sentence."""
        team, orders = self.team, self.orders
        machine = computing_parts.ComputingMachine(
            len(os.sched_getaffinity(0)), self.free_bytes, self.devices, self.gpu_users
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
