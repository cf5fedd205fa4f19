"""Python processes of a job that the agent cannot get into, since they were told not to look for it.

Knows the options by which Python leaves PYTHONPATH or ``sitecustomize`` alone; what a job is, it does not know.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stash.measure.linux.processes import carrying
from stash.measure.run.orders import VARIABLE

_PYTHON = re.compile(r"python[\d.]*")
_SHUTTING = "IES"
"""-E and -I do not look at PYTHONPATH, -S does not import ``sitecustomize``."""
_TRAINS = b"libtorch"
"""Part of the name of a library by which a process can train; launchers and helpers may do without Stash."""


def python_options(words: Sequence[str]) -> str | None:
    """Python with those of its options in a command that keep the agent out, if it has any: ``python -I``."""
    for position, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            options = itertools.takewhile(lambda each: re.match(r"-[A-Za-z]", each), words[position + 1 :])
            letters = "".join(itertools.takewhile(lambda each: each[1] not in "cmXW", options))
            shutting = "".join(letter for letter in _SHUTTING if letter in letters)
            if shutting:
                return f"{Path(word).name} -{shutting}"
    return None


def trainer_shut_out(orders: str, proc: Path = Path("/proc")) -> str | None:
    """The same, of a live process of the launch under these orders that has loaded PyTorch."""
    for number in carrying(VARIABLE, orders, proc):
        with suppress(OSError):  # it has ended
            words = (proc / str(number) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            found = python_options(words)
            if found is not None and _TRAINS in (proc / str(number) / "maps").read_bytes():
                return found
    return None


def why(options: str) -> str:
    """The sentence about it."""
    return f"`{options}` keeps Stash's agent out of the job, which PYTHONPATH lets in; leave that option away"
