"""``stash.market``: replay a job over recorded prices and availability. Loads what it names on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stash.core.on_first_use import on_first_use

__all__ = [
    "MarketJob",
    "MoveTo",
    "Policy",
    "Stay",
    "Wait",
    "policy",
    "read_job",
    "read_market",
    "replay",
]

if TYPE_CHECKING:
    from stash.market.backtest import replay
    from stash.market.decisions import MoveTo, Policy, Stay, Wait
    from stash.market.jobs import MarketJob, read_job
    from stash.market.market_rules import policy
    from stash.market.market_table import read_market

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "MarketJob": "stash.market.jobs",
        "MoveTo": "stash.market.decisions",
        "Policy": "stash.market.decisions",
        "Stay": "stash.market.decisions",
        "Wait": "stash.market.decisions",
        "policy": "stash.market.market_rules",
        "read_job": "stash.market.jobs",
        "read_market": "stash.market.market_table",
        "replay": "stash.market.backtest",
    },
)
