"""Integrity of the shipped tariffs: units, dates and sources, and unknown kept apart from free."""

import re

import pytest

from stash.catalog import shipped
from stash.catalog.reference import Tariff, tariffs

pytestmark = pytest.mark.usefixtures("home")

ROWS = shipped.read_rows("tariffs.csv")
PLAUSIBLE = {
    "billed_by_seconds": (1, 3600),
    "least_seconds": (1, 3600),
    "disk_dollars_per_gb_month": (0.01, 0.5),
    "egress_dollars_per_gb": (0, 0.25),
    "zone_dollars_per_gb": (0, 0.05),
    "region_dollars_per_gb": (0, 0.2),
}


def test_every_line_has_every_cell_a_date_and_a_source():
    for row in ROWS:
        assert None not in row
        assert all(cell is not None and cell == cell.strip() for cell in row.values()), row
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row["as_of"]), row
        assert row["source"], row


def test_every_fact_is_a_field_once_a_cloud_and_plausible():
    assert len({(row["cloud"], row["fact"]) for row in ROWS}) == len(ROWS)
    assert set(PLAUSIBLE) == set(Tariff.model_fields) - {"cloud"}
    for tariff in tariffs().values():
        for name, (least, most) in PLAUSIBLE.items():
            fact = getattr(tariff, name)
            assert fact is None or least <= fact.value <= most, (tariff.cloud, name)


def test_every_cloud_of_the_catalog_has_one():
    assert set(tariffs()) == {instance.cloud for instance in shipped.instances()}


def test_what_no_source_says_is_unknown_and_what_is_free_is_zero():
    known = tariffs()
    assert known["azure"].disk_dollars_per_gb_month is None
    assert known["runpod"].egress_dollars_per_gb.value == 0


def test_prices_by_the_gibibyte_are_brought_to_gigabytes():
    (row,) = (row for row in ROWS if row["unit"] == "$/GiB-month")
    fact = tariffs()[row["cloud"]].disk_dollars_per_gb_month
    assert fact.value * 2**30 == pytest.approx(float(row["value"]) * 1e9)
