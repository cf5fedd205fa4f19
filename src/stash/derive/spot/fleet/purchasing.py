"""The same machines on another market: on demand a type costs its on-demand price, and nobody revokes it.

Knows prices and markets; how fast a machine is does not depend on who else might want it.
"""

from __future__ import annotations

from collections.abc import Collection

from stash.base.errors import UserError
from stash.base.spot.fleets import FleetPool, WorkerType
from stash.base.words.quantities import listed


def on_demand(kind: WorkerType) -> WorkerType | None:
    """The type on demand; ``None`` where nobody knows what it costs then."""
    price = kind.on_demand_price
    return None if price is None else kind.model_copy(update={"dollars_per_hour": price, "market": "on-demand"})


def rented_on_demand(pool: FleetPool, names: Collection[str]) -> FleetPool:
    """The pool with these types on demand; raises UserError for one that it lacks, or without such a price."""
    known = {kind.name: kind for kind in pool.types}
    for name in names:
        if name not in known:
            raise UserError(f"--on-demand {name}: there is no such type; there are {listed(list(known))}")
        if on_demand(known[name]) is None:
            raise UserError(
                f"--on-demand {name}: what it costs on demand is not known; add on_demand_dollars_per_hour to the "
                "pool's type, or a price to your instances file (docs/how-to/own-instances.md)"
            )
    types = tuple(on_demand(kind) or kind if kind.name in names else kind for kind in pool.types)
    return pool.model_copy(update={"types": types})


def on_spot(pool: FleetPool, workers: Collection[str]) -> tuple[str, ...]:
    """Those of a fleet's types that can be revoked."""
    return tuple(kind.name for kind in pool.types if kind.name in workers and not kind.fixed)
