"""Published throughputs of sharded language models on more GPUs, predicted from those on fewer of the same source.

    python -m bench.predict.sharded

Each pair of rows that are alike but for the number of GPUs: what a step took on the fewer is kept, and what shows of
its exchange grows as `stash whatif --nodes` has it for a job that shards its model itself: each layer is gathered
twice and scattered once, of what that takes longer anything from nothing to all shows, and where several nodes were
measured half of the forecast is the plain rule's. Parameters travel in 16 bits, gradients in 32 with mixed precision.

Nothing is fitted to these rows: what links reach of their claims comes from other sources. One choice was made with
them in sight: "anything from nothing to all" took the place of a timeline of which half to all shows (1.8 % and
10.5 %, 90th), a share that comes of data-parallel jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np

from bench import recorded
from bench.machine import arguments
from bench.predict.errors import Prediction, coverage, evidence, of_rules
from bench.predict.published import DRAWS, GB, GBIT, Machine, fabric
from bench.table import median_90
from stash.predict import collective_times
from stash.predict.collective_times import Fabric
from stash.predict.draws import Array
from stash.predict.exchange_stalls import MODEL_SPREAD
from stash.predict.stragglers import GROWN_SPREAD

MACHINES = {
    "A100-40GB": Machine("nvswitch", 300 * GB, "infiniband", 1600 * GBIT),
    "H100": Machine("nvswitch", 450 * GB, "infiniband", 3200 * GBIT),
    "H200": Machine("nvswitch", 450 * GB, "infiniband", 3200 * GBIT),
}
"""Nodes of eight. What connects llm-foundry's H100 is not published: taken as torchtitan's, 400 Gbit/s each."""
_DEVICES = 8
Row = dict[str, str]


@cache
def pairs() -> tuple[tuple[Row, Row], ...]:
    """(on fewer GPUs, on more) of every two rows that are alike otherwise."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    names = ("source", "model", "gpu", "sequence", "microbatch", "precision", "checkpointing")
    for row in recorded.published("sharded"):
        alike.setdefault(tuple(row[name] for name in names), []).append(row)
    return tuple(
        pair
        for rows in alike.values()
        for pair in itertools.combinations(sorted(rows, key=lambda row: int(row["gpus"])), 2)
    )


def _pass_seconds(row: Row) -> float:
    """Of a microbatch, as many on each GPU: what a step takes of each of its passes."""
    return int(row["gpus"]) * int(row["microbatch"]) * int(row["sequence"]) / float(row["tokens_per_s"])


def _fabric(row: Row) -> Fabric:
    ranks = int(row["gpus"])
    return fabric(MACHINES[row["gpu"]], max(1, ranks // _DEVICES), min(ranks, _DEVICES))


def _bytes(row: Row) -> tuple[float, float]:
    """Of all parameters as they are gathered, and of all gradients as they are scattered."""
    count = float(row["parameters"])
    gathered = 1 if "float8 gathers" in row["precision"] else 2
    return gathered * count, (2 if row["precision"] == "bf16" else 4) * count


def alone(row: Row, on: Fabric) -> Array:
    """Seconds of a pass's gathers and scatters by themselves, ``[draws]``."""
    layers = int(row["layers"])
    parameters, gradients = collective_times.half_exchange(on, np.array(_bytes(row)) / layers).T
    return np.asarray(layers * (2 * parameters + gradients), np.float64)


def longer(few: Row, many: Row) -> Array:
    """Seconds that a pass is longer on more GPUs by its exchange, ``[draws]``."""
    small, large = _fabric(few), _fabric(many)
    shows = DRAWS.uniforms("share of a longer exchange that shows")
    error = np.exp(MODEL_SPREAD * DRAWS.normals("error of the exchange model"))
    modelled = shows * (alone(many, large) - alone(few, small)) * error / error.mean()
    if small.nodes == 1:
        return np.asarray(modelled, np.float64)
    parameters, gradients = _bytes(many)
    before, after = (collective_times.payload(each, parameters + gradients / 2) for each in (small, large))
    return np.asarray((modelled + after - before) / 2, np.float64)


def _over_a_nic(row: Row) -> float:
    """The plain rule: each rank's payload over its part of the link as claimed, nothing of it hidden."""
    machine, ranks, (parameters, gradients) = MACHINES[row["gpu"]], int(row["gpus"]), _bytes(row)
    rate = machine.inside if ranks <= _DEVICES or machine.between is None else machine.between
    return (2 * parameters + gradients) * (ranks - 1) / ranks / rate


def predictions() -> Iterator[Prediction]:
    """Tokens per second of each row of more GPUs."""
    for few, many in pairs():
        ranks, seen = int(many["gpus"]), _pass_seconds(few)
        doublings = np.log2(ranks / int(few["gpus"]))
        doubt = GROWN_SPREAD * np.sqrt(doublings) * DRAWS.normals("step of more ranks")
        tokens = ranks * int(many["microbatch"]) * int(many["sequence"])
        yield Prediction.throughput(
            source=f"{many['source'].partition(' ')[0]}, {many['gpu']}",
            name=f"{many['model']} on {few['gpus']} to {ranks} × {many['gpu']}, {many['microbatch']} a pass, "
            f"{many['precision']}",
            measured=float(many["tokens_per_s"]),
            samples=tokens,
            step=seen * (1 + doubt) + longer(few, many),
            baselines={
                "perfect scaling from there": ranks / int(few["gpus"]) * float(few["tokens_per_s"]),
                "payload over NIC": tokens / (seen + _over_a_nic(many) - _over_a_nic(few)),
            },
        )  # fmt: skip


def section() -> str:
    found = list(predictions())
    split = (
        f"{len(found)} pairs of llm-foundry's and torchtitan's tables, 8 to 512 GPUs, each from the fewer. *Split*: "
        "by source: nothing is fitted to them. Over all: median / 90th "
        f"{median_90((each.error for each in found), ' / ')}, in the interval {coverage(found):.0%}; "
        f"{of_rules(found)}"
    )
    return evidence("Published throughput of sharded language models", f"{split}.", found)


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
