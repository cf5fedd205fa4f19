"""Making samples (read from memory, decode, augment) with one process, two, … one for each core.

Uses the zoo's readers, one sample at a time, as a DataLoader's workers would. Processes are forked from a
server that has imported the readers, and wait between repetitions. Knows nothing of batches or training.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from stash.core.errors import UserError, one_line
from stash.core.imports import require_torchvision
from stash.core.records.host import Preparation, Unmeasured
from stash.lab.zoo import readers
from stash.lab.zoo.datasets import make_dataset
from stash.lab.zoo.synthesis import TOKENS_PER_SAMPLE
from stash.measure.probe.exchanges import repeat

_COUNTS = {"images": 96, "audio": 256, "text": 4096, "clicks": 50_000}
"""Samples made where no data set is given: enough not to be one picture again and again."""
_MAX_PROCESSES = 64
_REPETITION = 0.2
"""Seconds that one repetition takes about, with the same number of samples for every process."""
_MAX = 15
_STARTING = 60.0


def process_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4, … and the number of cores itself."""
    most = min(cores, _MAX_PROCESSES)
    doubled = [2**k for k in range(most.bit_length()) if 2**k < most]
    return (*doubled, most)


def measure(
    kind: str | None, data: Path | None, scratch: Path, cores: int, seconds: float
) -> list[Preparation | Unmeasured]:
    """Rates of one kind of data set; without ``data`` of that kind, a small one is made in ``scratch``."""
    if kind is None:
        why = "no kind of data set was named; --kind images (or audio, text, clicks) measures one"
        return [Unmeasured(link="preparation", why=why)]
    end = time.monotonic() + seconds
    found: list[Preparation | Unmeasured] = []
    try:
        root = data
        if root is None:
            scratch.mkdir(parents=True, exist_ok=True)
            root = make_dataset(kind, scratch / kind, _COUNTS[kind]).path
        counts = process_counts(cores)
        with _crew(kind, root, counts[-1], seconds + _STARTING) as crew:
            end = max(end, time.monotonic() + seconds / 2)  # starting them took its time
            for place, processes in enumerate(counts):
                pipes, trial = crew[:processes], 1
                while (took := _together(pipes, trial)) < _REPETITION / 4 and trial < 1 << 20:
                    trial *= 4
                each = max(1, round(trial * _REPETITION / took))
                share = (end - time.monotonic()) / (len(counts) - place)
                taken = repeat(partial(_together, pipes, each), share, most=_MAX)
                found.append(Preparation(kind=kind, processes=processes, samples=each * processes, seconds=taken))
    except (UserError, OSError, EOFError, TimeoutError) as error:
        found.append(Unmeasured(link="preparation", why=f"no {kind} could be made into samples: {one_line(error)}"))
    return found


def _together(crew: Sequence[Connection], each: int) -> float:
    """Seconds until the last process has made its ``each`` samples."""
    began = time.perf_counter()
    for pipe in crew:
        pipe.send(each)
    for pipe in crew:
        _answer(pipe, _STARTING)
    return time.perf_counter() - began


def _answer(pipe: Connection, seconds: float) -> None:
    """Wait until a process says that it is done; raises what it raised, as a UserError."""
    if not wait([pipe], seconds):
        raise TimeoutError("a process that makes samples did not answer")
    error = pipe.recv()
    if error is not None:
        raise UserError(error)


@contextmanager
def _crew(kind: str, root: Path, size: int, patience: float) -> Iterator[list[Connection]]:
    """Pipes to ``size`` processes that have opened the data set and made a first sample."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    started: list[Any] = []
    pipes: list[Connection] = []
    try:
        for number in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_make, args=(theirs, kind, root, number), daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            pipes.append(ours)
        for pipe in pipes:
            _answer(pipe, patience)
        yield pipes
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join(5.0)


def _make(pipe: Connection, kind: str, root: Path, number: int) -> None:
    """Make as many samples as the pipe asks for, again and again, until it is closed."""
    torch.set_num_threads(1)
    try:
        samples = reader(kind, root)
        total = len(samples)
        if total == 0:
            raise UserError(f"{root} holds no {kind} that the zoo's reader finds")
        at = number * total // max(1, os.cpu_count() or 1)
        for index in range(min(total, 256)):  # brings the files into the page cache
            samples[(at + index) % total]
        pipe.send(None)
        while True:
            count = pipe.recv()
            for index in range(count):
                samples[(at + index % 256) % total]
            pipe.send(None)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        pipe.send(one_line(error))


def reader(kind: str, root: Path) -> Any:
    """The data set below ``root`` as the zoo's training code reads it."""
    if kind == "images":
        require_torchvision("preparing images")
        from stash.lab.zoo.images import Images  # brings torchvision in, which takes a second

        return Images(root)
    if kind == "text":
        return readers.Tokens(root, TOKENS_PER_SAMPLE, vocabulary=1 << 32, answers=False)
    return readers.Speech(root) if kind == "audio" else readers.Clicks(root)
