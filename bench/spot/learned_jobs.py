"""Small jobs on synthetic data whose loss curves are learned, to say how the form errs.

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
from torch.nn.functional import cross_entropy, mse_loss

from stash.spot.train.elastic_job import ElasticJob, load_job

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spot_job.py"
Rows = tuple[torch.Tensor, ...]


def _blobs(noise: float) -> Rows:
    """4,000 points around ten centres in 20 dimensions."""
    random = torch.Generator().manual_seed(3)
    centres = torch.randn(10, 20, generator=random)
    labels = torch.randint(10, (4000,), generator=random)
    return centres[labels] + noise * torch.randn(4000, 20, generator=random), labels


def _sequences() -> Rows:
    """4,000 sequences of 6 of 8 symbols; a label says which of the first four came most often, ties to the first."""
    random = torch.Generator().manual_seed(11)
    symbols = torch.randint(8, (4000, 6), generator=random)
    return symbols, torch.stack([(symbols == each).sum(1) for each in range(4)], dim=1).argmax(1)


def _surfaces() -> Rows:
    """4,000 points in 32 dimensions that eight numbers decide, but for noise."""
    random = torch.Generator().manual_seed(13)
    hidden = torch.randn(4000, 8, generator=random)
    spread = torch.randn(8, 32, generator=random)
    return (torch.tanh(hidden @ spread) + 0.1 * torch.randn(4000, 32, generator=random),)


def _class_loss(model: nn.Module, batch: Rows) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def _fit_loss(model: nn.Module, batch: Rows) -> torch.Tensor:
    """Of the last rows by the first; where there are no others, of themselves."""
    return mse_loss(model(batch[0]), batch[-1])


def _job(
    model: Callable[[], nn.Module],
    loss: Callable[[nn.Module, Any], torch.Tensor],
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    rows: Rows,
) -> ElasticJob:
    return ElasticJob(model, loss, optimizer, **_data_by_number(rows), batch=32)


def _data_by_number(rows: Rows) -> dict[str, Any]:
    """``data`` and ``collate`` of a job."""
    return {
        "data": lambda: range(len(rows[0])),
        "collate": lambda these: [each[these] for each in rows],
    }


def _example() -> ElasticJob:
    job = load_job(f"{EXAMPLE}:job")
    return replace(job, **_data_by_number(job.data().tensors))


JOBS: dict[str, Callable[[], ElasticJob]] = {
    "logistic": lambda: _job(
        partial(nn.Linear, 20, 10), _class_loss, partial(torch.optim.SGD, lr=0.05), _blobs(1.5)
    ),
    "perceptron": lambda: _job(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)),
        _class_loss,
        partial(torch.optim.Adam, lr=1e-3),
        _blobs(2.0),
    ),
    "convolutional": _example,
    "symbols": lambda: _job(
        lambda: nn.Sequential(
            nn.EmbeddingBag(8, 16, mode="sum"),
            nn.ReLU(),
            nn.Linear(16, 32),
            nn.ReLU(),
            nn.Linear(32, 4),
        ),
        _class_loss,
        partial(torch.optim.Adam, lr=3e-3),
        _sequences(),
    ),
    "autoencoder": lambda: _job(
        lambda: nn.Sequential(nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32)),
        _fit_loss,
        partial(torch.optim.SGD, lr=0.2, momentum=0.5),
        _surfaces(),
    ),
}
