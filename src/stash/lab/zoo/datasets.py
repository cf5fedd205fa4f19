"""Makes data sets on disk that are as large, and as slow to read, as real ones; and says what each is."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from stash.core.errors import UserError, one_line
from stash.core.files import flush, is_half, parse_json, read_up_to, write_whole
from stash.core.records.base import Count
from stash.lab.zoo import synthesis
from stash.lab.zoo.synthesis import IMAGE_CLASSES, MEAN_BYTES, TOKENS_PER_SAMPLE

# ``stash-dataset.json``: what a generated data set is meant to be, and whether it is finished.

MANIFEST = "stash-dataset.json"
FORMAT = 1
_LARGEST = 2**16
"""Bytes that are read: a whole one has two hundred."""


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


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step, flushed to storage; raises OSError."""
    write_whole(root / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")


# Data sets are made as large, and as slow to read, as real ones.

ProgressCallback = Callable[[int, int], None]
"""Called with (samples on disk, samples wanted), from the calling thread."""

_FILES_PER_TASK = 32
"""Files flushed together: the first fsync of a group carries most of the others."""


@dataclass(frozen=True)
class DatasetKind:
    """One kind of data set: how samples are made and laid out in files."""

    name: str
    sample_bytes: float
    """Mean bytes on disk of one sample."""
    default_count: int
    samples_per_file: int
    number: int
    """Part of every file's random seed, so that kinds do not share random numbers."""
    content: Callable[[np.random.Generator, int], bytes]
    path: Callable[[int], str]
    """Relative path of the file with this index."""


KINDS: dict[str, DatasetKind] = {
    kind.name: kind
    for kind in (
        DatasetKind(
            "images",
            MEAN_BYTES,
            5_000,
            1,
            0,
            synthesis.image_sample,
            lambda i: f"class_{i % IMAGE_CLASSES:03d}/{i:08d}.jpg",
        ),
        DatasetKind(
            "text",
            2 * TOKENS_PER_SAMPLE,
            20_000,
            4096,
            1,
            synthesis.token_sample,
            lambda i: f"tokens-{i:05d}.uint16.bin",
        ),
    )
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


@dataclass(frozen=True)
class _File:
    """One file of a data set."""

    index: int
    path: Path
    samples: int


def dataset_kind(name: str) -> DatasetKind:
    """The kind called ``name``; raises UserError listing the kinds."""
    if name not in KINDS:
        raise UserError(f"no kind of data set is called {name!r}; choose one of {', '.join(KINDS)}")
    return KINDS[name]


def make_dataset(
    kind: str,
    path: str | Path,
    count: int | None = None,
    progress: ProgressCallback = lambda done, wanted: None,
) -> Made:
    """Write ``count`` samples (default: the kind's) of ``kind`` below ``path``; nothing where it has just these.

    Every call gives the same files (with the same numpy and Pillow). Files are flushed to storage before they get
    their name, so that evicting them from the page cache works at once.

    Raises UserError for an unknown kind, a folder that holds something else, a full disk and a folder that cannot be
    written.
    """
    started = time.monotonic()
    root = Path(path)
    spec = dataset_kind(kind)
    wanted = spec.default_count if count is None else count
    if wanted < 1:
        raise UserError(f"a data set needs at least one sample, not {count}; use --count 1 or more")
    try:
        found = read_manifest(root)
        if (
            found is not None
            and found.complete
            and found.kind == kind
            and count in (None, found.count)
        ):
            return Made(root, kind, found.count, found.bytes or 0, None)
        _claim(root, found)
        step = spec.samples_per_file
        files = [
            _File(index, root / spec.path(index), min(step, wanted - start))
            for index, start in enumerate(range(0, wanted, step))
        ]
        write_manifest(root, Manifest(kind, wanted))
        _write_all(spec, wanted, files, progress)
        size = sum(file.path.stat().st_size for file in files)
        write_manifest(root, Manifest(kind, wanted, complete=True, bytes=size))
    except OSError as error:
        raise _explain_error(error, root) from error
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


def _write_all(
    spec: DatasetKind, count: int, files: list[_File], progress: ProgressCallback
) -> None:
    """Write the files with one thread per core; numpy and Pillow release the GIL."""
    done = 0
    size = _FILES_PER_TASK if spec.samples_per_file == 1 else 1
    tasks = iter([files[i : i + size] for i in range(0, len(files), size)])
    workers = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(workers, thread_name_prefix="stash-dataset") as pool:
        running: set[Future[int]] = set()
        try:
            while True:
                progress(done, count)
                while len(running) < 2 * workers and (task := next(tasks, None)):
                    running.add(pool.submit(_write_group, spec, task))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                done += sum(future.result() for future in finished)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_group(spec: DatasetKind, files: list[_File]) -> int:
    """Write files under temporary names, flush them all, then name them; returns their samples."""
    temporaries = [file.path.with_name(f".{file.path.name}.tmp") for file in files]
    try:
        for file, temporary in zip(files, temporaries, strict=True):
            random = np.random.default_rng([0, spec.number, file.index])
            temporary.parent.mkdir(exist_ok=True)
            temporary.write_bytes(spec.content(random, file.samples))
        for temporary in temporaries:
            flush(temporary)
        for file, temporary in zip(files, temporaries, strict=True):
            temporary.replace(file.path)
        for folder in {file.path.parent for file in files}:
            flush(folder)
    except OSError:
        for temporary in temporaries:  # A full disk must not stay full of halves.
            temporary.unlink(missing_ok=True)
        raise
    return sum(file.samples for file in files)


def _explain_error(error: OSError, root: Path) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(
            f"the disk of {root} is full; free some space, delete the folder and make it again"
        )
    return UserError(
        f"cannot write the data set {root}: {error.strerror or error}; name a folder you may write to"
    )
