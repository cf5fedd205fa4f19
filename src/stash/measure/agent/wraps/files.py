"""Libraries whose C code opens files unheard: their doors in Python tell of them beforehand.

``guard`` hears of what is written, ``reading`` of what is read. Only libraries that save models or tables, or read
samples. Where none is in the way, a file is opened by Python and heard anyway.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import guard
from stash.measure.agent.data import reading


def wrap_h5py(module: ModuleType) -> None:
    """``h5py.File``, which Keras saves weights with."""
    module.File.__init__ = _telling(module.File.__init__, "name", mode="mode")


def wrap_cv2(module: ModuleType) -> None:
    """``cv2.imwrite`` and ``cv2.imread``, which have no signature to read."""
    write, read = module.imwrite, module.imread

    @functools.wraps(write)
    def told(filename: Any, *args: Any, **kwargs: Any) -> Any:
        guard.about_to_write(os.fspath(filename), truncates=True)
        return write(filename, *args, **kwargs)

    @functools.wraps(read)
    def heard(filename: Any, *args: Any, **kwargs: Any) -> Any:
        reading.heard(filename)
        return read(filename, *args, **kwargs)

    module.imwrite, module.imread = told, heard  # type: ignore[attr-defined]


def wrap_torchvision_io(module: ModuleType) -> None:
    """``torchvision.io.write_file`` and ``read_file``, which its writers and readers of pictures call too.

    The latter maps the file, so that the kernel's counters show nothing of what it finds in memory.
    """
    module.write_file = _telling(module.write_file, "filename")  # type: ignore[attr-defined]
    module.read_file = _telling(module.read_file, "path", writes=False)  # type: ignore[attr-defined]


def wrap_parquet(module: ModuleType) -> None:
    """``pyarrow.parquet.ParquetWriter``, which ``write_table`` calls too."""
    module.ParquetWriter.__init__ = _telling(module.ParquetWriter.__init__, "where")


def _telling(
    function: Callable[..., Any], path: str, mode: str | None = None, writes: bool = True
) -> Callable[..., Any]:
    """``function``, which first tells of the file in its argument ``path``; of ``mode`` "r" it only reads."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
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
            reading.heard(name)
        return function(*args, **kwargs)

    return told
