"""What a watched run costs: so far, a day of each stall, and its whole bill as it is foreseen. Pure but for prices.

The bill is the price of all machines times the time that it takes: what has passed, and for each step that is left
the mean of all so far, with what lay between them. Its interval is Student's t over ten parts of the run, whose means
hold whatever lasts as long as a tenth of it; a change that is yet to come is in no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stash.core.errors import UserError
from stash.core.intervals import mean_interval
from stash.core.records.circumstances import MachinePrice
from stash.monitor.records import Window

_HOUR, _DAY = 3600.0, 86400.0
_PARTS = 10


def price_of(instance: str | None, nodes: int, needed: bool = False) -> MachinePrice | None:
    """The catalog's cheapest on-demand price of that instance, times ``nodes``; else of what this machine says it is.

    ``None`` for a machine that does not say, or that the catalog does not know; raises UserError if a price is
    ``needed``, or was asked for by name.
    """
    from stash.catalog.layers import load as load_catalog
    from stash.measure.host.cloud import fetch_over_http, find_rental

    name = instance or find_rental(Path("/"), fetch_over_http).instance
    if name is None:
        if needed:
            raise UserError(
                "--max-dollars needs a price, and this machine does not say what it is; add --instance"
            )
        return None
    try:
        return load_catalog().on_demand_price(name, nodes)
    except UserError:
        if instance is None and not needed:
            return None
        raise


@dataclass(frozen=True)
class RunBill:
    """Dollars."""

    so_far: float
    forecast: float | None
    """Of the whole run; ``None`` where its number of steps is unknown, or too few were taken."""
    plus_minus: float | None
    """95 %."""


def lost_a_day(window: Window, price: MachinePrice) -> dict[str, float]:
    """Dollars a day that each stall of a window costs; compute is none."""
    if not window.step_seconds:
        return {}
    daily = price.dollars_per_hour * _DAY / _HOUR
    return {
        name: daily * seconds / window.step_seconds
        for name, seconds in window.stalls.items()
        if seconds is not None and name != "compute"
    }


def forecast_bill(
    price: MachinePrice, elapsed: float, windows: Sequence[Window], taken: int, planned: int | None
) -> RunBill:
    """After ``elapsed`` seconds and ``taken`` steps of ``planned``."""
    per_second = price.dollars_per_hour / _HOUR
    left = None if planned is None else max(0, planned - taken)
    if left is None or len(windows) < _PARTS:
        return RunBill(per_second * elapsed, None, None)
    rows = np.array(
        [(window.seconds, window.last_step - window.first_step + 1) for window in windows]
    )
    sums = [part.sum(axis=0) for part in np.array_split(rows, _PARTS)]
    reach = mean_interval([seconds / steps for seconds, steps in sums]).half_width or 0.0
    seconds, steps = rows.sum(axis=0)
    return RunBill(
        per_second * elapsed,
        float(per_second * (elapsed + left * seconds / steps)),
        per_second * left * reach,
    )
