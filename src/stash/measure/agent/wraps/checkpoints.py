"""Checkpoints of drifted replicas are not written where C code would open the file, unheard by ``guard``.

Saving to a new path leaves an empty placeholder, so that a script which saves beside its checkpoint and then renames,
links or copies goes on. It is removed when the profile ends, under whatever name (``run.kept``).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from stash.measure.agent import script

_NOT_WRITTEN = "a checkpoint was not written: what trains during a profile is not a model to keep"
_placeholders: set[str] = set()


def guard_torch_save(module: ModuleType) -> None:
    """Guard ``torch.save``."""
    module.save = _guarded(module.save, "f", 1)  # type: ignore[attr-defined]


def guard_safetensors(module: ModuleType) -> None:
    """Guard ``safetensors.torch.save_file`` and ``save_model``."""
    module.save_file = _guarded(module.save_file, "filename", 1)  # type: ignore[attr-defined]
    module.save_model = _guarded(module.save_model, "filename", 1)  # type: ignore[attr-defined]


def guard_distributed_checkpoint(module: ModuleType) -> None:
    """Guard ``torch.distributed.checkpoint``: it opens its files itself, and would leave them empty."""
    for name in ("save", "save_state_dict", "async_save"):
        if hasattr(module, name):
            setattr(module, name, _refusing(getattr(module, name), asynchronous=name == "async_save"))


def _refusing(save: Callable[..., Any], asynchronous: bool) -> Callable[..., Any]:
    @functools.wraps(save)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        if not script.saves_drifted():
            return save(*args, **kwargs)
        script.note(_NOT_WRITTEN)
        done: Future[None] = Future()
        done.set_result(None)
        return done if asynchronous else None

    return refusing


def sweep() -> None:
    """Remove the placeholders."""
    while _placeholders:
        with contextlib.suppress(FileNotFoundError):  # the script removed or renamed it
            os.unlink(_placeholders.pop())


def _guarded(save: Callable[..., Any], name: str, position: int) -> Callable[..., Any]:
    @functools.wraps(save)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        target = kwargs.get(name, args[position] if len(args) > position else None)
        if not script.saves_drifted() or not isinstance(target, (str, os.PathLike)):
            return save(*args, **kwargs)  # a file that is open already, or a buffer: what it replaces is kept
        script.note(_NOT_WRITTEN)
        if not os.path.exists(target):
            _leave_placeholder(os.path.abspath(os.fspath(target)))
        return None

    return guarded


def _leave_placeholder(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    _placeholders.add(path)
