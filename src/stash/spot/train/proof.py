"""What a saved model is worth: loaded strictly into a fresh model, does it give the loss that was reported?

Both it and what the servers have are evaluated as workers trained: on the samples of the last updates, in training
mode, with the same random numbers. The fresh model has another seed, so that whatever the file lacks shows. A run's
loss is a mean over updates, each of its own parameters; the saved model may well be better, and not much worse.
"""

from __future__ import annotations

import copy
import io
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stash.core.units import counted
from stash.spot.records.runs import LOSS_WINDOW, mean_loss
from stash.spot.train.ledger import DataLease
from stash.spot.train.server import assembled, build_model
from stash.spot.train.worker import Trainer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stash.spot.train.elastic_job import ElasticJob

PROOF_SECONDS = 10.0
"""After which no further update's samples are evaluated."""
_SAME, _TINY = 1e-3, 1e-9
"""Relative and absolute: what devices that add in another order may make of one loss."""
_OTHER_SEED = 1
_RECENT = 12
"""Last updates whose losses tell how much those of single updates vary; earlier ones were of a worse model."""
_NAMED = 3
"""Tensors that a sentence names."""


@dataclass(frozen=True)
class SavedLoss:
    """What became of the proof."""

    loss: float
    """Of the saved model."""
    trained: float
    """Of the servers' own tensors, on the same samples."""
    reported: float
    """As workers reported it of these updates, when they were made."""
    updates: int
    """The last ones, whose samples were evaluated."""
    samples: int
    wrong: str | None = None
    """What contradicts the report."""

    @property
    def evaluated_on(self) -> str:
        updates = "update" if self.updates == 1 else f"{self.updates} updates"
        return f"the {counted(self.samples, 'sample')} of the last {updates}"

    @property
    def document(self) -> dict[str, Any]:
        """Write it for the run's log: ``SavedModel`` of ``spot/records/runs.py``."""
        sentence = (
            f"the saved model was loaded and gives a loss of {self.loss:.4g} on {self.evaluated_on}; "
            f"{self.reported:.4g} was reported while they were trained on"
        )
        facts = {name: value for name, value in vars(self).items() if name != "trained"}
        return facts | {"said": self.wrong or sentence}


def prove(
    job: ElasticJob,
    trainer: Trainer,
    packed: Sequence[Tensor],
    saved: bytes,
    last: Sequence[tuple[DataLease, float]],
    clock: Callable[[], float] = time.monotonic,
) -> SavedLoss:
    """Evaluate a file and what servers have ``packed`` on the ``last`` updates, each with its reported loss."""
    trained = assembled(job, packed).to(trainer.device).train()
    fresh = build_model(replace(job, seed=job.seed + _OTHER_SEED)).to("cpu")
    try:
        fresh.load_state_dict(torch.load(io.BytesIO(saved), weights_only=True, map_location="cpu"), strict=True)
    except Exception as error:
        why = f"a fresh model does not take the saved one: {str(error).strip().splitlines()[-1].strip()}"
        return SavedLoss(math.nan, math.nan, math.nan, 0, 0, why)
    fresh.to(trainer.device).train()
    differs = _differing(trained, fresh)
    until = clock() + PROOF_SECONDS
    found: list[tuple[DataLease, tuple[float, float, float]]] = []
    for lease, reported in reversed(last):
        again = replayed = 0.0
        for share, batch in trainer.batches(lease):
            replayed += share * _loss(job, trained, batch, lease.start)
            again += share * _loss(job, fresh, batch, lease.start)
        found.append((lease, (again, replayed, reported)))
        if clock() > until:
            break
    again, replayed, reported = (
        mean_loss([(losses[column], lease.samples) for lease, losses in found]) for column in range(3)
    )
    samples = sum(lease.samples for lease, _ in found)
    one = SavedLoss(again, replayed, reported, updates=len(found), samples=samples)
    return replace(one, wrong=_wrong(one, differs, [loss for _, loss in last]))


def _loss(job: ElasticJob, model: nn.Module, batch: Any, seed: int) -> float:
    """Of a batch, which a loss may change, with random numbers of that seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return float(job.loss(model, copy.deepcopy(batch)).detach())


def _differing(trained: nn.Module, fresh: nn.Module) -> list[str]:
    """Names of parameters and buffers, each under all that it has, which the saved file did not bring."""
    sides = [
        dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
        for model in (trained, fresh)
    ]
    return [name for name, tensor in sides[0].items() if not torch.equal(tensor, sides[1][name])]


def _wrong(found: SavedLoss, differs: Sequence[str], window: Sequence[float]) -> str | None:
    on = found.evaluated_on
    both_none = math.isnan(found.loss) and math.isnan(found.trained)
    if not both_none and not math.isclose(found.loss, found.trained, rel_tol=_SAME, abs_tol=_TINY):
        what = ", ".join(differs[:_NAMED]) + (" and others differ" if len(differs) > _NAMED else " differs")
        if not differs:
            what = "something differs that is no parameter and no buffer, or the loss is not the same twice"
        return (
            f"the saved model gives a loss of {found.loss:.4g} on {on}, and what was trained {found.trained:.4g}: "
            f"{what}; what state_dict() leaves out is not saved"
        )
    recent = window[-_RECENT:]
    most = max(recent)
    room = max(most - min(recent), 0.01 * abs(most))
    if len(window) == LOSS_WINDOW and found.loss > most + room:
        return (
            f"the saved model gives a loss of {found.loss:.4g} on {on}, and workers reported {found.reported:.4g} of "
            f"them, {most:.4g} at most of late: the last updates made it worse, or what is saved is not what they "
            "trained"
        )
    return None
