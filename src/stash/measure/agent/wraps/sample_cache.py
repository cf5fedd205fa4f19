"""Samples of a data set made once and kept, in trials of ``stash fix``; and what shows that they may be.

``CachedSamples`` stands on its own: a patch puts its source into the script. What is kept has to be the same whenever
it is made: ``facts_of`` reads some samples twice, as they come and without the data set's ``transform``, which is
then applied to what is kept, each time again. They must be the same with other seeds, and draw no random number: of
samples that are seldom changed, three would rarely show it. What reading them back takes is timed, as is making them.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = "/dev/shm"
"""A folder that is kept in memory."""
_READ = 3
"""Samples that are read twice."""
_OLD = 86_400.0
_LONG = 1.0
"""Seconds of reading after which one sample has to do."""
_KEPT_FREE = 0.5
"""Of what is free in memory or on a disk: no more is taken."""


class CachedSamples:
    """Samples of a map-style data set, each made once and kept in a folder; remove it when the data change.

    Data sets of another length, root, or first, middle or last sample have folders of their own in it. With
    ``transform``, what is kept is what the data set gives without its ``transform``, which follows each time.
    """

    def __init__(self, data, folder, transform=False):  # type: ignore[no-untyped-def]
        import copy

        self._data, self._folder, self._transform = data, folder, None
        if transform:
            self._data, self._transform = copy.copy(data), data.transform
            self._data.transform = self._data.transforms = None
        length = len(data)
        few = [self._data[index] for index in sorted({0, length // 2, length - 1}) if length]
        text = re.sub(r"\b0x[0-9a-f]+", "", f"{length} {getattr(data, 'root', None)} {few!r}")  # without addresses
        self._folder = os.path.join(folder, f"{zlib.crc32(text.encode(errors='replace')):08x}")
        for each in (folder, self._folder):
            os.makedirs(each, mode=0o700, exist_ok=True)
            if os.stat(each).st_uid != os.getuid():  # what is read from it could run
                raise PermissionError(f"{each} belongs to somebody else")

    def __len__(self):  # type: ignore[no-untyped-def]
        return len(self._data)

    def __getattr__(self, name):  # type: ignore[no-untyped-def]
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._data, name)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        path = os.path.join(self._folder, str(index))
        try:
            with open(path, "rb") as file:
                sample = pickle.load(file)
        except FileNotFoundError:
            sample, new = self._data[index], f"{path}.{os.getpid()}"
            try:
                with open(new, "wb") as file:
                    pickle.dump(sample, file, pickle.HIGHEST_PROTOCOL)
                os.replace(new, path)
            except OSError:  # no room is left: this one is made each time
                if os.path.exists(new):
                    os.remove(new)
        if self._transform is None:
            return sample
        return (self._transform(sample[0]), *sample[1:])


def with_cache(dataset: Any, asked: Mapping[str, Any], run: Path) -> Any:
    """The data set, kept as a trial's orders ask, for the trials of this ``run``, by its folder."""
    folder = folder_of(run, str(asked["place"]))
    return CachedSamples(dataset, folder, bool(asked.get("transform")))


def folder_of(run: Path, place: str) -> Path:
    """Where samples of a run's trials are kept: beside the run, or in memory."""
    return Path(MEMORY) / f"{run.name}-samples" if place == "memory" else run / "samples"


def sweep(memory: Path = Path(MEMORY)) -> None:
    """Remove what trials that were killed more than a day ago left in memory."""
    for folder in memory.glob("stash-*-samples"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _OLD:
                shutil.rmtree(folder, ignore_errors=True)


def facts_of(dataset: Any, printed: Callable[[Any], int | None]) -> dict[str, Any]:
    """What is known of keeping samples: ``why`` they must not be kept, else their number, and of each its bytes and
    the seconds in which it is made and read back.

    ``transform``: only without that of the data set.
    """
    try:
        return _facts_of(dataset, printed)
    except Exception as error:  # the user's own code, which was not asked to do this
        return {"why": f"its samples could not be read twice ({type(error).__name__})"}


def _facts_of(dataset: Any, printed: Callable[[Any], int | None]) -> dict[str, Any]:
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or isinstance(dataset, CachedSamples):
        return {"why": "its samples have no numbers"}
    if any(hasattr(dataset, name) for name in ("set_epoch", "epoch")):
        return {"why": "its samples may depend on the epoch"}
    length = len(dataset)
    indices = sorted({0, length // 2, length - 1})[:_READ] if length else []
    plain = _without_transform(dataset)
    for data in (dataset, plain) if plain is not None else (dataset,):
        first = _read(data, indices, 1, printed)
        again = _read(data, indices[: len(first["prints"])], 2, printed)
        drawn = first["drawn"] or again["drawn"]
        if first["prints"] and first["prints"] == again["prints"] and not drawn:
            return {
                "samples": length, "transform": data is not dataset, "bytes": max(first["bytes"], again["bytes"]),
                "made_seconds": again["made_seconds"], "read_seconds": again["read_seconds"],
                "free": {"memory": _free(MEMORY), "disk": _free(tempfile.gettempdir())},
            }  # fmt: skip
    return {"why": "the same sample is another one each time it is read, or may be: random numbers are drawn for it"}


def _without_transform(dataset: Any) -> Any:
    """The data set without what it does last, if that is where ``torchvision`` and most scripts have it."""
    if not callable(getattr(dataset, "transform", None)) or getattr(dataset, "target_transform", None) is not None:
        return None
    import copy

    plain = copy.copy(dataset)
    plain.transform = plain.transforms = None
    return plain


def _read(data: Any, indices: Sequence[int], seed: int, printed: Callable[[Any], int | None]) -> dict[str, Any]:
    """Prints and bytes of samples that were read with a seed, and whether any number was ``drawn`` for them.

    The script's own random numbers go on as if nothing had been read.
    """
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
    random.seed(seed)
    torch.random.default_generator.manual_seed(seed)
    if numpy:
        numpy.random.seed(seed)
    before = _random_state(torch, numpy)
    began = time.perf_counter()
    try:
        samples = []
        for index in indices:
            samples.append(data[index])
            if time.perf_counter() - began > _LONG:
                break
        made = (time.perf_counter() - began) / max(1, len(samples))
        drawn = _random_state(torch, numpy) != before
        content = [pickle.dumps(sample, pickle.HIGHEST_PROTOCOL) for sample in samples]
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if numpy:
            numpy.random.set_state(states[2])
    prints = [printed(sample) for sample in samples]
    if None in prints:  # pictures, say: what they are as bytes
        prints = [zlib.crc32(each) for each in content]
    size = sum(map(len, content)) / max(1, len(content))
    return {
        "prints": prints, "bytes": size, "drawn": drawn, "made_seconds": made, "read_seconds": _read_back(content)
    }  # fmt: skip


def _read_back(content: Sequence[bytes]) -> float:
    """Seconds of a kept sample's way back, at least: its bytes are in memory, and no file is opened."""
    began = ended = time.perf_counter()
    for _ in range(2):  # what it needs is loaded by the first
        began = ended
        for each in content:
            pickle.loads(each)
        ended = time.perf_counter()
    return (ended - began) / max(1, len(content))


def _random_state(torch: Any, numpy: Any) -> tuple[Any, ...]:
    """Of the generators that everybody shares; one that a data set has of its own shows in what it gives only."""
    of_numpy = pickle.dumps(numpy.random.get_state(legacy=False)) if numpy else b""
    return random.getstate(), torch.get_rng_state().numpy().tobytes(), of_numpy


def _free(place: str) -> int:
    """Bytes that may be taken there."""
    with suppress(OSError):
        return int(_KEPT_FREE * shutil.disk_usage(place).free)
    return 0
