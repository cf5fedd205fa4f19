"""The ranks of one probe: where they meet, and what all nodes have found so far."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import torch.distributed

from stash.core.files import write_whole
from stash.core.membership import address_towards
from stash.core.records.base import now
from stash.core.records.host import Copy, DiskRead, Exchange, Host, Links, Preparation, Probe, Stream, Unmeasured
from stash.measure.probe.probe_orders import ProbeOrders

# Team ------------------------------------------------------------------------------------------------------
# The ranks of one probe and where they meet: torchrun's key-value store, with a time limit on every wait.
#
# The store works while collectives do not, so what was measured still reaches rank 0 after a peer was lost. Knows
# ranks, nodes and addresses; not what is measured.

_dist: Any = torch.distributed  # its stores are not exported by name


class AbsentError(Exception):
    """Somebody did not come to a meeting in time; the message is a sentence."""


class Team:
    """This rank's place among the others."""

    def __init__(self, store: Any, rank: int, world: int, environment: Mapping[str, str]) -> None:
        self.store, self.rank, self.world = store, rank, world
        self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        self.node = int(environment.get("GROUP_RANK", "0"))
        self.lost: str | None = None
        """Why waiting for the others makes no sense any more."""
        self.node_of: tuple[int, ...] = ()
        """The node of every rank."""
        self.addresses: tuple[str, ...] = ()
        """The address of every node, as the others reach it."""

    @property
    def leads(self) -> bool:
        """Whether this rank does what is done once a node."""
        return self.local_rank == 0

    @property
    def nodes(self) -> int:
        return max(self.node_of) + 1

    @property
    def peers(self) -> tuple[int, ...]:
        """The ranks of this node."""
        return tuple(rank for rank, node in enumerate(self.node_of) if node == self.node)

    def meet(self, name: str, seconds: float, size: int | None = None) -> None:
        """Wait until ``size`` members (default all ranks) have come here; raises AbsentError when they do not."""
        if self.lost is not None:
            raise AbsentError(self.lost)
        if self._ask(lambda: self.store.add(f"{name}/came", 1)) == (size or self.world):
            self.publish(f"{name}/open", "yes")
        self.wait_for(f"{name}/open", seconds)

    def publish(self, name: str, text: str) -> None:
        """Let everybody read ``text`` under a name; raises AbsentError if the store is gone."""
        self._ask(lambda: self.store.set(name, text))

    def wait_for(self, name: str, seconds: float) -> str:
        """What was published under a name, as soon as it is there; raises AbsentError when that takes too long."""

        def ask() -> str:
            self.store.wait([name], timedelta(seconds=seconds))
            return bytes(self.store.get(name)).decode(errors="replace")

        return str(self._ask(ask))

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except RuntimeError as error:  # torch's DistError: a time limit, or a connection that broke
            self.lost = "another node or rank stopped answering"
            raise AbsentError(self.lost) from error


def join(seconds: float) -> Team:
    """Meet the other ranks where torchrun says; raises AbsentError naming the place."""
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, rank, world = next(iter(_dist.rendezvous("env://", timeout=timedelta(seconds=seconds))))
    except RuntimeError as error:
        raise AbsentError(f"{place} cannot be reached from {socket.gethostname()}") from error
    team = Team(prefixed(store, "probe"), rank, world, os.environ)
    team.publish(f"rank/{rank}", f"{team.node} {address_towards(os.environ['MASTER_ADDR'])}")
    found = [team.wait_for(f"rank/{other}", seconds) for other in range(world)]
    team.node_of, team.addresses = places(found)
    return team


def places(answers: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The node of every rank and the address of every node, as the ranks told; raises AbsentError for nonsense."""
    try:
        found = [(int(node), str(ip_address(address))) for node, address in map(str.split, answers)]
        nodes = tuple(node for node, _ in found)
        if min(nodes) < 0:
            raise ValueError
        return nodes, tuple(found[nodes.index(number)][1] for number in range(max(nodes) + 1))
    except ValueError:
        raise AbsentError("a rank told no node and address; is the same Stash installed on all nodes?") from None


def prefixed(store: Any, name: str) -> Any:
    """The same store with names of its own."""
    return _dist.PrefixStore(name, store)


# Board -----------------------------------------------------------------------------------------------------
# What all nodes have found so far, kept by rank 0 and saved after each part as a whole, valid ``Probe``.
#
# What is still to come stands in it as unmeasured, so a probe that ends early needs no repair. Knows records, not
# how they were measured.

Found = Sequence[Copy | DiskRead | Exchange | Preparation | Stream | Unmeasured]


def links(found: Found, elapsed: float) -> Links:
    """Measurements of one node, sorted."""
    return Links(
        created=now(),
        elapsed_seconds=elapsed,
        copies=tuple(one for one in found if isinstance(one, Copy)),
        exchanges=tuple(one for one in found if isinstance(one, Exchange)),
        streams=tuple(one for one in found if isinstance(one, Stream)),
        reads=tuple(one for one in found if isinstance(one, DiskRead)),
        preparation=tuple(one for one in found if isinstance(one, Preparation)),
        skipped=tuple(one for one in found if isinstance(one, Unmeasured)),
    )


class Board:
    """The nodes' hosts with the links measured so far, and the parts that are left."""

    def __init__(self, orders: ProbeOrders, hosts: Sequence[Host]) -> None:
        self._orders = orders
        self._left = list(orders.parts)
        self._hosts = [host.model_copy(update={"links": links((), 0.0)}) for host in hosts]
        self._elapsed = 0.0

    def take(self, part: str, reports: Sequence[tuple[Links, float | None]], elapsed: float) -> None:
        """Add what every node reports of a part, in the order of the nodes: its links, and its steal time so far."""
        for node, (found, steal) in enumerate(reports):
            known = self._hosts[node].links
            assert known is not None
            self._update(node, steal_fraction=steal, links=_joined(known, found))
        for stream in (one for found, _ in reports for one in found.streams):
            self._keep(stream)
        self._left.remove(part)
        self._elapsed = elapsed

    def _keep(self, stream: Stream) -> None:
        """Streams are timed where they arrive, and kept where they come from."""
        known = self._hosts[stream.source].links
        assert known is not None
        self._update(stream.source, links=known.model_copy(update={"streams": (*known.streams, stream)}))

    def _update(self, node: int, **fields: object) -> None:
        self._hosts[node] = self._hosts[node].model_copy(update=fields)

    def probe(self) -> Probe:
        """Everything so far."""
        pending = tuple(Unmeasured(link=part, why="the probe ended before it was measured") for part in self._left)
        hosts = []
        for host in self._hosts:
            assert host.links is not None
            whole = host.links.model_copy(update={"skipped": (*host.links.skipped, *pending)})
            hosts.append(host.model_copy(update={"links": whole}))
        return Probe(
            stash_version=self._orders.version,
            created=now(),
            hosts=tuple(hosts),
            budget_seconds=self._orders.budget,
            elapsed_seconds=self._elapsed,
        )

    def save(self) -> None:
        """Replace the result's file in one step; raises OSError."""
        write_whole(self._orders.result, self.probe().model_dump_json())


def _joined(known: Links, more: Links) -> Links:
    """Both together, but for streams, which do not all belong to this node."""
    kept = ("copies", "exchanges", "reads", "preparation", "skipped")
    fields = {name: (*getattr(known, name), *getattr(more, name)) for name in kept}
    return known.model_copy(update={**fields, "created": more.created, "elapsed_seconds": more.elapsed_seconds})
