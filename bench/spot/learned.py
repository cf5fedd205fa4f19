"""Learned loss curves against fleets that were not replayed: how far each form errs in updates to a loss.

python -m bench.spot.learned [--updates 1000] [JOB ...]

Three small jobs on synthetic data: logistic regression, a perceptron with one hidden layer trained by Adam, and the
convolutional network of examples/spot_job.py. A curve is learned from 1, 2, 4 and 8 workers with three batches. Then
fleets of other sizes, batches and speeds are replayed, each with four orders of samples. How far those lie apart no
curve can tell: each form is held against every one of them, and the chosen one also against their geometric mean.
Takes four minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stash.base.spot.curve import LearnedCurve, VirtualWorker
from stash.base.spot.fleets import LossCurve
from stash.derive.spot.loss.convergence import updates_to
from stash.derive.spot.loss.courses import common_losses, passed, shape_of
from stash.elastic.job import ElasticJob, load_job
from stash.elastic.learning.curve import LearnWish, learn
from stash.elastic.learning.replay import replay

ORDERS = 4
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spot_job.py"
CPU = torch.device("cpu")
Errors = dict[str, list[float]]


def blobs(noise: float) -> TensorDataset:
    """4,000 points around ten centres in 20 dimensions."""
    random = torch.Generator().manual_seed(3)
    centres, labels = torch.randn(10, 20, generator=random), torch.randint(10, (4000,), generator=random)
    return TensorDataset(centres[labels] + noise * torch.randn(4000, 20, generator=random), labels)


def cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    points, labels = batch
    return nn.functional.cross_entropy(model(points), labels)


JOBS = {
    "logistic": ElasticJob(
        lambda: nn.Linear(20, 10),
        cross_entropy,
        lambda parameters: torch.optim.SGD(parameters, 0.05),
        lambda: blobs(1.5),
        batch=32,
    ),
    "perceptron": ElasticJob(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)),
        cross_entropy,
        lambda parameters: torch.optim.Adam(parameters, 1e-3),
        lambda: blobs(2.0),
        batch=32,
    ),
    "convolutional": load_job(f"{EXAMPLE}:job"),
}


def unseen(batch: int) -> tuple[tuple[VirtualWorker, ...], ...]:
    """Fleets of sizes, batches and speeds that are not among the replayed ones."""

    def fleet(*workers: tuple[float, float]) -> tuple[VirtualWorker, ...]:
        """Of (batches in an iteration, seconds)."""
        return tuple(VirtualWorker(samples=round(batch * times), seconds=seconds) for times, seconds in workers)

    return (
        fleet(*[(1.5, 1.0)] * 3),
        fleet(*[(3.0, 1.0)] * 5),
        fleet(*[(1.0, 1.0)] * 6),
        fleet((1.0, 1.0), (2.0, 1.6), (4.0, 2.5)),
        fleet(*[(2.0, 1.0)] * 2, *[(1.0, 2.2)] * 5),
        fleet((4.0, 1.0), *[(1.0, 1.3)] * 3),
    )


def judged(job: ElasticJob, curve: LearnedCurve, updates: int) -> Errors:
    """Relative errors of updates to losses, by form.

    Under ``typical`` of the chosen one, in what several orders of samples take in the mean; under ``again`` of one
    order by another.
    """
    found: Errors = {}
    data = job.data()
    for number, workers in enumerate(unseen(job.batch)):
        orders = [replay(job, data, workers, updates, 1000 + ORDERS * number + turn, CPU) for turn in range(ORDERS)]
        runs = [each for each in orders if each is not None]
        losses = common_losses([*curve.replays, *runs])
        took = np.stack([passed(run, losses) for run in runs])
        shape = shape_of(runs[0])
        for form in curve.forms:
            found.setdefault(form.form, []).extend(off(said(form.curve, shape, losses), each) for each in took)
        typical = np.exp(np.log(took).mean(axis=0))
        found.setdefault("typical", []).append(off(said(curve.best.curve, shape, losses), typical))
        found.setdefault("again", []).extend(np.abs(took[1::2] / took[::2] - 1))
    return {name: [float(one) for each in errors for one in np.atleast_1d(each)] for name, errors in found.items()}


def said(curve: LossCurve, shape: tuple[np.ndarray, np.ndarray, np.ndarray], losses: np.ndarray) -> np.ndarray:
    """Updates to each loss; infinite where the curve says that it is never reached."""
    found = [
        float(updates_to(curve, float(loss), *shape)) if curve.levels or loss > curve.gamma5 else np.inf
        for loss in losses
    ]
    return np.array(found)


def off(predicted: np.ndarray, took: np.ndarray) -> np.ndarray:
    """Relative errors; 1 where nothing was predicted."""
    errors = np.abs(predicted / took - 1)
    return np.where(np.isfinite(errors), errors, 1.0)


def lines(names: list[str], updates: int) -> Iterator[str]:
    """The table."""
    forms = ("printed", "shipped", "free", "levels", "typical", "again")
    yield f"| job | chosen | {' | '.join(forms[:-2])} | chosen, of four orders' mean | two orders of one fleet |"
    yield "| --- | --- |" + " --- |" * len(forms)
    every: Errors = {}
    for name in names:
        job = JOBS[name]
        wish = LearnWish((1, 2, 4, 8), (job.batch, 2 * job.batch, 4 * job.batch), float("inf"), updates)
        curve = learn(job, name, wish, "", "")
        found = judged(job, curve, updates)
        for form, errors in found.items():
            every.setdefault(form, []).extend(errors)
        yield f"| {name} | {curve.best.form} | " + " | ".join(told(found[form]) for form in forms) + " |"
    yield "| all | | " + " | ".join(told(every[form]) for form in forms) + " |"


def told(errors: list[float]) -> str:
    return f"{np.median(errors):.1%}, {np.quantile(errors, 0.9):.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", choices=[*JOBS, []])
    parser.add_argument("--updates", type=int, default=1000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    print(f"{asked.updates:,} updates a replay; median and 90th percentile of errors in updates to a loss\n")
    for line in lines(asked.jobs or list(JOBS), asked.updates):
        print(line, flush=True)
    took = time.process_time() - began
    print(f"\n{took:.0f} processor seconds; Python {sys.version.split()[0]}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
