"""Prices with the spread of their age, from prices seen twice; and how many machines there are."""

from __future__ import annotations

import math
from datetime import date

import pytest
from catalogs import own_file

from stash.catalog.facts import Offer
from stash.catalog.layers import merge
from stash.catalog.offers import Catalog, OfferFilter
from stash.core.intervals import Interval
from stash.plan.bill import hourly
from stash.plan.hourly_prices import PriceMoves, agreed, available, hourly_price, price_moves
from stash.predict.draws import Draws
from stash.predict.forecasting import shipped_catalog

NOW = date(2026, 11, 22)
CATALOG = shipped_catalog()
MOVES = price_moves(CATALOG.query(OfferFilter(kinds=("prior",))), CATALOG.query())


def offer(name: str, kind: str = "on-demand", catalog: Catalog = CATALOG) -> Offer:
    return next(each for each in catalog.offers_of(catalog.instance(name)) if each.kind == kind)


def priced(found: Offer, now: date = NOW) -> Interval:
    return hourly_price(found, MOVES, now).dollars_per_hour


def test_moves_are_counted_over_prices_of_two_dates() -> None:
    # AWS: p4d, p4de and p5 became cheaper by 33 and 44 %, seven others stayed. Undated priors say nothing of time.
    aws = MOVES["aws"]
    assert (aws.pairs, len(aws.factors)) == (10, 3)
    assert aws.factors[0] == pytest.approx(55.04 / 98.32)
    assert set(MOVES) == {"aws"}


def test_a_price_that_stayed_is_counted_as_one_that_did_not_change() -> None:
    now = offer("p3.2xlarge")._replace(as_of="2026-11-20", dollars_per_hour=2.0)
    before = [("2026-09-21", 2.0), ("2026-09-11", 4.0), ("2026-08-22", 4.0)]
    prior = [now._replace(kind="prior", as_of=day, dollars_per_hour=dollars) for day, dollars in before]
    moves = price_moves(prior, [now])["aws"]
    assert (moves.pairs, moves.years * 365.25, moves.factors) == (3, pytest.approx(90), (0.5,))


def test_a_price_lies_within_its_own_interval_however_many_changed() -> None:
    halved = {"aws": PriceMoves(pairs=10, years=1, factors=(0.5,) * 10)}
    found = hourly_price(offer("p3.2xlarge")._replace(as_of="2024"), halved, NOW).dollars_per_hour
    assert (found.low, found.high) == (pytest.approx(3.06 / 2), 3.06)


def test_the_ends_are_those_of_a_mixture_by_hand() -> None:
    # One change in ten price-years: after a year 1 - exp(-0.1) = 9.5 % have changed, all to half: beyond 2.5 %.
    moves = PriceMoves(pairs=10, years=10, factors=(0.5,))
    assert moves.ends(365.25) == (0.5, 1.0)
    # After three months 2.47 % have: less than lies outside.
    assert 1 - math.exp(-0.1 / 4) < 0.025
    assert moves.ends(365.25 / 4) == (1.0, 1.0)
    # Rises and falls, each half of them: 1 - exp(-0.2) = 18 %.
    assert PriceMoves(pairs=10, years=10, factors=(0.5, 2.0)).ends(365.25) == (0.5, 2.0)


def test_too_few_prices_seen_twice_tell_nothing() -> None:
    assert PriceMoves(pairs=9, years=30, factors=(0.5,)).ends(365) is None


def test_a_fresh_list_price_is_exact() -> None:
    fresh = offer("p3.2xlarge")._replace(as_of="2026-11-20")
    assert priced(fresh) == Interval(value=3.06, low=3.06, high=3.06)


def test_an_old_price_has_the_spread_of_its_cloud_or_none() -> None:
    old = offer("p3.2xlarge")._replace(as_of="2024-07-20")
    assert priced(old).low == pytest.approx(3.06 * 55.04 / 98.32)
    assert priced(old).high == 3.06
    azure = offer("Standard_NC6s_v3")._replace(as_of="2024-07-20")
    assert priced(azure).low is None  # of Azure no price was seen twice


@pytest.mark.parametrize(
    "found",
    [offer("p3.2xlarge", "spot")._replace(as_of="2026-11-01"), offer("p3.2xlarge")._replace(as_of=None)],
)
def test_the_spread_of_recent_spot_and_undated_prices_is_unknown(found: Offer) -> None:
    assert priced(found).low is None


@pytest.mark.parametrize("as_of", ["2023-01", "2026-10-20", None])
def test_an_old_price_on_spot_may_be_anything_up_to_on_demand_and_without_one_is_none(as_of: str | None) -> None:
    spot = offer("p3.2xlarge", "spot")._replace(as_of=as_of, dollars_per_hour=1.25)
    found = hourly_price(spot, MOVES, NOW, 3.06)
    assert found.dollars_per_hour == Interval(value=(1.25 + 3.06) / 2, low=1.25, high=3.06)
    assert not agreed(found)
    drawn = hourly(found, "it", Draws(64))
    assert (drawn.min() >= 1.25, drawn.max() <= 3.06) == (True, True)
    assert drawn.mean() == pytest.approx(found.dollars_per_hour.value)
    assert hourly_price(spot, MOVES, NOW) is None


OWN = """\
instances:
  - {name: one, gpu: T4, price: $1/h, as_of: 2019}
  - {name: three, gpu: T4, count: 3, price: $1/h}
  - {name: theirs, cloud: our-cloud, gpu: T4, price: $1/h, as_of: 2026-11-20}
  - {name: few, cloud: our-cloud, gpu: T4, count: 5, price: $1/h, as_of: 2026-11-20}
  - {name: p3.8xlarge, reserved_price: $5/h, reserved_count: 4}
"""
MINE = merge(None, own_file(OWN))


@pytest.mark.parametrize(
    ("name", "kind", "machines", "paid"),
    [
        ("one", "on-demand", None, "own"),
        ("three", "on-demand", 3, "own"),
        ("theirs", "on-demand", None, "on-demand"),
        ("few", "on-demand", 5, "on-demand"),
        ("p3.8xlarge", "reserved", 4, "reserved"),
        ("p3.8xlarge", "on-demand", None, "on-demand"),
        ("p3.8xlarge", "spot", None, "spot"),
    ],
)
def test_how_many_machines_there_are_and_how_they_are_paid(
    name: str, kind: str, machines: int | None, paid: str
) -> None:
    found = offer(name, kind, MINE)
    assert available(found) == machines
    assert hourly_price(found, MOVES, NOW, 12.24).paid_as == paid


def test_a_list_price_without_a_date_is_not_agreed_because_the_network_is_ones_own() -> None:
    mine = merge(None, own_file("instances:\n  - {name: p3.8xlarge, network: 25gbit}\n"))
    undated = offer("p3.8xlarge", catalog=mine)._replace(as_of=None)
    assert undated.instance.layer == "user"
    assert not agreed(hourly_price(undated, MOVES, NOW))


def test_what_was_agreed_is_exact_however_old() -> None:
    names = [("one", "on-demand"), ("p3.8xlarge", "reserved"), ("theirs", "on-demand"), ("p3.8xlarge", "on-demand")]
    assert [agreed(hourly_price(offer(*each, MINE), MOVES, NOW)) for each in names] == [True, True, False, False]
    assert priced(offer("one", catalog=MINE)) == Interval(value=1, low=1, high=1)
    assert priced(offer("p3.8xlarge", "reserved", MINE)).low == 5
    assert priced(offer("theirs", catalog=MINE)._replace(as_of=None)).low == 1
    assert priced(offer("theirs", catalog=MINE)._replace(as_of="2024")).low is None
