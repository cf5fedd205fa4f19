"""Makes data sets on disk that are as large, and as slow to read, as real ones; and says what each is."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from stash.core.errors import UserError, one_line
from stash.core.files import flush, is_half, parse_json, read_up_to, write_whole
from stash.core.records.base import Count
from stash.lab.zoo import synthesis
from stash.lab.zoo.synthesis import IMAGE_CLASSES

MANIFEST = "stash-dataset.json"
"""What a generated data set is meant to be, and whether it is finished."""
FORMAT = 1
_LARGEST = 2**16
"""Bytes that are read: a whole one has two hundred."""
_FILES_PER_TASK = 32
"""Files flushed together: the first fsync of a group carries most of the others."""


@dataclass(frozen=True)
class Manifest:
    """The contents of ``stash-dataset.json``."""

    kind: str
    count: Count
    """Samples asked for."""
    complete: bool = False
    bytes: Count | None = None
    """Bytes of all samples, once complete."""
    format: int = FORMAT


def read_manifest(root: Path) -> Manifest | None:
    """The manifest of a data set, None if the folder has none; raises UserError if it is damaged."""
    try:
        content = read_up_to(root / MANIFEST, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {root / MANIFEST}: {error.strerror}") from error
    try:
        fields = parse_json(content)
        if fields["format"] > FORMAT:
            raise UserError(f"{root / MANIFEST} was written by a newer Stash; update this one")
        return TypeAdapter(Manifest).validate_python(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{root / MANIFEST} is damaged; delete it and its folder, and make the data set again ({one_line(error)})"
        ) from error


def _write_manifest(root: Path, manifest: Manifest) -> None:
    write_whole(root / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")


ProgressCallback = Callable[[int, int], None]
"""Called with (samples on disk, samples wanted), from the calling thread."""


@dataclass(frozen=True)
class DatasetKind:
    """One kind of data set: how samples are made and laid out in files."""

    number: int
    """Part of every file's random seed, so that kinds do not share random numbers."""
    default_count: int
    samples_per_file: int
    content: Callable[[np.random.Generator, int], bytes]
    """A file of so many samples."""
    path: Callable[[int], str]
    """Relative path of the file with this index."""


KINDS = {
    "images": DatasetKind(
        0,
        5_000,
        1,
        lambda random, samples: synthesis.make_jpeg(random),
        lambda i: f"class_{i % IMAGE_CLASSES:03d}/{i:08d}.jpg",
    ),
    "text": DatasetKind(
        1, 20_000, 4096, synthesis.token_sample, lambda i: f"tokens-{i:05d}.uint16.bin"
    ),
}


@dataclass(frozen=True)
class Made:
    """What ``make_dataset`` left on disk."""

    path: Path
    kind: str
    count: int
    """Samples in the data set."""
    bytes: int
    seconds: float | None
    """That it took; ``None`` where it was there before."""


def make_dataset(
    kind: str,
    path: str | Path,
    count: int | None = None,
    progress: ProgressCallback = lambda done, wanted: None,
) -> Made:
    """Write ``count`` samples (default: the kind's) of ``kind`` below ``path``; nothing where it has just these.

    Every call gives the same files (with the same numpy and Pillow). Files are flushed to storage, so that evicting
    them from the page cache works at once.

    Raises UserError for an unknown kind, a folder that holds something else, a full disk and a folder that cannot be
    written.
    """
    started = time.monotonic()
    root = Path(path)
    if kind not in KINDS:
        raise UserError(f"no kind of data set is called {kind!r}; choose one of {', '.join(KINDS)}")
    wanted = KINDS[kind].default_count if count is None else count
    if wanted < 1:
        raise UserError(f"a data set needs at least one sample, not {count}; use --count 1 or more")
    try:
        found = read_manifest(root)
        is_there = found is not None and found.complete and found.kind == kind
        if found is not None and is_there and count in (None, found.count):
            return Made(root, kind, found.count, found.bytes or 0, None)
        _claim(root, found)
        _write_manifest(root, Manifest(kind, wanted))
        size = _write_files(KINDS[kind], root, wanted, progress)
        _write_manifest(root, Manifest(kind, wanted, complete=True, bytes=size))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            why = (
                f"the disk of {root} is full; free some space, delete the folder and make it again"
            )
            raise UserError(why) from error
        raise UserError(
            f"cannot write the data set {root}: {error.strerror or error}; name a folder you may write to"
        ) from error
    return Made(root, kind, wanted, size, time.monotonic() - started)


def _claim(root: Path, found: Manifest | None) -> None:
    """Make the folder; raises UserError unless it is new or empty."""
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; name a new or empty folder")
    if found is not None:
        what = (
            f"{found.count} samples of {found.kind}"
            if found.complete
            else f"unfinished {found.kind}"
        )
        raise UserError(f"{root} already holds {what}; delete it, or name a new folder")
    if root.exists() and any(not is_half(item.name, of=MANIFEST) for item in root.iterdir()):
        raise UserError(f"{root} holds files that Stash did not make; name a new or empty folder")
    root.mkdir(parents=True, exist_ok=True)


def _write_files(spec: DatasetKind, root: Path, wanted: int, progress: ProgressCallback) -> int:
    """Write all files with one thread per core, as numpy and Pillow release the GIL; returns their bytes."""
    files = range(-(-wanted // spec.samples_per_file))
    group = _FILES_PER_TASK if spec.samples_per_file == 1 else 1
    size = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            progress(0, wanted)
            tasks = [files[at : at + group] for at in files[::group]]
            sizes = pool.map(lambda task: _write_group(spec, root, wanted, task), tasks)
            for task, written in zip(tasks, sizes, strict=True):
                size += written
                progress(min(wanted, task.stop * spec.samples_per_file), wanted)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return size


def _write_group(spec: DatasetKind, root: Path, wanted: int, files: range) -> int:
    """Write files, then flush them all, or leave none: a full disk must not stay full of halves; their bytes."""
    paths = {index: root / spec.path(index) for index in files}
    size = 0
    try:
        for index, path in paths.items():
            samples = min(spec.samples_per_file, wanted - index * spec.samples_per_file)
            content = spec.content(np.random.default_rng([0, spec.number, index]), samples)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            size += len(content)
        for path in (*paths.values(), *{path.parent for path in paths.values()}):
            flush(path)
    except OSError:
        for path in paths.values():
            path.unlink(missing_ok=True)
        raise
    return size
