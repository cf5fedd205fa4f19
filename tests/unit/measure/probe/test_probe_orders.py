"""A probe's orders: their file, and how the budget is shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.measure.probe.probe_orders import PARTS, ProbeOrders, read_orders, shares


def test_shares_add_up_to_the_budget_in_the_order_of_the_parts():
    found = shares(["exchanges", "copies"], 8.0)
    assert list(found) == ["copies", "exchanges"]
    assert found == {"copies": 2.0, "exchanges": 6.0}
    assert sum(shares(PARTS, 45.0).values()) == pytest.approx(45.0)


def test_orders_survive_their_file(tmp_path: Path):
    orders = ProbeOrders(str(tmp_path), "scratch", 9.0, ("copies",), data="d")
    orders.write(tmp_path / "orders.json")
    assert read_orders(tmp_path / "orders.json") == orders
