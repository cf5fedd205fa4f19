"""How long collectives take: α–β models of ring and tree exchange over nodes of several devices.

A *fabric* is what they find: hops with a latency each (α), links with a rate each (β), as draws. Every function takes
sizes in bytes, ``[sizes]``, and returns seconds, ``[draws, sizes]``. Reduction itself (γ) is part of a measured rate.
Congestion between jobs, and the start of the first collective of a process, are not modelled.

Sources: Thakur, Rabenseifner, Gropp 2005 (doi 10.1177/1094342005051521) for the terms; NCCL's ``src/graph/tuning.cc``
for its hops and its choice. Known error: ``docs/how-we-know.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stash.core.errors import StashError
from stash.predict.cluster import (
    PAIR_SHARE,
    Backend,
    Target,
    hop_latency,
    is_sheet_pair,
    latency_factor,
)
from stash.predict.draws import Array, Draws, Quantity, Used

TREE_SHARE = 0.9
"""Of a link's rate, what NCCL expects its double trees to reach (``src/graph/tuning.cc``)."""


@dataclass(frozen=True, eq=False)
class Hops:
    """Latencies of one algorithm in seconds, ``[draws]``."""

    start: Array
    """Of any collective."""
    inside: Array
    """Of a hop between two devices of a node."""
    between: Array
    """Of a hop between two nodes."""


@dataclass(frozen=True, eq=False)
class Fabric:
    """What a collective over ``nodes`` · ``devices`` ranks finds; rates in bytes per second, ``[draws]``."""

    nodes: int
    devices: int
    """Of a node."""
    inside: Array
    """Bus bandwidth among a node's devices, of the slowest link a ring has to pass; not used with one device."""
    between: Array
    """Of one node, one direction, all its interfaces together; not used with one node."""
    ring: Hops
    tree: Hops

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    @property
    def narrowest(self) -> Array:
        """The slowest link on a ring through all ranks, ``[draws]``."""
        if self.nodes == 1:
            return self.inside
        return self.between if self.devices == 1 else np.minimum(self.inside, self.between)


def all_reduce(fabric: Fabric, sizes: Array, backend: Backend) -> Array:
    """Seconds of an all-reduce of each size, ``[draws, sizes]``, as the library would choose.

    NCCL estimates ring and tree for each size with terms like these and takes the faster (``ncclTopoGetAlgoTime``).
    gloo as PyTorch calls it always takes its segmented ring: ``allreduce.cc`` falls through from *unspecified*, and
    ``ProcessGroupGloo`` specifies nothing; its halving-doubling is of an older interface.
    """
    if fabric.ranks == 1:
        return np.zeros((len(fabric.inside), len(sizes)))
    if backend == "gloo":
        return ring(fabric, sizes)
    return np.minimum(ring(fabric, sizes), tree(fabric, sizes))


def ring(fabric: Fabric, sizes: Array) -> Array:
    """t = start + hops · α + 2(p−1)/p · n / β, β of the narrowest link: reduce-scatter, then all-gather.

    Each rank sends p−1 times n/p twice. Of the 2(p−1) hops on the longest way 2(N−1) are between nodes, as NCCL
    counts them, since a ring enters every node once.
    """
    between = 2 * (fabric.nodes - 1)
    hops = (
        fabric.ring.start
        + (2 * (fabric.ranks - 1) - between) * fabric.ring.inside
        + between * fabric.ring.between
    )
    return _add_latency(hops, 2 * (fabric.ranks - 1) / fabric.ranks / fabric.narrowest, sizes)


def tree(fabric: Fabric, sizes: Array) -> Array:
    """t = start + 2(d−1) · α_in + 2⌈log₂ N⌉ · α_out + max(2n / β_in, 2(N−1)/N · n / β_out) / 0.9.

    NCCL's double trees: two binary trees over nodes carry half of the bytes each, so that every node sends and
    receives 2(N−1)/N · n in all, less than a ring's 2(p−1)/p · n; inside a node each is a chain of its d devices.
    All of it is pipelined, so the slower part counts. With two nodes a bus bandwidth computed for rings therefore
    exceeds the wire's.
    """
    depth = int(np.ceil(np.log2(fabric.nodes)))
    hops = (
        fabric.tree.start
        + 2 * (fabric.devices - 1) * fabric.tree.inside
        + 2 * depth * fabric.tree.between
    )
    per_byte = np.zeros_like(fabric.inside)
    if fabric.devices > 1:
        per_byte = 2 / fabric.inside
    if fabric.nodes > 1:
        per_byte = np.maximum(per_byte, 2 * (fabric.nodes - 1) / fabric.nodes / fabric.between)
    return _add_latency(hops, per_byte / TREE_SHARE, sizes)


def payload_seconds(fabric: Fabric, size: float) -> Array:
    """The plain rule: 2(p−1)/p · n over the narrowest link, and nothing else, ``[draws]``."""
    seconds: Array = 2 * (fabric.ranks - 1) / fabric.ranks * size / fabric.narrowest
    return seconds


def half_exchange(fabric: Fabric, sizes: Array) -> Array:
    """All-gather to, or reduce-scatter of, so many bytes by a ring: each is half of an all-reduce of them.

    t = start + (p−1) hops + (p−1)/p · n / β.
    """
    return _ring_pass_seconds(fabric, (fabric.ranks - 1) / fabric.ranks, sizes)


def broadcast(fabric: Fabric, sizes: Array) -> Array:
    """t = start + (p−1) hops + n / β: a pipelined chain, as NCCL's ring broadcasts.

    gloo's tree has ⌈log₂ p⌉ hops that each carry all bytes; for the buffers of a model that is as long for p = 2
    and up to ⌈log₂ p⌉ times as long for large ones.
    """
    return _ring_pass_seconds(fabric, 1.0, sizes)


def _ring_pass_seconds(fabric: Fabric, share: float, sizes: Array) -> Array:
    """Once around a ring: p−1 hops, and ``share`` of the bytes over the narrowest link."""
    if fabric.ranks == 1:
        return np.zeros((len(fabric.inside), len(sizes)))
    between = fabric.nodes - 1
    hops = (
        fabric.ring.start
        + (fabric.ranks - 1 - between) * fabric.ring.inside
        + between * fabric.ring.between
    )
    return _add_latency(hops, share / fabric.narrowest, sizes)


def _add_latency(latency: Array, per_byte: Array, sizes: Array) -> Array:
    seconds: Array = (
        latency[:, None] + per_byte[:, None] * np.asarray(sizes, dtype=np.float64)[None, :]
    )
    return seconds


# From a target's facts to its fabric


class UnknownFactError(StashError):
    """A fact that a prediction needs is unknown; the message is a clause that says which, and how to add it."""


def fabric_of(target: Target, draws: Draws, only_inside: bool = False) -> Fabric:
    """What a collective over all of ``target`` finds, or over one node of it; raises UnknownFactError."""
    nodes = 1 if only_inside else target.nodes
    never = np.full(draws.count, np.inf)
    inside, between = never, never
    if nodes > 1:
        share = PAIR_SHARE if is_sheet_pair(target) else 1.0
        between = share * draws.draw("rate between nodes", rate_between(target))
    # A rate measured over all ranks stands for links not measured: it is of the narrowest of them.
    unknown = target.inside is None or target.inside.bytes_per_second is None
    over_all = nodes > 1 and unknown and rate_between(target).origin == "measured"
    if target.devices > 1 and not over_all:
        inside = draws.draw("rate inside a node", rate_inside(target))
    ring, tree = _hops(target, draws)
    return Fabric(
        nodes=nodes, devices=target.devices, inside=inside, between=between, ring=ring, tree=tree
    )


def rate_inside(target: Target) -> Quantity:
    """The bus bandwidth inside a node; raises UnknownFactError."""
    if target.inside is None or target.inside.bytes_per_second is None:
        raise UnknownFactError(
            f"the links between the {target.devices} devices of a node are unknown (machines {target.name}); measure "
            "them with `stash probe`, or describe them in a file"
        )
    return target.inside.bytes_per_second


def rate_between(target: Target) -> Quantity:
    """What all interfaces of a node carry; raises UnknownFactError."""
    rate = None if target.network is None else target.network.bytes_per_second
    if rate is None:
        raise UnknownFactError(
            f"the network between nodes is unknown (machines {target.name}); say it with --network, or measure it "
            "with `stash probe` on two of them"
        )
    return rate


def facts_of(target: Target, only_inside: bool = False) -> tuple[Used, ...]:
    """The facts about links that ``fabric_of`` reads, those that are known."""
    facts: list[tuple[str, str, Quantity | None]] = []
    if target.devices > 1 and target.inside is not None:
        facts += [
            ("bandwidth inside a node", "bytes/s", target.inside.bytes_per_second),
            ("latency inside a node", "seconds", target.inside.latency_seconds),
        ]
    if target.nodes > 1 and not only_inside and target.network is not None:
        facts += [
            ("bandwidth between nodes", "bytes/s", target.network.bytes_per_second),
            ("latency between nodes", "seconds", target.network.latency_seconds),
        ]
    return tuple(
        Used(about=about, unit=unit, quantity=known)
        for about, unit, known in facts
        if known is not None
    )


def _hops(target: Target, draws: Draws) -> tuple[Hops, Hops]:
    """Latencies of rings and of trees: measured ones hold the start of a collective already.

    One that was not measured on the target is NCCL's own table times how far published machines are from that table.
    """
    inside = target.inside.latency_seconds if target.inside is not None else None
    between = target.network.latency_seconds if target.network is not None else None
    wiring = "pcie" if target.inside is not None and target.inside.wiring == "pcie" else "nvlink"
    return _hops_of(inside, between, wiring, draws)


@lru_cache(maxsize=64)
def _hops_of(
    inside: Quantity | None, between: Quantity | None, wiring: str, draws: Draws
) -> tuple[Hops, Hops]:
    factor = draws.draw("latency of published machines", latency_factor())
    any_measured = inside is not None or between is not None
    rings, trees = [], []
    for which, known, link in (("inside", inside, wiring), ("between", between, "network")):
        if known is not None:
            latency = draws.draw(f"latency {which}", known)
            rings.append(latency)
            # By NCCL's table, what a hop of a tree takes of one of a ring: only the ring's was measured.
            trees.append(latency * hop_latency(link, "tree")[1] / hop_latency(link, "ring")[1])
        else:
            rings.append(hop_latency(link, "ring")[1] * factor)
            trees.append(hop_latency(link, "tree")[1] * factor)
    starts = [
        0 * factor if any_measured else hop_latency(wiring, each)[0] * factor
        for each in ("ring", "tree")
    ]
    return Hops(starts[0], *rings), Hops(starts[1], *trees)
