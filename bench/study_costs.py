"""What a study is estimated to cost before it begins, against what its cloud bills, on a clock that is made of.

The cloud is that of the unit tests: it bills a cluster from when it is asked for until it is gone. Shows how good the
estimate is while its assumptions hold, and how far off each of them can put it. No figure is of a real cloud.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.machine import arguments

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))  # whose modules know each other by name alone

from studies import Ending, FakeWorld, reading_of, run, study

from bench.table import table
from stash.study.cell_engines import describe
from stash.study.study_folder import of_study

PRICE = 12.0
CELLS = 12
STUDY = f"""
workloads: [{{zoo: resnet18}}, {{zoo: resnet50}}]
batches: [16, 32, 64]
targets: [{{engine: sky, instance: p3.8xlarge, price: "${PRICE:g}/h"}}]
repeats: 2
"""
ASSUMED, BOOT = 120.0, 300.0
"""Seconds of a cell and of machines' start, as a study assumes them that says nothing else."""


def noisy(factor: float) -> Callable[[str], Ending]:
    chance = random.Random(1)
    return lambda _: Ending(seconds=factor * ASSUMED * chance.uniform(0.8, 1.2))


def preempted() -> Callable[[str], Ending]:
    endings = iter([Ending(), Ending(255, "cluster was preempted", seconds=60.0, preempts=True)])
    return lambda _: next(endings, Ending(seconds=ASSUMED))


CASES: dict[str, Callable[[], FakeWorld]] = {
    "as assumed, give or take 20 %": lambda: FakeWorld(noisy(1.0), boot=BOOT),
    "cells are precise after half their budget": lambda: FakeWorld(noisy(0.75), boot=BOOT),
    "cells take twice as long": lambda: FakeWorld(noisy(2.0), boot=BOOT),
    "machines take 10 minutes, not 5": lambda: FakeWorld(noisy(1.0), boot=2 * BOOT),
    "machines are taken away once": lambda: FakeWorld(preempted(), boot=BOOT),
    "machines go down at the third try": lambda: FakeWorld(noisy(1.0), boot=BOOT, down_fails=2),
}


def estimated_and_billed(world: FakeWorld) -> tuple[float, float, float]:
    """Dollars: before it begins, billed, and as the study itself counted them."""
    with tempfile.TemporaryDirectory() as folder:
        file = study(STUDY, Path(folder))
        reading = reading_of(file)
        lanes = {cell.id: describe(cell, of_study(file.path)).lane for cell in reading.cells}
        estimate = reading.takes(lanes).dollars
        outcome = run(file, world, dollars=1e6)
    assert estimate is not None
    assert len(reading.cells) == CELLS
    return estimate, PRICE * sum(world.billed.values()) / 3600, outcome.dollars


def main() -> None:
    arguments(__doc__)
    print(f"{CELLS} cells on one cluster at ${PRICE:g}/h\n")
    rows = []
    for name, world in CASES.items():
        estimate, billed, counted = estimated_and_billed(world())
        ratios = (f"{each / billed:.2f}" for each in (estimate, counted))
        rows.append([name, f"${estimate:.2f}", f"${billed:.2f}", *ratios])
    print(table(["", "estimated", "billed", "estimated / billed", "counted / billed"], rows))


if __name__ == "__main__":
    main()
