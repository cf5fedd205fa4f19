"""Why a stall is there, as far as other numbers of the profile tell: one clause per stall.

Every claim follows from a number in the breakdown or the profile; where the number is missing, the claim is not made.
"""

from __future__ import annotations

from stash.base.ladder import DATA_STALLS, EXCHANGE_STALLS
from stash.base.words.units import format_bits, format_bytes, format_seconds
from stash.derive.advise.case import Case
from stash.derive.stalls.breakdown import Breakdown
from stash.derive.stalls.figures import pace, slower


def reason(case: Case, name: str) -> str | None:
    """Why there is a stall called ``name``; ``None`` if nothing that was measured tells."""
    if name in DATA_STALLS:
        return _of_data(case, name)
    if name in EXCHANGE_STALLS:
        return _of_exchange(case.breakdown)
    if name == "contention" and case.breakdown.slow_rank:
        slow = case.breakdown.slow_rank
        return f"all wait for rank {slow.rank}, which is {slower(slow)}"
    return None


def _of_data(case: Case, name: str) -> str | None:
    rates = case.breakdown.rates
    if case.loader is not None and case.loader.workers == 0:
        return "the loader has no workers (num_workers=0), so nothing is read or prepared while a step trains"
    limit = rates.prep if name == "prep" else rates.fetch
    if not rates.device or not limit or limit >= rates.device:
        return None
    what = "prepare" if name == "prep" else "read and prepare"
    return f"the loaders {what} {pace(limit)} samples/s, the devices could train {pace(rates.device)} samples/s"


def _of_exchange(breakdown: Breakdown) -> str | None:
    exchange = breakdown.communication
    if not exchange.bytes:
        return None
    text = f"each device exchanges {format_bytes(exchange.bytes)} of gradients"
    total, latency = exchange.total_seconds, exchange.latency_seconds
    if total and latency is not None and latency > total / 2:
        text += f", of whose {format_seconds(total)} {format_seconds(min(latency, total))} pass whatever their size"
    elif exchange.wire_bytes_per_second:
        text += f" at {format_bits(exchange.wire_bytes_per_second)}"
    hidden = exchange.hidden_seconds
    if hidden is not None and exchange.total_seconds and hidden > 0.05 * exchange.total_seconds:
        text += f", {hidden / exchange.total_seconds:.0%} of it behind the backward pass"
    return text
