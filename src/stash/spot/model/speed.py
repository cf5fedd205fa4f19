"""What a fleet that was not timed would do: updates per second with an interval, samples, mean batch, imbalance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.predict.draws import Array
from stash.spot.model.fitting import SingleSpeeds, paper_speeds, queue_speeds
from stash.spot.records.fleets import FleetModel, FleetRun, FleetSpeed, SpeedModel

# Predicting ------------------------------------------------------------------------------------------------
# What a fleet that was not timed would do: updates per second by a fitted model, with its interval.
#
# The interval is Student's, of how far the model was off fleets it had not seen: it holds that, and no more. What
# leaves the measured range is predicted all the same, and said.

_MARGIN = 1.1
"""How many times beyond what was measured is still the same place."""
_POOR = 0.15


def predict(
    model: FleetModel,
    servers: int,
    workers: Mapping[str, int],
    which: SpeedModel | None = None,
    bounded: bool = False,
) -> FleetSpeed:
    """Updates a second of ``workers``, by ``which`` model or the preferred one; raises UserError.

    ``bounded``: no worker may be more than some number of steps ahead (stale-synchronous), so all are as slow as the
    slowest, and load the servers no more than that.
    """
    name = which or model.preferred
    if name == "paper" and model.paper is None:
        sizes = sorted({run.size for run in model.runs if run.size > 1})
        raise UserError(
            f"the paper's model was not fitted: it needs fleets of 3 sizes, and the runs have "
            f"{listed([str(size) for size in sizes])}; use --model queue, or fit more runs"
        )
    singles = SingleSpeeds({(each.type, each.servers): each.seconds.value for each in model.lone})
    asked = FleetRun(servers=servers, workers=dict(workers), updates_per_second=1)
    slowest = max(workers, key=lambda kind: singles.of(kind, servers))
    paced = FleetRun(servers=servers, workers={slowest: asked.size}, updates_per_second=1) if bounded else asked
    if name == "paper" and model.paper is not None:
        speed = float(paper_speeds(model.paper, singles, [paced])[0])
    else:
        speed = float(queue_speeds(model.queue, singles, [paced])[0])
    low, high = _ends(model, name, speed)
    if low is not None and _unshared(model, servers):
        alone = model.queue.model_copy(update={"unsplit": 1.0})
        low *= min(1.0, float(queue_speeds(alone, singles, [paced])[0]) / speed)
    return FleetSpeed(
        model=name,
        servers=servers,
        workers=dict(workers),
        updates_per_second=speed,
        low=low,
        high=high,
        beyond=tuple(_beyond(model, name, asked, speed, bounded)),
    )


def _ends(model: FleetModel, name: SpeedModel, speed: float) -> tuple[float | None, float | None]:
    spread = model.spread[name]
    left_out = sum(1 for each in model.judged if (each.queue if name == "queue" else each.paper) is not None)
    if spread is None or left_out < 2:
        return None, None
    arm = float(stdtrit(left_out, 0.975)) * spread
    return speed * math.exp(-arm), speed * math.exp(arm)


def _unshared(model: FleetModel, servers: int) -> bool:
    """Whether nothing tells what more servers take over from the first: no fleet with another number was timed."""
    timed = {run.servers for run in model.runs if run.size > 1}
    return servers > 1 and len(timed) == 1 and servers not in timed


def _beyond(model: FleetModel, name: SpeedModel, asked: FleetRun, speed: float, bounded: bool) -> Iterator[str]:
    if _unshared(model, asked.servers):
        yield (
            f"no fleet was timed with {asked.servers} servers: the low end is as if all work stayed with the first, "
            "as where the large tensors lie on it"
        )
    runs = [run for run in model.runs if run.servers == asked.servers]
    if not runs:
        timed = sorted({run.servers for run in model.runs})
        yield f"no run had {asked.servers} servers, only {listed([str(each) for each in timed])}"
    else:
        largest, fastest = max(run.size for run in runs), max(run.updates_per_second for run in runs)
        if asked.size > largest:
            yield f"{asked.size} workers are more than the {largest} of the largest run with as many servers"
        if speed > _MARGIN * fastest:
            yield (
                f"{speed:.3g} updates/s are more than the {fastest:.3g} that a run reached: where the server is full "
                "was not seen"
            )
    if bounded:
        yield "bounded staleness was not timed: that all go as fast as the slowest is a rule, not a measurement"
    if model.spread[name] is None:
        yield "too few runs to leave one out: how wrong the model is, is unknown"
    elif (model.error[name] or 0.0) > _POOR:
        yield f"of fleets it had not seen the model is {model.error[name]:.0%} off (median)"


# Progress --------------------------------------------------------------------------------------------------
# How fast a fleet of unlike workers gets on: updates, samples, the batch behind a mean update, and imbalance.
#
# Equations (1), (2), (4) and (5) of spotDNN (Shang et al., IWQoS 2023), for many fleets at once. Is given iteration
# times; how they come about is ``sharing``'s and ``queueing``'s business.


@dataclass(frozen=True)
class FleetPace:
    """Of fleets, one entry each."""

    updates_per_second: Array
    """(2) 1 / Texp = Σ 1 / Tᵢ."""
    samples_per_second: Array
    """(4) v = Σ vᵢ with vᵢ = bᵢ / Tᵢ."""
    imbalance: Array
    """(5) R."""

    @property
    def mean_batch(self) -> Array:
        """(4) bw = v · Texp: samples of a mean update."""
        return self.samples_per_second / self.updates_per_second


def asynchronous(counts: Array, seconds: Array, samples: Array) -> FleetPace:
    """Of workers that wait for nobody: ``counts`` and ``seconds`` (of an iteration) are [fleet, type].

    ``samples`` are bᵢ, [type]. Each fleet has one worker at least.
    """
    rates = counts / seconds
    updates = rates.sum(axis=1)
    speeds = samples[None, :] / seconds
    total = (rates * samples[None, :]).sum(axis=1)
    return FleetPace(updates, total, imbalance(counts, speeds, total))


def imbalance(counts: Array, speeds: Array, total: Array) -> Array:
    """(5) R = √((w₁ − 1)² + Σ_{i>1} wᵢ²) with wᵢ = vᵢ / v, worker 1 being the fastest: who that is, (5) depends on.

    As (w₁ − 1)² = 1 − 2 · w₁ + w₁², that is √(1 − 2 · w₁ + Σ wᵢ²).
    """
    shares = speeds / total[:, None]
    fastest = np.where(counts > 0, shares, 0.0).max(axis=1)
    squared = 1 - 2 * fastest + (counts * shares**2).sum(axis=1)
    root: Array = np.sqrt(np.maximum(squared, 0.0))  # of a lone worker it is 0, or a rounding error below
    return root
