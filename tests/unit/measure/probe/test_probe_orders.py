"""A probe's orders: their file, and how the budget is shared."""

import pytest

from stash.core.records.profile import Operator, Workload
from stash.measure.probe.probe_orders import (
    PARTS,
    ProbeOrders,
    Product,
    products_of,
    read_orders,
    share_budget,
)


def test_shares_add_up_to_the_budget_in_the_order_of_the_parts():
    found = share_budget(["exchanges", "copies"], 8.0)
    assert list(found) == ["copies", "exchanges"]
    assert found == {"copies": 2.0, "exchanges": 6.0}
    assert sum(share_budget(PARTS, 45.0).values()) == pytest.approx(45.0)


def test_orders_survive_their_file(tmp_path):
    product = Product("float32", (64, 512, 10))
    orders = ProbeOrders(str(tmp_path), "scratch", 9.0, ("copies",), data="d", products=(product,))
    orders.write(tmp_path / "orders.json")
    assert read_orders(tmp_path / "orders.json") == orders


def test_the_heaviest_plain_products_of_a_job_are_measured_and_nothing_else():
    def operator(name, shapes, flops, dtype="torch.float32"):
        return Operator(operator=name, shapes=shapes, dtype=dtype, calls=1, flops=flops)

    work = Workload(
        command=("train.py",),
        name="train",
        operators=(
            operator("aten.mm", "64x512 512x10", 1e6),
            operator("aten.addmm", "10 64x512 512x10", 2e6),
            operator("aten.mm", "8x4 4x2", 2.5e6, "bfloat16"),
            operator("aten.convolution", "8x3x9x9 4x3x3x3", 9e9),
            operator("aten.relu", "64x512", None),
            operator("others", "", 1e12),
            operator("aten.mm", "4x5 6x7", 9e9),
        ),
    )
    assert products_of(work) == (Product("float32", (64, 512, 10)), Product("bfloat16", (8, 4, 2)))
