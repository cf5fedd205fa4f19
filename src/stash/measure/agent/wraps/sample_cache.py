"""Samples of a data set made once and kept, in trials of ``stash fix``; and what shows that they may be.

``CachedSamples`` stands on its own: a patch puts its source into the script. What is kept has to be the same whenever
it is made: ``facts_of`` reads some samples twice, as they come and without the data set's ``transform``, which is
then applied to what is kept, each time again. They must be the same with other seeds, and draw no random number: of
samples that are seldom changed, three would rarely show it. What reading them back takes is timed, as is making them.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pickle
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stash.measure.agent.script import put
from stash.measure.agent.wraps.random_numbers import RandomStates, seed_all

MEMORY = "/dev/shm"
"""A folder that is kept in memory."""
_READ = 3
"""Samples that are read twice."""
_LONG = 1.0
"""Seconds of reading after which one sample has to do."""
_KEPT_FREE = 0.25
"""Of what is free in memory or on a disk: no more is taken, as ``CachedSamples`` has it."""


class CachedSamples:
    """Samples of a map-style data set, each made once and kept for this run, in a file that has no name.

    Workers share it, ranks have their own, and it goes with the last process that has it. With ``transform``, what is
    kept is what the data set gives without its ``transform``, which follows each time. Where a field of the data set
    was set since, and where less than three quarters of what was free would stay so, samples are made each time.
    What is changed within a field, as an entry of a list, is not noticed.
    """

    def __init__(self, data, folder=None, transform=False):  # type: ignore[no-untyped-def]
        self._data, self._plain, self._transform = data, data, transform
        if transform:
            import copy  # here, as the script may have another of that name

            self._plain = copy.copy(data)
            self._plain.transform = self._plain.transforms = None
        self._remember_fields()
        self._length = len(data)
        # of a sample; what is not written takes no space
        self._room = (1 << 42) // max(1, self._length) // 4096 * 4096
        try:
            self._file = self._open_file(folder)
            self._spare = 0.75 * self._free()
        except OSError as error:
            self._file = None
            print(f"samples are not kept: {error}", file=sys.stderr)

    def _open_file(self, folder):  # type: ignore[no-untyped-def]
        return tempfile.TemporaryFile(dir=folder, buffering=0)

    def _free(self):  # type: ignore[no-untyped-def]
        found = os.fstatvfs(self._file.fileno())
        return found.f_bavail * found.f_frsize

    def _remember_fields(self):  # type: ignore[no-untyped-def]
        self._fields, part = [], self._data
        while part is not None:  # of a Subset, those of its data set too
            fields = getattr(part, "__dict__", {})
            self._fields += [(fields, name, value) for name, value in fields.items()]
            part = fields.get("dataset")

    def _is_kept(self):  # type: ignore[no-untyped-def]
        for fields, name, value in self._fields:
            now = fields.get(name)
            if now is not value and (
                value is not None or callable(now)
            ):  # what was None may be a file opened since
                return False
        return self._file is not None

    def __getstate__(self):  # type: ignore[no-untyped-def]
        from multiprocessing.context import get_spawning_popen
        from multiprocessing.reduction import DupFd

        spawns = get_spawning_popen() is not None  # a worker; a copy is another data set
        file = DupFd(self._file.fileno()) if spawns and self._is_kept() else None
        return {**self.__dict__, "_file": file, "_fields": None}

    def __setstate__(self, state):  # type: ignore[no-untyped-def]
        self.__dict__.update(state)
        self._remember_fields()
        if self._file is not None:
            self._file = os.fdopen(self._file.detach(), "r+b", buffering=0)

    def __len__(self):  # type: ignore[no-untyped-def]
        return len(self._data)

    def __getattr__(self, name):  # type: ignore[no-untyped-def]
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._data, name)

    def __setattr__(self, name, value):  # type: ignore[no-untyped-def]
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._data, name, value)
            self._file = None

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        number = index.__index__() if hasattr(index, "__index__") else -1
        if not 0 <= number < self._length or not self._is_kept():
            return self._data[index]
        sample = self._read(number)
        if sample is None:
            sample = self._plain[index]
            self._write(number, sample)
        return (self._data.transform(sample[0]), *sample[1:]) if self._transform else sample

    def _read(self, number):  # type: ignore[no-untyped-def]
        file, start = self._file.fileno(), number * self._room
        size, found = struct.unpack("<QQ", os.pread(file, 16, start).ljust(16, b"\0"))
        try:
            return (
                pickle.loads(os.pread(file, size, start + 16)) if size and found == number else None
            )
        except Exception:  # it cannot be read back: it is made each time
            return None

    def _write(self, number, sample):  # type: ignore[no-untyped-def]
        file, start = self._file.fileno(), number * self._room
        try:
            content = pickle.dumps(sample, pickle.HIGHEST_PROTOCOL)
            # another process may be at it
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
            try:
                fits = (
                    len(content) + 16 <= self._room and self._free() - len(content) >= self._spare
                )
                if (
                    fits
                    and self._read(number) is None
                    and os.pwrite(file, content, start + 16) == len(content)
                ):
                    os.pwrite(file, struct.pack("<QQ", len(content), number), start)
            finally:
                fcntl.lockf(file, fcntl.LOCK_UN, 1, start)
        except (
            Exception
        ):  # no room is left, or it is nothing that can be kept: it is made each time
            pass


class _TrialSamples(CachedSamples):
    """Samples kept for the trials of a run, which make the same data sets in the same order."""

    def _open_file(self, folder):  # type: ignore[no-untyped-def]
        return os.fdopen(
            os.open(folder, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b", buffering=0
        )


_numbers = itertools.count()


def cache_samples(dataset: Any, transform: bool, run: Path) -> Any:
    """The data set, its samples kept for the trials of this ``run`` in its folder, be it for memory or for a disk.

    What was just written is read from memory.
    """
    name = f"samples.{os.environ.get('RANK') or 0}.{next(_numbers)}.{len(dataset)}"
    return _TrialSamples(dataset, run / name, transform)


def facts_of(dataset: Any, printed: Callable[[Any], int | None]) -> dict[str, Any]:
    """What is known of keeping samples: ``why`` they must not be kept, else their number, and of each its bytes and
    the seconds in which it is made and read back.

    ``transform``: only without that of the data set.
    """
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(
        dataset, CachedSamples
    ):
        return {"why": "its samples have no numbers"}
    if hasattr(dataset, "set_epoch") or hasattr(dataset, "epoch"):
        return {"why": "its samples may depend on the epoch"}
    try:
        length = len(dataset)
        indices = sorted({0, length // 2, length - 1})[:_READ] if length else []
        plain = _drop_transform(dataset)
        for data in (dataset,) if plain is None else (dataset, plain):
            first = _read_samples(data, indices, 1, printed)
            again = _read_samples(data, indices[: len(first["prints"])], 2, printed)
            if first["prints"] and first["prints"] == again.pop("prints"):
                return {
                    "samples": length,
                    "transform": data is not dataset,
                    **again,
                    "free": {
                        "memory": _free_bytes(MEMORY),
                        "disk": _free_bytes(tempfile.gettempdir()),
                    },
                }
    except Exception as error:  # the user's own code, which was not asked to do this
        return {"why": f"its samples could not be read twice ({type(error).__name__})"}
    return {
        "why": "the same sample is another one each time it is read, or may be: random numbers are drawn for it"
    }


def _drop_transform(dataset: Any) -> Any:
    """The data set without what it does last, if that is where ``torchvision`` and most scripts have it."""
    if (
        not callable(getattr(dataset, "transform", None))
        or getattr(dataset, "target_transform", None) is not None
    ):
        return None
    import copy

    plain = copy.copy(dataset)
    put(plain, transform=None, transforms=None)
    return plain


def _read_samples(
    data: Any, indices: Sequence[int], seed: int, printed: Callable[[Any], int | None]
) -> dict[str, Any]:
    """Prints and bytes of samples that were read with a seed; no prints where any number was drawn for them.

    The script's own random numbers go on as if nothing had been read.
    """
    states, samples = RandomStates(), []
    seed_all(seed)
    before = RandomStates().pickle()
    began = time.perf_counter()
    try:
        for index in indices:
            samples.append(data[index])
            if time.perf_counter() - began > _LONG:
                break
        made = time.perf_counter() - began
        drawn = RandomStates().pickle() != before
    finally:
        states.restore()
    content = [pickle.dumps(sample, pickle.HIGHEST_PROTOCOL) for sample in samples]
    prints = [printed(sample) for sample in samples]
    if None in prints:  # pictures, say: what they are as bytes
        prints = list(map(zlib.crc32, content))
    for _ in range(2):  # what reading back needs is loaded by the first
        began = time.perf_counter()
        for each in content:
            pickle.loads(each)
        read = time.perf_counter() - began
    count = max(1, len(samples))
    return {
        "prints": [] if drawn else prints,
        "bytes": sum(map(len, content)) / count,
        "made_seconds": made / count,
        "read_seconds": read / count,
    }


def _free_bytes(place: str) -> int:
    """Bytes that may be taken there."""
    with suppress(OSError):
        return int(_KEPT_FREE * shutil.disk_usage(place).free)
    return 0
