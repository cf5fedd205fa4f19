"""Gavel's throughputs at larger batches, predicted from the smallest batch of the same job on the same machines.

Split: for every model, GPU, placement and number of GPUs the row of the smallest batch is given, with the rows of
one GPU, and all other batches are predicted. Nobody published these machines' links nor the models' gradients, so
all that is known of the exchange is what it cost at the smallest batch. How much of it is hidden, and how much more a
longer backward pass hides, is anything possible, as for a profile without readiness (``derive.predict.exchange``).
That followed a first look at these rows, where all that can hide was taken to: ``docs/log.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.predict.errors import Prediction
from bench.predict.published import DRAWS, STEPS, rows, timed
from stash.derive.predict import efficiency
from stash.derive.predict.draws import Array

Key = tuple[str, str, str, int]


def batches() -> Iterator[Prediction]:
    """Every throughput of several GPUs at a batch that is not the smallest, as steps per second of one GPU."""
    steps: dict[Key, dict[int, float]] = {}
    for row in rows("gavel.csv"):
        if row["batch_size"]:
            key = (row["model"].rstrip(","), row["gpu"], row["placement"], int(row["scale_factor"]))
            each = int(row["scale_factor"]) / float(row["iterations_per_s_aggregate"])
            steps.setdefault(key, {})[int(row["batch_size"])] = each
    for (name, gpu, placement, count), several in steps.items():
        alone = steps[name, gpu, placement, 1]
        smallest = min(alone.keys() & several.keys(), default=None)
        if count == 1 or smallest is None:
            continue
        exposed = several[smallest] - alone[smallest] * (1 + _crowding())
        hidden = _hidden(alone[smallest])
        for batch in sorted(alone.keys() & several.keys() - {smallest}):
            more = hidden * (alone[batch] / alone[smallest]) ** DRAWS.uniforms("growth of what is hidden") - hidden
            left = np.where(exposed > 0, np.maximum(0.0, exposed - more), exposed)
            whole = alone[batch] * (1 + _crowding()) + left
            yield Prediction(
                source=f"Gavel, {gpu}, {'one machine' if placement == 'consolidated' else 'spread'}",
                name=f"{name} on {count} × {gpu}, batch {batch}",
                measured=count / several[batch],
                predicted=count / whole,
                baselines={
                    "perfect scaling": count / alone[batch],
                    "exposed as at the smallest batch": count / (alone[batch] + several[smallest] - alone[smallest]),
                },
            )


def _hidden(step: float) -> Array:
    """Seconds of a step's exchange behind the backward pass, ``[draws]``: anything from none to what has room there.

    The room is the share of a step between its first gradient and its last, of the models of which somebody timed it.
    """
    room = float(np.mean([timed(name).ready[-1] for name in STEPS]))
    return step * room * DRAWS.uniforms("share of the backward pass")


def _crowding() -> Array:
    return DRAWS.around("crowding", efficiency.crowding().interval)
