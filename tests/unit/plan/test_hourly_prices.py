"""Prices with the spread of their age, from prices seen twice; and how many machines there are."""

from datetime import date

import pytest
from catalogs import own_file

from stash.catalog.layers import merge
from stash.core.intervals import Interval
from stash.plan.bill import hourly_cost
from stash.plan.hourly_prices import available_count, hourly_price, is_contract_price
from stash.predict.draws import Draws
from stash.predict.forecasting import shipped_catalog

NOW = date(2026, 11, 22)
CATALOG = shipped_catalog()


def offer(name, kind="on-demand", catalog=CATALOG):
    return next(each for each in catalog.offers_of(catalog.instance(name)) if each.kind == kind)


def priced(found, now=NOW):
    return hourly_price(found, now).dollars_per_hour


def test_an_old_list_price_has_an_unknown_spread_and_a_young_one_is_exact():
    old = offer("p3.2xlarge")._replace(as_of="2024-07-20")
    assert priced(old).low is None
    assert priced(old._replace(as_of="2026-11-01")) == Interval(value=3.06, low=3.06, high=3.06)


@pytest.mark.parametrize("as_of", ["2023-01", "2026-10-20", None])
def test_an_old_price_on_spot_may_be_anything_up_to_on_demand_and_without_one_is_none(
    as_of,
):
    spot = offer("p3.2xlarge", "spot")._replace(as_of=as_of, dollars_per_hour=1.25)
    found = hourly_price(spot, NOW, 3.06)
    assert found.dollars_per_hour == Interval(value=(1.25 + 3.06) / 2, low=1.25, high=3.06)
    assert not is_contract_price(found)
    drawn = hourly_cost(found, "it", Draws(64))
    assert (drawn.min() >= 1.25, drawn.max() <= 3.06) == (True, True)
    assert drawn.mean() == pytest.approx(found.dollars_per_hour.value)
    assert hourly_price(spot, NOW) is None


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
def test_how_many_machines_there_are_and_how_they_are_paid(name, kind, machines, paid):
    found = offer(name, kind, MINE)
    assert available_count(found) == machines
    assert hourly_price(found, NOW, 12.24).paid_as == paid


def test_what_was_agreed_is_exact_however_old():
    names = [
        ("one", "on-demand"),
        ("p3.8xlarge", "reserved"),
        ("theirs", "on-demand"),
        ("p3.8xlarge", "on-demand"),
    ]
    assert [is_contract_price(hourly_price(offer(*each, MINE), NOW)) for each in names] == [
        True,
        True,
        False,
        False,
    ]
    assert priced(offer("one", catalog=MINE)) == Interval(value=1, low=1, high=1)
    assert priced(offer("p3.8xlarge", "reserved", MINE)).low == 5
    assert priced(offer("theirs", catalog=MINE)._replace(as_of=None)).low == 1
    assert priced(offer("theirs", catalog=MINE)._replace(as_of="2024")).low is None
