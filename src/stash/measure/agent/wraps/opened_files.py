"""Files that C code opens by itself, noticed where libraries take their names; drifted checkpoints are refused.

``guard`` learns what is about to be written, ``data/reads`` what is read, of libraries that save models or tables, or
read samples. A new checkpoint goes again when the job ends, so that no start resumes from that of another; one of
drifted replicas is not even written: a new path gets an empty placeholder, so that a script which saves beside its
checkpoint and then renames, links or copies goes on. It is removed when the profile ends, under whatever name
(``protocol/file_backup``). Files that Python opens are noticed there anyway.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Iterator
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from stash.measure.agent import guard, script
from stash.measure.agent.data import reads
from stash.measure.agent.script import Function


def wrap_h5py(module: ModuleType) -> None:
    """``h5py.File``, which Keras saves weights with."""
    script.wrap(module.File, "__init__", _tell_of_file, "name", mode="mode")


def wrap_cv2(module: ModuleType) -> None:
    """``cv2.imwrite`` and ``cv2.imread``, which have no signature to read."""
    write, read = module.imwrite, module.imread

    @functools.wraps(write)
    def writing(filename: Any, *args: Any, **kwargs: Any) -> Any:
        guard.about_to_write(os.fspath(filename), truncates=True)
        return write(filename, *args, **kwargs)

    @functools.wraps(read)
    def reading(filename: Any, *args: Any, **kwargs: Any) -> Any:
        reads.about_to_read(filename)
        return read(filename, *args, **kwargs)

    script.put(module, imwrite=writing, imread=reading)


def wrap_torchvision_io(module: ModuleType) -> None:
    """``torchvision.io.write_file`` and ``read_file``, which its writers and readers of pictures call too.

    The latter maps the file, so that the kernel's counters show nothing of what it finds in memory.
    """
    script.wrap(module, "write_file", _tell_of_file, "filename")
    script.wrap(module, "read_file", _tell_of_file, "path", writes=False)


def wrap_parquet(module: ModuleType) -> None:
    """``pyarrow.parquet.ParquetWriter``, which ``write_table`` calls too."""
    script.wrap(module.ParquetWriter, "__init__", _tell_of_file, "where")


def _tell_of_file(
    function: Function, path: str, mode: str | None = None, writes: bool = True
) -> Function:
    """``function``, which first names the file in its argument ``path``; of ``mode`` "r" it only reads."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says what is wrong
        given.apply_defaults()
        name = given.arguments.get(path)
        usual = "w" if writes else "r"
        how = usual if mode is None else given.arguments.get(mode) or "r"
        if isinstance(name, (str, bytes, os.PathLike)) and how != "r":
            guard.about_to_write(os.fsdecode(name), truncates=how == "w")
        elif how == "r":
            reads.about_to_read(name)
        return function(*args, **kwargs)

    return wrapper


_NOT_KEPT = "no checkpoint is kept: what trains during a profile is not a model to keep"
_INDEX = ".metadata"
"""The file that ``torch.distributed.checkpoint`` ends a checkpoint with."""
_placeholders: set[str] = set()


def guard_torch_save(module: ModuleType) -> None:
    """Guard ``torch.save``."""
    script.wrap(module, "save", _guard_save, "f", 1)


def guard_safetensors(module: ModuleType) -> None:
    """Guard ``safetensors.torch.save_file`` and ``save_model``."""
    script.wrap(module, "save_file", _guard_save, "filename", 1)
    script.wrap(module, "save_model", _guard_save, "filename", 1)


def guard_distributed_checkpoint(module: ModuleType) -> None:
    """Guard ``torch.distributed.checkpoint``: it opens its files itself, and would leave them empty."""
    for name in ("save", "save_state_dict", "async_save"):
        if hasattr(module, name):
            script.wrap(module, name, _refuse_drifted, asynchronous=name == "async_save")


def _refuse_drifted(save: Function, asynchronous: bool) -> Function:
    @functools.wraps(save)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not script.saves_drifted():
            with _save_beside(), script.saving():
                return save(*args, **kwargs)
        script.note(_NOT_KEPT)
        if isinstance(folder := kwargs.get("checkpoint_id"), (str, os.PathLike)):
            with guard.saving():
                guard.about_to_write(os.path.join(folder, _INDEX), truncates=True)
        done: Future[None] = Future()
        done.set_result(None)
        return done if asynchronous else None

    return wrapper


@contextlib.contextmanager
def _save_beside() -> Iterator[None]:
    if script.passes() > 0:
        script.note(_NOT_KEPT)
    with guard.saving():
        yield


def remove_placeholders() -> None:
    """Remove the placeholders."""
    while _placeholders:
        with contextlib.suppress(FileNotFoundError):  # the script removed or renamed it
            os.unlink(_placeholders.pop())


def is_storage(value: Any) -> bool:
    """Whether it is what a tensor is pickled by, on its way to another process: saving that is no checkpoint."""
    return type(value).__name__ in ("UntypedStorage", "TypedStorage")


def _guard_save(save: Function, name: str, position: int) -> Function:
    @functools.wraps(save)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if args and is_storage(args[0]):
            return save(*args, **kwargs)
        target = kwargs.get(name, args[position] if len(args) > position else None)
        if not isinstance(target, (str, os.PathLike)):
            with guard.saving(target), script.saving():
                # a file that is open already, or a buffer: what it replaces is kept
                return save(*args, **kwargs)
        if not script.saves_drifted():
            with _save_beside(), script.saving():
                guard.about_to_write(os.fspath(target), truncates=True)
                return save(*args, **kwargs)
        script.note(_NOT_KEPT)
        if not os.path.exists(target):
            path = os.path.abspath(os.fspath(target))
            with (
                guard.saving()
            ):  # a new folder that it lies in is no whole checkpoint, and goes with it
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
            _placeholders.add(path)
        return None

    return wrapper
