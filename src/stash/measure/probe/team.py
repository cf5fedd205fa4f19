"""The ranks of one probe and where they meet: torchrun's key-value store, with a time limit on every wait.

The store works while collectives do not, so what was measured still reaches rank 0 after a peer was lost. Knows
ranks, nodes and addresses; not what is measured.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import torch.distributed

from stash.core.membership import address_towards
from stash.measure.linux.processes import node_name

_dist: Any = torch.distributed  # its stores are not exported by name


class AbsentError(Exception):
    """A rank did not come to a meeting in time; the message is a sentence."""


@dataclass
class Team:
    """This rank's place among the others."""

    store: Any
    rank: int
    world: int
    node: int = 0
    local_rank: int = 0
    node_of: tuple[int, ...] = ()
    """The node of every rank."""
    addresses: tuple[str, ...] = ()
    """The address of every node, as the others reach it."""
    lost: str | None = None
    """Why waiting for the others makes no sense any more."""

    @property
    def leads(self) -> bool:
        """Whether this rank does what is done once a node."""
        return self.local_rank == 0

    @property
    def nodes(self) -> int:
        return max(self.node_of) + 1

    def give_up(self, why: str) -> None:
        """Somebody is gone: nobody is waited for any more."""
        self.lost = why

    def meet(self, name: str, seconds: float, size: int | None = None) -> None:
        """Wait until ``size`` members (default all ranks) have come here; raises AbsentError when they do not."""
        if self.lost is not None:
            raise AbsentError(self.lost)
        if self._query_store(lambda: self.store.add(f"{name}/came", 1)) == (size or self.world):
            self.publish(f"{name}/open", "yes")
        self.wait_for(f"{name}/open", seconds)

    def publish(self, name: str, text: str) -> None:
        """Let all ranks read ``text`` under a name; raises AbsentError if the store is gone."""
        self._query_store(lambda: self.store.set(name, text))

    def wait_for(self, name: str, seconds: float) -> str:
        """The text published under a name, once it is there; raises AbsentError when that takes too long."""

        def ask() -> str:
            self.store.wait([name], timedelta(seconds=seconds))
            return bytes(self.store.get(name)).decode(errors="replace")

        return str(self._query_store(ask))

    def _query_store(self, question: Any) -> Any:
        try:
            return question()
        except RuntimeError as error:  # torch's DistError: a time limit, or a connection that broke
            self.lost = "another node or rank stopped answering"
            raise AbsentError(self.lost) from error


def join(seconds: float) -> Team:
    """Meet the other ranks where torchrun says; raises AbsentError naming the place."""
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, rank, world = next(
            iter(_dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))
        )
    except RuntimeError as error:
        raise AbsentError(f"{place} cannot be reached from {socket.gethostname()}") from error
    team = Team(prefix_store(store, "probe"), rank, world)
    machines: tuple[str, ...] = ()
    if "GROUP_RANK" not in os.environ:
        team.publish(f"machine/{rank}", node_name())
        machines = tuple(team.wait_for(f"machine/{other}", seconds) for other in range(world))
    node, local_rank = find_place(rank, machines, os.environ)
    team = replace(team, node=node, local_rank=local_rank)
    team.publish(f"rank/{rank}", f"{team.node} {address_towards(os.environ['MASTER_ADDR'])}")
    answers = [team.wait_for(f"rank/{other}", seconds) for other in range(world)]
    node_of, addresses = parse_places(answers)
    return replace(team, node_of=node_of, addresses=addresses)


def find_place(
    rank: int, machines: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, int]:
    """A rank's node and place on it: as the launcher says, else by the machine of every rank."""
    node, local = environment.get("GROUP_RANK", "0"), environment.get("LOCAL_RANK")
    if not machines:
        return int(node), int(local or 0)
    own = machines[rank]
    place = machines[:rank].count(own) if local is None else int(local)
    return list(dict.fromkeys(machines)).index(own), place


def parse_places(answers: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The node of every rank and the address of every node, from what the ranks published; raises AbsentError."""
    try:
        found = [(int(node), str(ip_address(address))) for node, address in map(str.split, answers)]
        nodes = tuple(node for node, _ in found)
        if min(nodes) < 0:
            raise ValueError
        return nodes, tuple(found[nodes.index(number)][1] for number in range(max(nodes) + 1))
    except ValueError:
        raise AbsentError(
            "a rank published no node and address; is the same Stash installed on all nodes?"
        ) from None


def prefix_store(store: Any, name: str) -> Any:
    """The same store with names of its own."""
    return _dist.PrefixStore(name, store)
