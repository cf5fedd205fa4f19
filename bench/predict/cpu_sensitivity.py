"""Throughput against CPU cores for each GPU, as Synergy published it: predicted from one point, beside min(P, G).

Split: of each model its speed at three cores is given (it is 1 by definition), and where the curve is flat (its last
point): what the device can do. Every number of cores between is predicted; the rows of too little memory are fetch's
business, of which nothing is published, and only those of the most memory are used. Every other model is learned from
(``supply_spread``) and not predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from bench import recorded
from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from stash.predict.draws import Draws
from stash.predict.pipeline import SMT_GAIN, SUPPLY_SPREAD, Pipeline, Work, core_capacity, less_sure, step_seconds

DRAWS = Draws()
_PHYSICAL = 3
"""Cores of a GPU that Synergy's machines have without a second thread: 24 for 8 GPUs (its section 5)."""
_ROUNDED = 0.1
"""Speeds were published with one decimal."""


def section() -> str:
    found = list(predictions())
    split = (
        f"{len(found) // 2} relative throughputs of Synergy (OSDI 2022) on V100, at 1 to 24 cores for each GPU. "
        "*Split*: of each model the speeds at 3 and at the most cores are given; every other model "
        f"({', '.join(sorted(learned_from()))}) is learned from: supply is off by {SUPPLY_SPREAD:.0%} there. "
        "*Two threads* takes cores beyond three for second threads of the same three."
    )
    return evidence("CPU cores for each GPU", split, found, [each for each in found if each.source == "whole cores"])


def learned_from() -> frozenset[str]:
    """Every other model whose speed its cores limit somewhere."""
    return frozenset(sorted({model for model, *_ in _points()})[::2])


def supply_spread() -> float:
    """Root mean square of ln(seen / predicted), of the half that is learned from: where workers limit."""
    logs = [
        np.log(seen / (count / _PHYSICAL))
        for model, count, device, seen in _points()
        if model in learned_from() and count / _PHYSICAL < device
    ]
    return float(np.sqrt(np.mean(np.square(logs))))


def predictions() -> Iterator[Prediction]:
    """Each point between of the models that nothing was learned from, with whole cores and with second threads."""
    for model, count, device, seen in _points():
        if model in learned_from():
            continue
        for way in ("whole cores", "two threads"):
            yield Prediction(
                source=way,
                name=f"{model} with {count} cores",
                measured=seen,
                predicted=_predicted(device, count, way) + _ROUNDED * (DRAWS.uniforms("rounding") - 0.5),
                baselines={"min(P, G)": min(count / _PHYSICAL, device)},
            )


def _points() -> Iterator[tuple[str, int, float, float]]:
    """Model, cores, the device's own speed, and the speed that was published; without the two that are given."""
    for model, curve in _curves().items():
        device = curve[max(curve)]
        if device > 1.0:  # else it is flat from three cores on: nothing tells what its samples cost
            between = (count for count in sorted(curve) if count not in (_PHYSICAL, max(curve)))
            yield from ((model, count, device, curve[count]) for count in between)


def _predicted(device: float, cores: int, way: str) -> np.ndarray:
    """Of a step that trains one sample in 1/device, made by three cores in 1/3 · 3: P at three cores is 1."""
    ones = np.ones(DRAWS.count)
    worth = np.full(DRAWS.count, float(cores))
    if way == "two threads":
        low, high = SMT_GAIN
        gain = low + (high - low) * DRAWS.uniforms("second thread of a core")
        worth = core_capacity(2 * _PHYSICAL, cores, 2, gain) * ones
    work = Work(make_seconds=_PHYSICAL * ones, core_seconds=_PHYSICAL * ones, train_core_seconds=0 * ones)
    work = less_sure(work, DRAWS)
    node = Pipeline(ranks=1, workers=cores, prefetch=2, samples=1, batches=1, cores=worth)
    return 1 / step_seconds(node, work, ones / device)


def _curves() -> dict[str, dict[int, float]]:
    rows = recorded.published("synergy")
    most = max(float(row["mem_gb_per_gpu"]) for row in rows)
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if float(row["mem_gb_per_gpu"]) == most:
            found[row["model"]][int(row["cpus_per_gpu"])] = float(row["relative_throughput_vs_3cpu"])
    return found


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
