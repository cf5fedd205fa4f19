"""The limit of money holds whatever cells take: what it is passed by is what ending takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from studies import Ending, FakeWorld, run, study

PRICES = {"p3.2xlarge": 3.0, "p3.8xlarge": 12.0}
STUDY = """
workloads: [{zoo: resnet18}]
batches: [16, 32, 64]
targets:
- {engine: sky, instance: p3.2xlarge, price: "$3/h"}
- {engine: sky, instance: p3.8xlarge, price: "$12/h"}
"""
ENDING = 30.0 + 60.0
"""Seconds: to end in order, and what passes by the fake clock while clusters are taken down, one after the other."""
Taken = some.lists(some.floats(1, 20_000), min_size=6, max_size=6)


def ran(took: list[float], boot: float, down_fails: int, dollars: float) -> float:
    """The dollars that the cloud of a run with this limit has billed."""
    each = iter(took * 4)
    world = FakeWorld(lambda _: Ending(seconds=next(each)), boot=boot, down_fails=down_fails)
    with tempfile.TemporaryDirectory() as folder:
        run(study(STUDY, Path(folder)), world, dollars=dollars)
    assert world.clusters == set()
    billed = 0.0
    for cluster, there in world.billed.items():
        (price,) = (price for name, price in PRICES.items() if name.replace(".", "-") in cluster)
        billed += price * there / 3600
    return billed


@hypothesis_settings(max_examples=12, deadline=None)
@given(
    seconds=Taken,
    boot=some.floats(0, 2_000),
    down_fails=some.integers(0, 2),
    dollars=some.floats(0.1, 30),
)
def test_money_is_passed_by_no_more_than_ending_takes(
    seconds: list[float], boot: float, down_fails: int, dollars: float
) -> None:
    billed = ran(seconds, boot, down_fails, dollars)
    assert billed <= dollars + ENDING * sum(PRICES.values()) / 3600
