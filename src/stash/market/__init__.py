"""``stash.market``: replay a job over recorded prices and availability. Loads what it names on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stash.core.front import make_lazy_access

__all__ = [
    "JobState",
    "MarketJob",
    "Policy",
    "PolicyDecision",
    "policy",
    "read_job",
    "read_market",
    "replay",
]

if TYPE_CHECKING:
    from stash.market.backtest import replay
    from stash.market.job_market import JobState, Policy, PolicyDecision
    from stash.market.jobs import MarketJob, read_job
    from stash.market.market_table import read_market
    from stash.market.policies import policy

__getattr__, __dir__ = make_lazy_access(
    __name__,
    {
        "PolicyDecision": "stash.market.job_market",
        "MarketJob": "stash.market.jobs",
        "Policy": "stash.market.job_market",
        "JobState": "stash.market.job_market",
        "policy": "stash.market.policies",
        "read_job": "stash.market.jobs",
        "read_market": "stash.market.market_table",
        "replay": "stash.market.backtest",
    },
)
