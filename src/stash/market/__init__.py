"""``stash.market``: replay a job over recorded prices and availability. Loads what it names on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "MarketJob",
    "MoveTo",
    "Policy",
    "ProbeOffers",
    "Stay",
    "Wait",
    "policy",
    "read_job",
    "read_market",
    "replay",
]

if TYPE_CHECKING:
    from stash.market.backtest import replay
    from stash.market.decisions import MoveTo, Policy, ProbeOffers, Stay, Wait
    from stash.market.jobs import MarketJob, read_job
    from stash.market.market_rules import policy
    from stash.market.market_table import read_market

_HOMES = {
    "MarketJob": "jobs",
    "MoveTo": "decisions",
    "Policy": "decisions",
    "ProbeOffers": "decisions",
    "Stay": "decisions",
    "Wait": "decisions",
    "policy": "market_rules",
    "read_job": "jobs",
    "read_market": "market_table",
    "replay": "backtest",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"stash.market.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'stash.market' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
