"""One's own machines on the market: as many as there are, at their own price, beside what everybody can rent."""

from datetime import date

import pytest
from catalogs import own_file

from stash.catalog.layers import merge
from stash.plan.candidates import build_market
from stash.plan.records import Constraints
from stash.predict.changes import MAX_NODES

NOW = date(2026, 11, 22)
OWN = """\
instances:
  - {name: lab-box, gpu: T4, price: $2/h, source: invoice 4711}
  - {name: rack, gpu: T4, count: 12, price: $1/h}
  - {name: p3.8xlarge, reserved_price: $5/h, reserved_count: 4}
"""
CATALOG = merge(None, own_file(OWN))


def rentable(name, paid, **wishes):
    asked = Constraints(**{"most_nodes": 8, **wishes})
    found = build_market(CATALOG, asked, {}, NOW).rentables
    (one,) = (each for each in found if each.instance.name == name and each.price.paid_as == paid)
    return one


def test_no_more_ranks_are_weighed_than_forecasts_go_up_to():
    found = build_market(CATALOG, Constraints(most_nodes=10**9), {}, NOW).rentables
    assert max(each.most_nodes * each.devices for each in found) == MAX_NODES


@pytest.mark.parametrize(
    ("name", "paid", "wishes", "most"),
    [
        ("lab-box", "own", {}, 1),  # how many is not given
        ("lab-box", "own", {"quotas": {"lab-box": 3}}, 3),
        ("rack", "own", {}, 8),
        ("rack", "own", {"most_nodes": 64}, 12),
        ("rack", "own", {"most_nodes": 64, "quotas": {"rack": 2}}, 2),
        ("p3.8xlarge", "reserved", {}, 4),
        ("p3.8xlarge", "on-demand", {}, 8),
    ],
)
def test_there_are_no_more_than_there_are(name, paid, wishes, most):
    assert rentable(name, paid, **wishes).most_nodes == most
