"""Replays by hand: courses that a curve, or any function of updates and shape, draws."""

from functools import lru_cache

import numpy as np

from stash.spot.fleet_records import LossCurve
from stash.spot.model.loss_curve import fit_curve
from stash.spot.run_records import LearnedCurve, LossReplay, VirtualWorker

SHAPES = (
    (1, 64.0, 0.0),
    (2, 64.0, 0.71),
    (4, 128.0, 0.6),
    (6, 64.0, 0.9),
    (3, 256.0, 0.5),
    (5, 200.0, 0.8),
)
"""N, bw, R."""
UPDATES = np.unique(np.geomspace(50, 8000, 40).round()).astype(int)


def course(
    size,
    batch,
    imbalance,
    drawn,
    updates=UPDATES,
    noise=0.0,
):
    """One replay whose losses ``drawn`` has, each off by a factor of about 1 ± ``noise``."""
    many = updates.astype(float)
    if isinstance(drawn, LossCurve):
        steep = (drawn.gamma2 * batch + drawn.gamma3) * size**drawn.workers_exponent
        losses = steep / (many + drawn.gamma1) ** drawn.exponent + drawn.gamma5
    else:
        losses = drawn(many, batch, imbalance, float(size))
    random = np.random.default_rng(size).normal(1, noise, len(losses)) if noise else 1.0
    return LossReplay(
        workers=(VirtualWorker(samples=max(1, round(batch)), seconds=1.0),) * size,
        seed=size,
        mean_batch=batch,
        imbalance=imbalance,
        staleness=size - 1,
        updates=tuple(int(each) for each in updates),
        losses=tuple(float(each) for each in losses * random),
        seconds=1.0,
    )


def replays_of(drawn, noise=0.0):
    """One of each of ``SHAPES``."""
    return [course(*shape, drawn, noise=noise) for shape in SHAPES]


def learned_curve(drawn=None, **changes):
    """A curve of a model with 25,557,032 parameters, as ``forecast_profiles.gpu_job`` trains it."""
    true = drawn or LossCurve(gamma1=300, gamma2=-0.5, gamma3=900, gamma5=0.4)
    replays = replays_of(true)
    fields = {
        "stash_version": "0.0.0",
        "created": "2026-11-22T00:00:00+00:00",
        "job": "job.py:job",
        "device": "CPU, 2 threads",
        "batch": 64,
        "samples": 50_000,
        "parameters": 25_557_032,
        "parameter_bytes": 102_228_128,
        "apply_seconds": 0.02,
        "window": 50,
        "seed": 0,
        "optimizer_bytes": 2 * 102_228_128,
        "buffer_bytes": 0,
        "largest_bytes": 8_000_000,
        "replays": tuple(replays),
        "fitted": _fit_replays(true),
        "ended": "done",
    }
    return LearnedCurve.model_validate({**fields, **changes})


@lru_cache(maxsize=8)
def _fit_replays(true):
    return fit_curve(replays_of(true))
