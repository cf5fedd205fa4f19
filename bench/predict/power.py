"""Power limits: published seconds and joules of an epoch under a limit, predicted without the model, or the GPU too.

Every row of ml-energy/zeus's curves below its GPU's default limit is a case, as a ratio to the same row without a
limit. What the row's GPU draws without a limit is given, as a profile with counted energy knows it; the rules do not
know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from stash.predict.draws import Draws
from stash.predict.power_limits import PowerFit, PowerPoint, fit_power, power_points

DRAWS = Draws()
_RATIOS = ("seconds", "joules")
LEFT_OUT: dict[str, Callable[[PowerPoint], tuple[str, ...]]] = {
    "the model": lambda point: (point.model,),
    "the model and the GPU": lambda point: (point.model, point.gpu),
}


def section() -> str:
    return evidence("A lower power limit", " ".join((__doc__ or "").split()), list(predictions()))


def predictions() -> Iterator[Prediction]:
    """Each case by what was left out."""
    for left_out, names in LEFT_OUT.items():
        for place, ratio in enumerate(_RATIOS):
            for point in power_points():
                interval = _fit_without(names(point)).predict(point.limit, point.draw)[place]
                assert interval.high is not None
                reach = math.log(interval.high / interval.value) / 1.96
                drawn = interval.value * np.exp(reach * DRAWS.normals("validation"))
                yield Prediction(
                    f"{ratio} under a power limit, without {left_out}",
                    f"{point.model} on {point.gpu} at {point.limit:.0%}",
                    math.exp(point.log_ratios[place]),
                    drawn,
                    _rules(point, place, point.gpu not in names(point)),
                    interval.value,
                )


@cache
def _fit_without(names: tuple[str, ...]) -> PowerFit:
    return fit_power([p for p in power_points() if not {p.model, p.gpu} & set(names)])


def _rules(point: PowerPoint, place: int, knows_gpu: bool) -> dict[str, float]:
    """No change; and the mean of other models on that GPU under that limit, where that may be known."""
    rules = {"no change": 1.0}
    if knows_gpu:
        rules["other models' mean"] = _mean_of_others(point[:3], place)
    return rules


@cache
def _mean_of_others(case: tuple[str, str, float], place: int) -> float:
    model, gpu, limit = case
    by_model: dict[str, list[float]] = {}
    for point in power_points():
        if (point.gpu, point.limit) == (gpu, limit) and point.model != model:
            by_model.setdefault(point.model, []).append(point.log_ratios[place])
    return math.exp(np.mean([np.mean(ratios) for ratios in by_model.values()]))


def main() -> None:
    arguments(__doc__)
    print(section())


if __name__ == "__main__":
    main()
