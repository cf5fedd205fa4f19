"""A job that can train asynchronously, as its user describes it: how to make its parts, not how to run them.

Whoever trains it (a replay on this machine, workers on many) makes the parts in every process that needs them.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader, Dataset

EXAMPLE = "job.py:job"


@dataclass(frozen=True)
class ElasticJob:
    """What trains asynchronously through parameter servers; ``stash.spot.Job`` to its users.

    ``loss(model, batch)`` is the mean loss over the samples of a batch, a scalar tensor whose gradient is trained
    on; ``batch`` is what ``collate`` makes of a list of samples. ``optimizer(parameters)`` may be any of
    ``torch.optim``'s whose ``step`` needs no closure (all but LBFGS): the servers hold it.
    """

    model: Callable[[], torch.nn.Module]
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    data: Callable[[], Dataset[Any] | DataLoader[Any]]
    """Samples by index, with a length, the same ones in every process; or a ``DataLoader`` of them, whose workers
    read ahead and collate. Which samples make a batch is not its business.
    """
    batch: int
    """Samples of one GPU in an iteration, if whoever trains it names no other number."""
    collate: Callable[[list[Any]], Any] | None = None
    """The loader's, else ``torch.utils.data.default_collate``, if it is ``None``."""
    seed: int = 0
    """Of the first parameters and of the order of samples."""


def build_optimizer(
    job: ElasticJob, parameters: Sequence[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """The job's optimizer; raises UserError for one whose ``step`` needs a closure, which no server can give."""
    optimizer = job.optimizer(parameters)
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UserError(
            f"the job's optimizer, {type(optimizer).__name__}, computes losses itself (a closure), and a server has "
            "gradients only; take SGD, Adam, AdamW, RMSprop, Adagrad or another whose step() needs no closure"
        )
    return optimizer


def check_optimizer(job: ElasticJob) -> None:
    """Raise UserError for an optimizer that no server can use, as far as one parameter tells: no model is made."""
    import torch

    try:
        build_optimizer(job, [torch.nn.Parameter(torch.zeros(1, 1))])
    except UserError:
        raise
    except (
        Exception
    ):  # it is not made for such a parameter; the servers will see what it makes of theirs
        return


def load_job(where: str) -> ElasticJob:
    """The job that ``file.py:name`` names; raises UserError. Its file's folder is importable from then on."""
    path, _, name = where.rpartition(":")
    if not path or not name.isidentifier():
        raise UserError(
            f"{where!r} names no job; write the file and the name of its stash.spot.Job, like {EXAMPLE}"
        )
    file = Path(path)
    if not file.is_file():
        raise UserError(f"there is no file {path}; a job is named like {EXAMPLE}")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is no Python file; a job is named like {EXAMPLE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[file.stem]
        raise UserError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    job = getattr(module, name, None)
    if not isinstance(job, ElasticJob):
        found = (
            "has no"
            if job is None
            else f"has a {type(job).__name__}, not a stash.spot.Job, under the"
        )
        raise UserError(
            f"{path} {found} name {name}; it needs a line like: {name} = stash.spot.Job(...)"
        )
    return job
