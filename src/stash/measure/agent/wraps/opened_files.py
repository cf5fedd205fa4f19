"""Files that C code opens by itself, noticed where libraries take their names; drifted checkpoints are refused.

``guard`` learns what is about to be written, ``data/reads`` what is read, of libraries that save models or tables, or
read samples. A new checkpoint goes again when the job ends, so that no start resumes from that of another; one of
drifted replicas is not even written: a new path gets an empty placeholder, so that a script which saves beside its
checkpoint and then renames, links or copies goes on. It is removed when the profile ends, under whatever name
(``protocol/file_backup``). A script that fails over it, since it reads it, is started again, and all is written.
Files that Python opens are noticed there anyway.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from stash.measure.agent import guard, script
from stash.measure.agent.data import reads
from stash.measure.agent.script import Function


def wrap_h5py(module: ModuleType) -> None:
    """``h5py.File``, which Keras saves weights with."""
    script.wrap(module.File, "__init__", _tell_of_file, 1, "name", None)


def wrap_cv2(module: ModuleType) -> None:
    """``cv2.imwrite`` and ``cv2.imread``."""
    script.wrap(module, "imwrite", _tell_of_file, 0, "filename", "w")
    script.wrap(module, "imread", _tell_of_file, 0, "filename", "r")


def wrap_torchvision_io(module: ModuleType) -> None:
    """``torchvision.io.write_file`` and ``read_file``, which its writers and readers of pictures call too.

    The latter maps the file, so that the kernel's counters show nothing of what it finds in memory.
    """
    script.wrap(module, "write_file", _tell_of_file, 0, "filename", "w")
    script.wrap(module, "read_file", _tell_of_file, 0, "path", "r")


def wrap_parquet(module: ModuleType) -> None:
    """``pyarrow.parquet.ParquetWriter``, which ``write_table`` calls too."""
    script.wrap(module.ParquetWriter, "__init__", _tell_of_file, 1, "where", "w")


def _tell_of_file(function: Function, place: int, name: str, mode: str | None) -> Function:
    """``function``, which first tells of the file in its argument ``name``; without a ``mode`` the next says how."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        path = _find_argument(args, kwargs, place, name)
        how = mode or _find_argument(args, kwargs, place + 1, "mode") or "r"
        if how == "r":
            reads.about_to_read(path)
        elif isinstance(path, (str, bytes, os.PathLike)):
            guard.about_to_write(os.fsdecode(path), truncates=how == "w")
        return function(*args, **kwargs)

    return wrapper


def _find_argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int, name: str) -> Any:
    return kwargs.get(name, args[place] if len(args) > place else None)


_NOT_KEPT = "no checkpoint is kept: what trains during a profile is not a model to keep"
_INDEX = ".metadata"
"""The file that ``torch.distributed.checkpoint`` ends a checkpoint with."""
_placeholders: set[str] = set()


def guard_torch_save(module: ModuleType) -> None:
    """Guard ``torch.save``."""
    script.surround(module, "save", functools.partial(_guard_save, "f"))


def guard_safetensors(module: ModuleType) -> None:
    """Guard ``safetensors.torch.save_file`` and ``save_model``."""
    for name in ("save_file", "save_model"):
        script.surround(module, name, functools.partial(_guard_save, "filename"))


def guard_distributed_checkpoint(module: ModuleType) -> None:
    """Guard ``torch.distributed.checkpoint``: it opens its files itself, and would leave them empty."""
    for name in ("save", "save_state_dict", "async_save"):
        if hasattr(module, name):
            script.surround(module, name, functools.partial(_guard_folder, name == "async_save"))


def _guard_folder(asynchronous: bool, save: Function, *args: Any, **kwargs: Any) -> Any:
    if not script.refuses_save():
        with _saving_weights():
            return save(*args, **kwargs)
    script.note(_NOT_KEPT)
    if isinstance(folder := kwargs.get("checkpoint_id"), (str, os.PathLike)):
        with guard.saving():
            guard.about_to_write(os.path.join(folder, _INDEX), truncates=True)
    done: Future[None] = Future()
    done.set_result(None)
    return done if asynchronous else None


def _guard_save(name: str, save: Function, *args: Any, **kwargs: Any) -> Any:
    if args and is_storage(args[0]):
        return save(*args, **kwargs)
    target = _find_argument(args, kwargs, 1, name)
    if not isinstance(target, (str, os.PathLike)):
        with guard.saving(target), script.saving():
            # a file that is open already, or a buffer: what it replaces is kept
            return save(*args, **kwargs)
    if not script.refuses_save():
        with _saving_weights():
            guard.about_to_write(os.fspath(target), truncates=True)
            return save(*args, **kwargs)
    script.note(_NOT_KEPT)
    if not os.path.exists(target):
        path = os.path.abspath(os.fspath(target))
        # a new folder that it lies in is no whole checkpoint, and goes with it
        with guard.saving():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        _placeholders.add(path)
    return None


@contextlib.contextmanager
def _saving_weights() -> Iterator[None]:
    if script.passes() > 0:
        script.note(_NOT_KEPT)
    with guard.saving(), script.saving():
        yield


def remove_placeholders() -> None:
    """Remove the placeholders."""
    while _placeholders:
        with contextlib.suppress(FileNotFoundError):  # the script removed or renamed it
            os.unlink(_placeholders.pop())


def is_storage(value: Any) -> bool:
    """Whether it is what a tensor is pickled by, on its way to another process: saving that is no checkpoint."""
    return type(value).__name__ in ("UntypedStorage", "TypedStorage")
