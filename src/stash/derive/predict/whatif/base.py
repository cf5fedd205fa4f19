"""A profile read once: whatever every forecast from it starts with, and its stalls as they were measured.

A record and what is read straight off it. Predicts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stash.base.records import Profile
from stash.derive.predict.exchange.stalls import ExchangeModel
from stash.derive.predict.forecast.parts import Predicted
from stash.derive.predict.loading.measured import Loading
from stash.derive.predict.loading.stalls import HeldToMeasurement
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.uncertainty.draws import Array, Draws
from stash.derive.predict.uncertainty.quantity import Used, measured
from stash.derive.predict.whatif.passes import Passes
from stash.derive.stalls.breakdown import Breakdown
from stash.keep.catalog import Catalog


@dataclass(frozen=True, eq=False)
class Base:
    """A profile read once: whatever every forecast from it starts with."""

    profile: Profile
    breakdown: Breakdown
    target: Target
    draws: Draws
    passes: Passes | None
    exchange: ExchangeModel
    loading: Loading | None
    held: HeldToMeasurement | None
    catalog: Callable[[], Catalog]
    clusters: Callable[[str], Target]
    """Machines by the file that describes them."""

    @property
    def source(self) -> str:
        return f"the profile of {self.profile.created[:10]}"

    def stall(self, name: str) -> Array | None:
        """A measured stall, ``[draws]``."""
        found = self.breakdown.stall(name)
        return None if found is None else self.draws.around(f"measured {name}", found.time)


def as_measured(base: Base, names: Iterable[str]) -> list[Predicted]:
    """Those of these stalls that were measured, as they were: no model has a part in them."""
    parts = []
    for name in names:
        stall, seconds = base.breakdown.stall(name), base.stall(name)
        if stall is not None and seconds is not None:
            fact = measured(stall.time, base.profile.created[:10], base.source)
            used = Used(about=f"{name} as it was", unit="seconds", quantity=fact)
            parts.append(Predicted(name, seconds, "measured", (used,)))
    return parts


def more_passes(base: Base, after: Passes | None) -> float:
    """Times as many passes a step as were profiled; 1 where nobody counted them."""
    return 1.0 if after is None or base.passes is None else after.accumulated / base.passes.accumulated
