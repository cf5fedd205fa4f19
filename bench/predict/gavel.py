"""Gavel's throughputs at larger batches, predicted from the smallest batch of the same job on the same machines.

Split: for every model, GPU, placement and number of GPUs the row of the smallest batch is given, with the rows of
one GPU, and all other batches are predicted; every other model is learned from (``unready_spread``) instead.
Links of these machines and gradients of these models are unpublished, so all that is known of the exchange is what it
cost at the smallest batch, and a longer backward pass hides no more of it, as for a profile without readiness
(``stash.predict.exchange_stalls``): the plain rule, with what devices of a machine cost each other growing beside it.
That followed looks at these rows, where all that can hide was taken to be hidden, and then anything possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from bench import recorded
from bench.predict.errors import Prediction, coverage, evidence, widened
from bench.predict.published import DRAWS
from stash.predict import compute_ratios
from stash.predict.draws import Array
from stash.predict.exchange_stalls import STEP_SPREAD, UNREADY_SPREAD

Key = tuple[str, str, str, int]
"""Model, GPU, placement, number of GPUs."""
_LITTLE = 0.02
_ONE_SIGMA = 0.683
_AIM = 0.95


@dataclass(frozen=True, eq=False)
class Case:
    """One job at one batch, predicted from its smallest batch: seconds of a step."""

    key: Key
    batch: int
    measured: float
    trains: Array
    waits: Array
    alone: float
    as_at_the_smallest: float

    @property
    def middle(self) -> float:
        """What is forecast in the middle."""
        return float(np.mean(self.trains + self.waits))


def section() -> str:
    found = list(batches())
    split = (
        f"{len(found)} throughputs at larger batches, from that at the smallest of the same job on the same GPUs; "
        f"{coverage(found):.0%} are in the interval. *Split*: by batch, and by model: "
        f"{' and '.join(sorted(learned_from()))} are learned from, where what is exposed is off by "
        f"{UNREADY_SPREAD:.0%}."
    )
    return evidence("Gavel: other batches on K80, P100 and V100, packed and spread", split, found)


def batches() -> Iterator[Prediction]:
    """Every throughput of the half that nothing was learned from, as steps per second of one GPU."""
    yield from (_prediction(case, STEP_SPREAD) for case in _cases() if case.key[0] not in learned_from())


def _prediction(case: Case, step_spread: float) -> Prediction:
    name, gpu, placement, count = case.key
    error = np.exp(UNREADY_SPREAD * DRAWS.normals("error of the exchange model"))
    error /= error.mean()
    doubt = step_spread * case.middle * DRAWS.normals("step of another batch")
    return Prediction.throughput(
        source=f"Gavel, {gpu}, {'one machine' if placement == 'consolidated' else 'spread'}",
        name=f"{name} on {count} × {gpu}, batch {case.batch}",
        measured=count / case.measured,
        samples=count,
        step=case.trains + case.waits * error + doubt,
        baselines={
            "perfect scaling": count / case.alone,
            "exposed as at the smallest batch": count / case.as_at_the_smallest,
        },
    )


def step_spread() -> float:
    """How far a step is off besides its exchange: the source of ``STEP_SPREAD``.

    The least hundredth of a step with which 95 % of the half that is learned from are in their intervals, widened
    as they are of so few models.
    """
    learned = [case for case in _cases() if case.key[0] in learned_from()]
    tried = (hundredths / 100 for hundredths in range(50))
    least = next(each for each in tried if coverage([_prediction(case, each) for case in learned]) >= _AIM)
    return widened(least, len(learned_from()))


def learned_from() -> frozenset[str]:
    """Every other model, by name."""
    return frozenset(sorted({case.key[0] for case in _cases()})[::2])


def unready_spread() -> float:
    """How far exposed exchanges at other batches are from what is predicted: the source of ``UNREADY_SPREAD``.

    Of the half that is learned from: the size of ln(seen / predicted) that 68.3 % of them keep, which is a normal
    distribution's standard deviation and does not go by the few that no exchange explains; widened as they are of
    so few models. Cases in which nothing or next to nothing (2 % of a step) is exposed tell nothing.
    """
    logs = []
    for case in _cases():
        seen, predicted = case.measured - float(np.mean(case.trains)), float(np.mean(case.waits))
        if case.key[0] in learned_from() and seen > 0 and predicted > _LITTLE * case.measured:
            logs.append(abs(np.log(seen / predicted)))
    return widened(float(np.quantile(logs, _ONE_SIGMA)), len(learned_from()))


@cache
def _cases() -> tuple[Case, ...]:
    steps: dict[Key, dict[int, float]] = {}
    for row in recorded.published("gavel"):
        if row["batch_size"]:
            key = (row["model"].rstrip(","), row["gpu"], row["placement"], int(row["scale_factor"]))
            each = int(row["scale_factor"]) / float(row["iterations_per_s_aggregate"])
            steps.setdefault(key, {})[int(row["batch_size"])] = each
    return tuple(case for key, several in steps.items() for case in _of_job(key, several, steps[(*key[:3], 1)]))


def _of_job(key: Key, several: dict[int, float], alone: dict[int, float]) -> Iterator[Case]:
    smallest = min(alone.keys() & several.keys(), default=None)
    if key[3] == 1 or smallest is None:
        return
    crowding = _crowding() if key[2] == "consolidated" else np.zeros(DRAWS.count)
    exposed = several[smallest] - alone[smallest] * (1 + crowding)
    for batch in sorted(alone.keys() & several.keys() - {smallest}):
        trains, plain = alone[batch] * (1 + crowding), alone[batch] + several[smallest] - alone[smallest]
        yield Case(key, batch, several[batch], trains, exposed, alone[batch], plain)


def _crowding() -> Array:
    return compute_ratios.crowded(DRAWS.uniforms("crowding"))
