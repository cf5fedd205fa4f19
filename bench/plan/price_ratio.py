"""The paper's finding re-examined: at which price the most expensive instance becomes the best one, by model.

    python -m bench.plan.price_ratio

"More expensive instances may not be the most performant for all models" (arXiv 2208.14344). Here: of each model, what
the dearest may cost, as a part of what it does cost, to be the cheapest for a training, and how sure it is to be the
fastest. Once from published measurements alone, once from forecasts for the paper's AWS instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bench.machine import arguments
from bench.plan.tables import Cells, Job, gavel, others, prices
from bench.predict import published as links
from bench.table import table
from stash.catalog.facts import Instance
from stash.catalog.offers import OfferFilter
from stash.catalog.reference import speeds
from stash.predict import compute_ratios
from stash.predict.cluster_sources import of_instance
from stash.predict.collective_times import fabric_of
from stash.predict.compute_ratios import time_ratio
from stash.predict.draws import Array, intervals
from stash.predict.forecasting import shipped_catalog

INSTANCES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge")
"""The paper's."""
MODELS = ("AlexNet", "VGG16", "InceptionV3", "ResNet-50", "ResNet-152")
"""Whose gradients are known, and whose speeds on one K80 and one P100 are published by one source."""
SERIES = "TensorFlow performance benchmarks.md (May 2017) synthetic"
MIN_SETUPS = 8
"""A measured job is shown with so many set-ups."""


def measured() -> Iterator[list[str]]:
    """A line for each published job on several kinds of GPU, at its largest batch."""
    for job, cells in _largest({**gavel(), **others()}).items():
        cost = {setup: setup.dollars_per_hour / rate for setup, rate in cells.items()}
        dearest = max(cells, key=lambda each: (each.dollars_per_hour, each.name))
        best, fastest = min(cost, key=lambda each: cost[each]), max(cells, key=lambda each: cells[each])
        rest = [each for each in cells if each is not dearest]
        cheapest = min(rest, key=lambda each: (each.dollars_per_hour, each.name))
        even = min(cost[each] for each in rest) / cost[dearest]
        ratio = dearest.dollars_per_hour / cheapest.dollars_per_hour
        yield [
            job.name,
            f"{dearest.count} × {dearest.gpu}",
            f"{best.count} × {best.gpu}",
            f"{fastest.count} × {fastest.gpu}",
            f"{ratio:.1f}",
            f"{ratio * even:.1f}",
            f"{even:.0%}",
        ]


def _largest(found: Mapping[Job, Cells]) -> dict[Job, Cells]:
    """Of each source, model and precision the job of the largest batch that ran on enough set-ups."""
    chosen: dict[tuple[str, str, str], Job] = {}
    for job, cells in found.items():
        several = len({setup.gpu for setup in cells}) > 1 and len(cells) >= MIN_SETUPS
        key = (job.source, job.model, job.precision)
        if several and (key not in chosen or (job.batch or 0) > (chosen[key].batch or 0)):
            chosen[key] = job
    return {job: found[job] for job in chosen.values()}


@dataclass(frozen=True, eq=False)
class OnInstance:
    """One model on one instance: samples per second as draws, and its price."""

    instance: Instance
    rate: Array
    dollars_per_hour: float

    @property
    def cost(self) -> Array:
        """Dollars of a million samples, ``[draws]``."""
        found: Array = self.dollars_per_hour / 3600 / self.rate * 1e6
        return found


def on_instances(model: str) -> list[OnInstance]:
    """The model on each instance, from its published speeds on one K80 and one P100."""
    on = {speed.gpu: speed for speed in speeds() if speed.model == model and speed.series == SERIES}
    batch = on["K80"].batch
    alike = next(
        each for each in speeds() if (each.model, each.gpu, each.batch, each.series) == (model, "P100", batch, SERIES)
    )
    assert batch is not None, "TensorFlow's table says it"
    found = []
    for name in INSTANCES:
        instance, seen = shipped_catalog().instance(name), on["K80"]
        if instance.gpu_model != "K80":
            seen = alike
        step = batch / seen.per_second * _slower(model, batch, seen.gpu, instance)
        target = of_instance(instance, 1)
        if target.devices > 1:
            exchanged, fabric = links.model(model), fabric_of(target, links.DRAWS)
            late = links.exposed(exchanged, float(step.mean()), fabric)
            step = step * (1 + links.DRAWS.around("crowding", compute_ratios.crowding().interval)) + late
        found.append(OnInstance(instance, target.devices * batch / step, _price(name)))
    return found


def _slower(model: str, batch: int, seen: str, instance: Instance) -> Array:
    """Seconds on the instance's GPU over those where it was seen, ``[draws]``, as forecasts have it."""
    known = shipped_catalog()
    first = next(each for each in known.gpus if each.model == seen)
    second = known.gpu(instance.gpu or "")
    if second.model == seen:
        return np.ones(links.DRAWS.count)
    quantity = time_ratio(first, second, model, batch, "fp32")
    assert quantity is not None, "both GPUs have data sheets"
    return links.DRAWS.of(f"speed of {instance.gpu_model}", quantity)


def _price(name: str) -> float:
    offers = shipped_catalog().query(OfferFilter(cloud="aws", region="us-east-1"))
    return min(each.dollars_per_hour for each in offers if each.instance.name == name)


def forecast() -> Iterator[list[str]]:
    """A line for each model."""
    for model in MODELS:
        found = on_instances(model)
        dearest = max(found, key=lambda each: each.dollars_per_hour)
        rest = [each for each in found if each is not dearest]
        even = np.min([each.cost for each in rest], axis=0) / dearest.cost
        cheapest = min(each.dollars_per_hour for each in rest)
        best = min(found, key=lambda each: float(each.cost.mean()))
        fastest = np.mean(dearest.rate >= np.max([each.rate for each in rest], axis=0))
        ratio = dearest.dollars_per_hour / cheapest
        yield [
            model,
            best.instance.name,
            f"{fastest:.0%}",
            f"{ratio:.1f}",
            _with_ends(ratio * even, "{:.1f}"),
            _with_ends(even, "{:.0%}"),
        ]


def _with_ends(drawn: Array, pattern: str) -> str:
    (found,) = intervals(drawn[None, :])
    ends = [pattern.format(each) for each in (found.value, found.low, found.high)]
    return f"{ends[0]} ({ends[1]} to {ends[2]})"


def dates(names: Iterable[str]) -> str:
    """When the prices of these instances were asked for."""
    offers = shipped_catalog().query(OfferFilter(cloud="aws", region="us-east-1"))
    found = sorted({each.as_of or "undated" for each in offers if each.instance.name in set(names)})
    return " and ".join(found)


def lines() -> list[str]:
    """Both tables in Markdown."""
    of_price = ["price ratio", "becomes best at", "of its price"]
    return [
        f"From measurements; prices of a GPU for an hour: {prices()}.",
        "",
        table(["job", "dearest", "cheapest for the work", "fastest", *of_price], list(measured())),
        "",
        f"Forecast for {', '.join(INSTANCES)}; prices on demand in us-east-1 of {dates(INSTANCES)}.",
        "",
        table(["model", "cheapest for the work", "p3dn.24xlarge is fastest", *of_price], list(forecast())),
    ]


def main() -> None:
    arguments(__doc__)
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
