"""Epochs of RetinaNet on several nodes, whose page caches fill as they shuffle, against MLPerf's logs.

One node is given: what it trains in a cold epoch, which its storage limits, and from memory. Two nodes are predicted
epoch by epoch; of four to sixteen only the time to the target was published, evaluations and start included, which is
held against four epochs. Source: MLPerf Training v5.1 (University of Florida, 8 B200 a node), looked up 2026-11-29.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from stash.predict.draws import Draws
from stash.predict.pipeline import Pipeline, Work, step_seconds, warmed_share

DRAWS = Draws()
SAMPLES = 1_170_301
"""Of an epoch: the training images of OpenImages that MLPerf uses."""
COLD, WARM, DEVICES, BATCH = 513.0, 3844.5, 8, 32
"""Samples per second of one node, its ranks, and what is trained in a step of each."""
TWO_NODES = (1016.0, 2061.0, 3948.0, 6169.0)
"""Samples per second of each epoch."""
TO_TARGET = {2: 2292.0, 4: 1655.0, 8: 1059.0, 16: 607.0}
"""Seconds."""
SPREAD = 0.06
"""Standard deviation of an epoch's logarithm, as MLPerf's repeats of cold runs differ."""


def epoch_seconds(nodes: int, epoch: int) -> float:
    """By the functions behind ``stash whatif --nodes``."""
    trained = DEVICES * BATCH / WARM
    work = Work(np.zeros(1), np.zeros(1), np.zeros(1), disk_bytes=1.0)
    pipeline = Pipeline(
        DEVICES,
        4,
        2,
        BATCH,
        1,
        store=np.full(1, COLD),
        cached=warmed_share(nodes, epoch),
        keeps=1.0,
    )
    step = float(step_seconds(pipeline, work, np.full(1, trained))[0])
    return SAMPLES / (nodes * DEVICES * BATCH) * step


def predictions() -> Iterator[Prediction]:
    """As seconds; the rules have no cache, or all in it after the first epoch."""
    four = {nodes: [epoch_seconds(nodes, epoch) for epoch in range(4)] for nodes in TO_TARGET}
    for epoch, (rate, seconds) in enumerate(zip(TWO_NODES, four[2], strict=True), 1):
        yield _case(
            "RetinaNet, two nodes by epoch",
            f"epoch {epoch}",
            SAMPLES / rate,
            seconds,
            2,
            1,
            epoch > 1,
        )
    measured = sum(SAMPLES / rate for rate in TWO_NODES)
    yield _case("RetinaNet, four epochs", "two nodes", measured, sum(four[2]), 2, 4, True)
    for nodes, seconds in TO_TARGET.items():
        yield _case(
            "RetinaNet, time to the target",
            f"{nodes} nodes",
            seconds,
            sum(four[nodes]),
            nodes,
            4,
            True,
        )


def _case(
    source: str, name: str, measured: float, predicted: float, nodes: int, epochs: int, later: bool
) -> Prediction:
    cold, warm = (SAMPLES / nodes / rate for rate in (COLD, WARM))
    first = 0 if epochs == 1 and later else 1
    rules = {"always cold": epochs * cold, "cold once": first * cold + (epochs - first) * warm}
    drawn = predicted * np.exp(SPREAD * DRAWS.normals(f"{source} {name}"))
    return Prediction(source, name, measured, drawn, rules, predicted)


def section() -> str:
    return evidence(
        "Fetching over nodes and epochs", " ".join((__doc__ or "").split()), list(predictions())
    )


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
