"""Small markets for tests: offers as pieces of price and availability in time."""

import math

from stash.market.job_market import job_market
from stash.market.jobs import InstanceRate, MarketJob
from stash.market.market_trace import MarketOffer, trace_of

FREE = {}
"""Data move for nothing."""
START = 1_600_000_000
"""Seconds since 1970: where small markets begin."""


def offer(name, kind="spot", cloud="aws"):
    """``p3@us-east-1a``."""
    instance, _, zone = name.partition("@")
    return MarketOffer(cloud, zone[:-1], zone, instance, kind)


def trace(
    pieces,
    end,
    max_gap=1e6,
):
    """Of each offer (seconds after ``START``, dollars an hour, how many are available), until ``end``."""
    rows = [
        (number, START + at, *(math.nan if each is None else each for each in seen))
        for number, each in enumerate(pieces)
        for at, *seen in (*pieces[each], (end, None, None))
    ]
    return trace_of(list(pieces), rows, max_gap)


def job(seconds, rates=None, **settings):
    """So many seconds of work at one sample a second; starts at once and saves nothing unless told."""
    given = {"boot": 0.0, "save": 0.0, "checkpoint_every": None, **settings}
    known = {
        name: InstanceRate(samples_per_second=rate) for name, rate in (rates or {"p3": 1.0}).items()
    }
    return MarketJob.model_validate({"samples": seconds, "rates": known, **given})


def small(found, work, fees=FREE):
    """The job on the market."""
    return job_market(work, found, fees)
