"""Small jobs on synthetic data whose loss curves are learned: some to choose a form by, others to say how it errs.

``TRIED`` are what a change of the forms is chosen by, ``REPORTED`` what errors are published of: no job is both.
Samples are numbers of rows, which ``collate`` looks up all at once: the same batches as from a ``TensorDataset``, in
a part of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, mse_loss

from stash.spot.train.elastic_job import ElasticJob, load_job

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spot_job.py"
Rows = tuple[torch.Tensor, ...]


def _blobs(noise: float) -> Rows:
    """4,000 points around ten centres in 20 dimensions."""
    random = torch.Generator().manual_seed(3)
    centres, labels = torch.randn(10, 20, generator=random), torch.randint(10, (4000,), generator=random)
    return centres[labels] + noise * torch.randn(4000, 20, generator=random), labels


def _slopes() -> Rows:
    """4,000 points in 40 directions of unlike length, and a noisy linear function of them."""
    random = torch.Generator().manual_seed(5)
    points = torch.randn(4000, 40, generator=random) * torch.logspace(0, -1, 40)
    values = points @ torch.randn(40, 1, generator=random) + 0.3 * torch.randn(4000, 1, generator=random)
    return points, values


def _pictures() -> Rows:
    """4,000 noisy pictures of six patterns."""
    random = torch.Generator().manual_seed(7)
    patterns = interpolate(torch.randn(6, 1, 3, 3, generator=random), size=12)
    labels = torch.randint(6, (4000,), generator=random)
    return patterns[labels] + 1.5 * torch.randn(4000, 1, 12, 12, generator=random), labels


def _sequences() -> Rows:
    """4,000 sequences of 6 of 8 symbols; a label says which of the first four came most often, ties to the first."""
    random = torch.Generator().manual_seed(11)
    symbols = torch.randint(8, (4000, 6), generator=random)
    return symbols, torch.stack([(symbols == each).sum(1) for each in range(4)], dim=1).argmax(1)


def _surfaces() -> Rows:
    """4,000 points in 32 dimensions that eight numbers decide, but for noise."""
    random = torch.Generator().manual_seed(13)
    hidden, spread = torch.randn(4000, 8, generator=random), torch.randn(8, 32, generator=random)
    return (torch.tanh(hidden @ spread) + 0.1 * torch.randn(4000, 32, generator=random),)


def _classified(model: nn.Module, batch: Rows) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def _fitted(model: nn.Module, batch: Rows) -> torch.Tensor:
    """Of the last rows by the first; where there are no others, of themselves."""
    return mse_loss(model(batch[0]), batch[-1])


def _job(
    model: Callable[[], nn.Module],
    loss: Callable[[nn.Module, Any], torch.Tensor],
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    rows: Rows,
) -> ElasticJob:
    return ElasticJob(model, loss, optimizer, **_by_number(rows), batch=32)


def _by_number(rows: Rows) -> dict[str, Any]:
    """``data`` and ``collate`` of a job."""
    return {"data": lambda: range(len(rows[0])), "collate": lambda these: [each[these] for each in rows]}


def _example() -> ElasticJob:
    job = load_job(f"{EXAMPLE}:job")
    return replace(job, **_by_number(job.data().tensors))


REPORTED: dict[str, Callable[[], ElasticJob]] = {
    "logistic": lambda: _job(partial(nn.Linear, 20, 10), _classified, partial(torch.optim.SGD, lr=0.05), _blobs(1.5)),
    "perceptron": lambda: _job(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)),
        _classified,
        partial(torch.optim.Adam, lr=1e-3),
        _blobs(2.0),
    ),
    "convolutional": _example,
    "symbols": lambda: _job(
        lambda: nn.Sequential(
            nn.EmbeddingBag(8, 16, mode="sum"), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)
        ),
        _classified,
        partial(torch.optim.Adam, lr=3e-3),
        _sequences(),
    ),
    "autoencoder": lambda: _job(
        lambda: nn.Sequential(nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32)),
        _fitted,
        partial(torch.optim.SGD, lr=0.2, momentum=0.5),
        _surfaces(),
    ),
}
TRIED: dict[str, Callable[[], ElasticJob]] = {
    "regression": lambda: _job(partial(nn.Linear, 40, 1), _fitted, partial(torch.optim.SGD, lr=0.01), _slopes()),
    "momentum": lambda: _job(
        lambda: nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)),
        _classified,
        partial(torch.optim.SGD, lr=0.01, momentum=0.9),
        _blobs(1.5),
    ),
    "pictures": lambda: _job(
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6)
        ),
        _classified,
        partial(torch.optim.SGD, lr=0.03),
        _pictures(),
    ),
    "sigmoid": lambda: _job(
        lambda: nn.Sequential(nn.Linear(20, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 10)),
        _classified,
        partial(torch.optim.SGD, lr=0.7),
        _blobs(1.0),
    ),
}
