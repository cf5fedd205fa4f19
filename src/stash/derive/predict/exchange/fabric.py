"""From a target's facts to the fabric its collectives take, as draws: what is known, with its spread.

A latency that nobody measured on the target is NCCL's own table times how far published machines are from that table.
A rate that nobody knows is an error that says which: it is never assumed.
"""

from __future__ import annotations

import numpy as np

from stash.base.errors import StashError
from stash.derive.predict.exchange.collectives import Fabric, Hops
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.target.efficiency import hop, latency_factor
from stash.derive.predict.uncertainty.draws import Array, Draws
from stash.derive.predict.uncertainty.quantity import Quantity, Used


class UnknownFactError(StashError):
    """A fact that a prediction needs and nobody knows; the message is a clause that says which, and how to add it."""


def fabric_of(target: Target, draws: Draws, only_inside: bool = False) -> Fabric:
    """What a collective over all of ``target`` finds, or over one node of it; raises UnknownFactError."""
    nodes = 1 if only_inside else target.nodes
    never = np.full(draws.count, np.inf)
    inside, between = never, never
    if nodes > 1:
        between = draws.of("rate between nodes", rate_between(target)) * (
            target.network.nics if target.network else 1
        )
    if target.devices > 1 and not (nodes > 1 and _network_holds_all(target)):
        share = target.inside.slowest_share if target.inside is not None else 1.0
        inside = draws.of("rate inside a node", rate_inside(target)) * share
    ring, tree = _hops(target, draws)
    return Fabric(nodes=nodes, devices=target.devices, inside=inside, between=between, ring=ring, tree=tree)


def rate_inside(target: Target) -> Quantity:
    """The bus bandwidth inside a node; raises UnknownFactError."""
    if target.inside is None or target.inside.bytes_per_second is None:
        raise UnknownFactError(
            f"the links between the {target.devices} devices of a node of {target.name} are unknown; measure them "
            "with `stash probe`, or describe them in a file"
        )
    return target.inside.bytes_per_second


def rate_between(target: Target) -> Quantity:
    """What one interface of a node carries; raises UnknownFactError."""
    if target.network is None or target.network.bytes_per_second is None:
        raise UnknownFactError(
            f"the network between nodes of {target.name} is unknown; say it with --network, or measure it with "
            "`stash probe` on two of them"
        )
    return target.network.bytes_per_second


def _network_holds_all(target: Target) -> bool:
    """Whether a rate measured over all ranks stands for links nobody measured: it is of the narrowest of them."""
    unknown = target.inside is None or target.inside.bytes_per_second is None
    return unknown and rate_between(target).origin == "measured"


def facts_of(target: Target, only_inside: bool = False) -> tuple[Used, ...]:
    """The facts about links that ``fabric_of`` reads, those that are known."""
    found: list[tuple[str, str, Quantity | None]] = []
    if target.devices > 1 and target.inside is not None:
        found += [
            ("bandwidth inside a node", "bytes/s", target.inside.bytes_per_second),
            ("latency inside a node", "seconds", target.inside.latency_seconds),
        ]
    if target.nodes > 1 and not only_inside and target.network is not None:
        found += [
            ("bandwidth between nodes", "bytes/s", target.network.bytes_per_second),
            ("latency between nodes", "seconds", target.network.latency_seconds),
        ]
    return tuple(Used(about=about, unit=unit, quantity=known) for about, unit, known in found if known is not None)


def _hops(target: Target, draws: Draws) -> tuple[Hops, Hops]:
    """Latencies of rings and of trees: measured ones hold the start of a collective already."""
    inside = target.inside.latency_seconds if target.inside is not None else None
    between = target.network.latency_seconds if target.network is not None else None
    wiring = "pcie" if target.inside is not None and target.inside.wiring in ("pcie", "host") else "nvlink"
    factor = draws.of("latency of published machines", latency_factor())
    any_measured = inside is not None or between is not None
    rings, trees = [], []
    for which, known, link in (("inside", inside, wiring), ("between", between, "network")):
        if known is not None:
            latency = draws.of(f"latency {which}", known)
            rings.append(latency)
            # By NCCL's table, what a hop of a tree takes of one of a ring: only the ring's was measured.
            trees.append(latency * hop(link, "tree")[1] / hop(link, "ring")[1])
        else:
            rings.append(hop(link, "ring")[1] * factor)
            trees.append(hop(link, "tree")[1] * factor)
    starts = [_start(wiring, algorithm, factor, any_measured) for algorithm in ("ring", "tree")]
    return Hops(starts[0], rings[0], rings[1]), Hops(starts[1], trees[0], trees[1])


def _start(wiring: str, algorithm: str, factor: Array, measured: bool) -> Array:
    return np.zeros_like(factor) if measured else hop(wiring, algorithm)[0] * factor
