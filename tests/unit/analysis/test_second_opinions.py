"""Beside the stalls: rates, waits, the exchange by itself, what surfaces."""

from __future__ import annotations

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.records.profile import Collective, Rate


def _loader_rates(feed: str, ranks: int, samples_per_second: float) -> tuple[Rate, ...]:
    return tuple(
        Rate(feed=feed, rank=r, round=3, samples=100, seconds=100 / samples_per_second) for r in range(ranks)
    )


def test_rates_are_those_of_the_whole_job():
    breakdown = attribute(build(CALM, rates=_loader_rates("warm", 2, 50) + _loader_rates("cold", 2, 45)))
    assert breakdown.rates.device == pytest.approx(16 / 0.140)
    assert breakdown.rates.prep == pytest.approx(100)
    assert breakdown.rates.fetch == pytest.approx(90)


def test_a_rate_that_not_every_rank_measured_is_unknown():
    assert attribute(build(CALM, rates=_loader_rates("warm", 1, 50))).rates.prep is None


def test_communication_is_total_from_collectives_and_exposed_from_stalls():
    runs = tuple(Collective(scope="node", ranks=2, bytes=40_000_000, seconds=s) for s in (0.05, 0.04, 0.09))
    exchange = attribute(build(CALM, collectives=runs, workload={"bucket_bytes": (10, 20)})).communication
    assert exchange.total_seconds == pytest.approx(0.05)  # the median
    assert exchange.exposed_seconds == pytest.approx(0.036)
    assert exchange.bytes == 30
    assert exchange.wire_bytes_per_second == pytest.approx(40e6 / 0.05)  # 2(p-1)/p is 1 for two ranks


def test_a_prep_stall_hidden_behind_the_exchange_surfaces():
    # 16 samples a step at 100/s: the loaders need 160 ms; without the interconnect the step would take 140
    breakdown = attribute(build(CALM, rates=_loader_rates("warm", 2, 50)))
    (hidden,) = breakdown.surfacing
    assert (hidden.removed, hidden.appears) == ("interconnect", "prep")
    assert hidden.seconds == pytest.approx(0.160 - (0.176 - 0.036))


def test_nothing_surfaces_behind_fast_loaders():
    assert attribute(build(CALM, rates=_loader_rates("warm", 2, 500))).surfacing == ()


def test_slow_storage_surfaces_as_fetch():
    rates = _loader_rates("warm", 2, 500) + _loader_rates("cold", 2, 50)
    (hidden,) = attribute(build(CALM, rates=rates)).surfacing
    assert hidden.appears == "fetch"


def test_the_exposed_part_has_an_interval_of_its_own():
    times = {"solo": [0.1] * 3, "crowd": [0.1] * 3, "node": [0.11, 0.12, 0.13], "cluster": [0.15, 0.15, 0.15]}
    exchange = attribute(build(times, ranks=4, nodes=2)).communication
    assert exchange.exposed_seconds == pytest.approx(0.05)
    assert exchange.exposed_high - exchange.exposed_low < 1e-12  # the noise of node cancels


def test_a_step_may_wait_longer_for_the_exchange_than_it_takes_alone():
    fast = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.02),)
    assert attribute(build(CALM, collectives=fast)).communication.slowed
    slow = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.05),)
    assert not attribute(build(CALM, collectives=slow)).communication.slowed


def test_no_more_is_hidden_than_there_is():
    runs = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.02),)
    exchange = attribute(build({"solo": [0.1], "crowd": [0.11], "node": [0.1]}, collectives=runs)).communication
    assert exchange.exposed_seconds == pytest.approx(-0.01)
    assert exchange.hidden_seconds == 0.02


def test_waits_are_those_of_the_slowest_rank():
    waits = attribute(build(CALM, block_extra={"warm": {"wait_seconds": 0.29}})).waits
    assert (waits.warm, waits.cold) == (pytest.approx(0.029), None)
