"""Published steps of pipelined language models in other meshes of the same machines, predicted from one another.

    python -m bench.predict.pipelines

Each pair of rows that are alike but for replicas and stages, in both directions: given are what a step took in one
mesh, what of it reduced gradients, and the layers of the other's stages. As `stash whatif --mesh` has it, every rank
computes as long, ranks idle as in the schedule played with stages as long as they are, and gradients take as long as
there are parameters on a rank. A profile sees how long stages take; here that is counted: 24 h² + 4 s h FLOPs a token
of a layer, 2 v h of the head (hidden size, sequence, vocabulary).

Nothing is fitted to these rows but the spread, which is the other model's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from statistics import fmean

import numpy as np

from bench import recorded
from bench.machine import arguments
from bench.predict.errors import Prediction, coverage, evidence, of_rules, widened
from bench.predict.published import DRAWS, GBIT
from bench.table import median_90
from stash.analysis.pipeline_changes import idle_of_stages

SCHEDULE = "Schedule1F1B"
NIC = 200 * GBIT
"""Of each GPU, on Alps (Slingshot 11)."""
Row = dict[str, str]


@cache
def pairs() -> tuple[tuple[Row, Row], ...]:
    """(given, predicted) of every two rows that are alike otherwise."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in recorded.published("pipelines"):
        alike.setdefault(tuple(row[name] for name in ("model", "nodes", "microbatch", "batch")), []).append(row)
    return tuple(pair for rows in alike.values() for pair in itertools.permutations(rows, 2))


def _stages(row: Row) -> list[float]:
    """What each stage computes in a step of one replica, in layers times microbatches."""
    hidden, sequence = int(row["hidden"]), int(row["sequence"])
    layer = 24 * hidden**2 + 4 * sequence * hidden
    counts = [float(count) for count in row["layers"].split()]
    counts[-1] += 2 * int(row["vocabulary"]) * hidden / layer
    return [_microbatches(row) * count for count in counts]


def _microbatches(row: Row) -> int:
    return int(row["batch"]) // int(row["microbatch"]) // int(row["data"])


def _passes(row: Row) -> float:
    """Of a step without its gradients, in the same unit: what a rank computes, and idles."""
    stages = _stages(row)
    return fmean(stages) + idle_of_stages(stages, SCHEDULE, _microbatches(row))


def _payload(row: Row) -> float:
    """Gradients on a rank, of which all replicas' are the sum, as a part of the model's."""
    return (1 - 1 / int(row["data"])) / int(row["pipeline"])


def predicted(given: Row, wanted: Row) -> float:
    """Seconds of a step."""
    step, gradients = float(given["seconds"]), float(given["gradient_seconds"])
    reduced = gradients * _payload(wanted) / _payload(given) if _payload(given) else gradients
    return (step - gradients) * _passes(wanted) / _passes(given) + reduced


def _over_a_nic(row: Row) -> float:
    """The plain rule: 16-bit gradients over each rank's link as claimed, nothing of it hidden."""
    hidden = int(row["hidden"])
    layers = sum(int(count) for count in row["layers"].split())
    parameters = 12 * hidden**2 * layers + int(row["vocabulary"]) * hidden
    return 2 * 2 * parameters / int(row["tensor"]) * _payload(row) / NIC


def spread(without: str | None = None) -> float:
    """Standard deviation of ln(predicted / measured), of pairs of all models but this one."""
    errors = [
        math.log(predicted(given, wanted) / float(wanted["seconds"]))
        for given, wanted in pairs()
        if wanted["model"] != without
    ]
    return widened(math.sqrt(fmean(each**2 for each in errors)), len(errors) // 2)  # each pair is there twice


def predictions() -> Iterator[Prediction]:
    """Samples per second of each row, by every other one of the same machines and batches."""
    for given, wanted in pairs():
        samples, seen = float(wanted["batch"]), float(given["seconds"])
        error = np.exp(spread(wanted["model"]) * DRAWS.normals("step in another mesh"))
        yield Prediction.throughput(
            source="sailor, GH200",
            name=f"{wanted['model']} on {wanted['nodes']} × 4, {given['data']} × {given['pipeline']} stages to "
            f"{wanted['data']} × {wanted['pipeline']}, {wanted['microbatch']} a pass",
            measured=samples / float(wanted["seconds"]),
            samples=samples,
            step=predicted(given, wanted) * error / error.mean(),
            baselines={
                "perfect scaling from there": samples / seen,
                "payload over NIC": samples / (seen + _over_a_nic(wanted) - _over_a_nic(given)),
            },
        )


def section() -> str:
    found = list(predictions())
    split = (
        f"{len(found)} pairs of Sailor's measured iterations (SOSP 2025), 16 to 256 GPUs, 1 to 8 stages, each from "
        f"another mesh of the same nodes. *Split*: by model, for the spread ({spread():.1%} over both). Over all: "
        f"median / 90th {median_90((each.error for each in found), ' / ')}, in the interval {coverage(found):.0%}; "
        f"{of_rules(found)}"
    )
    return evidence("Published steps of pipelines in other meshes", f"{split}.", found)


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
