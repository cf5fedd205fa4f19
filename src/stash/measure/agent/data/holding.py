"""Data files that stay open or mapped from batch to batch, and getting them out of the page cache all the same.

What any process maps stays in the cache, so before a cold block a training process and each of its loader's workers
let go of their mappings, and only then are the files dropped. Workers are idle at that moment and would run nothing
before their next batch: a thread in each of them answers. Agreeing with other ranks is not known here.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from stash.core import pagecache
from stash.measure.agent.data.reads import COLD, Tally, files_of_many_samples, is_data, makes_for_another
from stash.measure.linux import mappings
from stash.measure.protocol.folder import HELD

_PERIOD = 0.05
"""Seconds between two looks of a worker's thread at the tally: 20 times 10 microseconds a second."""
_PATIENCE = 2.0
"""Seconds for workers to answer; a cold block that one of them keeps from being cold says so by itself."""


class _Listening:
    """The process that has a thread which answers; a fork inherits the variable and not the thread."""

    pid = -1


def answer_calls(shared: Tally) -> None:
    """From now on this worker lets go of its mappings whenever a cold block begins; called with its first batch."""
    if _Listening.pid == os.getpid():
        return
    _Listening.pid = os.getpid()
    if makes_for_another():
        _answer(shared, -1, [])  # whoever calls must know whom to wait for
        threading.Thread(target=_answer_for_ever, args=(shared,), daemon=True, name="stash").start()


def _answer_for_ever(shared: Tally) -> None:
    answered = -1
    while os.path.exists(shared.path):  # the run's folder goes with the run
        mode, generation = shared.mode()
        if mode == COLD and generation != answered:
            _answer(shared, generation, _let_go())
            answered = generation
        time.sleep(_PERIOD)


def _answer(shared: Tally, generation: int, held: list[str]) -> None:
    own = _answers(shared, os.getpid())
    fresh = own.with_name(f"new.{own.name}")
    try:
        fresh.write_text(json.dumps([generation, held]))
        fresh.replace(own)
    except FileNotFoundError:
        pass  # the run is over, and its folder gone


def _answers(shared: Tally, process: int | str) -> Path:
    tally = Path(shared.path)
    return tally.with_name(f"{HELD}{tally.name}.{process}")


def let_go_everywhere(shared: Tally) -> list[str]:
    """Of a training process: it and its workers let go; the value is the data files that any of them holds.

    The tally must be in a cold block's mode, and the workers idle.
    """
    held = set(_let_go())
    _, generation = shared.mode()
    pattern = _answers(shared, "*")
    deadline = time.monotonic() + _PATIENCE
    for path in pattern.parent.glob(pattern.name):
        while _runs(path.suffix.removeprefix(".")) and time.monotonic() < deadline:
            answered, files = json.loads(path.read_text())
            if answered == generation:
                held.update(files)
                break
            time.sleep(_PERIOD / 10)
    return sorted(held)


def _runs(process: str) -> bool:
    """Whether a process exists and has not ended; one that has maps nothing."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _let_go() -> list[str]:
    """Empty this process's tables of the data files that it holds; the value is their paths.

    Files of many samples that it opens again with each of them are listed too.
    """
    held = [file for file in mappings.held_files() if is_data(file.path) and _is_worth_it(file.path)]
    mappings.let_go([region for file in held for region in file.regions])
    return [*files_of_many_samples(), *(file.path for file in held)]


def _is_worth_it(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) >= pagecache.PAGE
