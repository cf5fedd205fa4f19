"""The limit of money holds whatever cells take: what it is passed by is what ending takes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from studies import Ending, FakeWorld, run, study

from stash.study.programs import Called
from stash.study.study_folder import of_study, read

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


def test_a_place_in_a_queue_costs_nothing(tmp_path: Path) -> None:
    class Queue(FakeWorld):
        def call(self, command: Sequence[str], seconds: float) -> Called:
            called = super().call(command, seconds)
            if command[0] != "squeue" or any(words[0] == "scancel" for words in self.commands):
                return called
            name, waited = command[-1].removeprefix("--name="), self.clock - 1_000_000
            # It waits for 50 minutes, runs for 10, is preempted and waits for 10 more.
            state = "RUNNING None" if 3000 <= waited < 3600 or waited >= 4200 else "PENDING Priority"
            return Called(0, f"{name} {state}")

    text = STUDY.partition("targets:")[0].replace("[16, 32, 64]", "[16]")
    place = 'targets: [{engine: slurm, partition: gpu, price: "$36/h"}]\n'  # a cent a second
    file, world = study(text + place, tmp_path), Queue(lambda _: Ending(seconds=4800))
    outcome = run(file, world, dollars=100)
    assert outcome.dollars == pytest.approx(18.0, abs=0.5)  # from 3,000 to 4,800 s, as often as it is looked
    (ended,) = (event for event in read(of_study(file.path).journal) if event.what == "ended")
    assert ended.dollars == pytest.approx(18.0, abs=0.5)


@hypothesis_settings(max_examples=12, deadline=None)
@given(seconds=Taken, boot=some.floats(0, 2_000), down_fails=some.integers(0, 2), dollars=some.floats(0.1, 30))
def test_money_is_passed_by_no_more_than_ending_takes(
    seconds: list[float], boot: float, down_fails: int, dollars: float
) -> None:
    billed = ran(seconds, boot, down_fails, dollars)
    assert billed <= dollars + ENDING * sum(PRICES.values()) / 3600


def test_without_limits_all_of_it_is_billed() -> None:
    billed = ran([600.0] * 6, 300.0, 0, dollars=1e6)
    assert billed >= sum(PRICES.values()) * (300 + 3 * 600) / 3600
