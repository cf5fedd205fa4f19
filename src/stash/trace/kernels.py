"""Which class of work a kernel is, by one table of names (``kernels.csv``) and what the person says besides.

Only the function's own name counts: words inside template arguments and parameters never make a kernel
communication. What is in no row is compute.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from stash.core.errors import UserError

COMPUTE = "compute"
EXCHANGE = "exchange"
COPY = "copy"
CLASSES = (COMPUTE, EXCHANGE, COPY)
GRAPH = "CUDA graph"
"""The name of graphs whose kernels were not recorded."""
_SOUNDS = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|dispatch_?tokens|nccl|rccl|shmem|a2a",
    re.IGNORECASE,
)
_LONGEST = 200
"""Characters of a name that patterns see."""


class KernelPattern(NamedTuple):
    """A row of the table."""

    pattern: str
    kernel_class: str
    library: str
    source: str
    date: str


@lru_cache(maxsize=1)
def kernel_patterns() -> tuple[KernelPattern, ...]:
    """The table."""
    text = resources.files("stash.trace").joinpath("kernels.csv").read_text("utf-8")
    return tuple(KernelPattern(*row) for row in list(csv.reader(text.splitlines()))[1:])


def own_name(name: str) -> str:
    """A function's name without template arguments and parameters: ``void ns::f<a<b>, c>(int)`` is ``void ns::f``."""
    kept = []
    depth = 0
    text = name.replace("(anonymous namespace)", "{anonymous}")
    for letter in text[:_LONGEST]:
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(letter)
    return "".join(kept).replace("{anonymous}", "(anonymous namespace)").strip()


def classes_of(names: Sequence[str], more: Iterable[str] = ()) -> list[str]:
    """The class of each name; ``more`` are patterns of communication besides the table's. Raises UserError."""
    table = [(_compile_pattern(each.pattern), each.kernel_class) for each in kernel_patterns()]
    own = [(_compile_pattern(pattern), EXCHANGE) for pattern in more]
    found = []
    for name in names:
        short = name if name.lower().startswith(("mem", "gloo:", "nccl:")) else own_name(name)
        rows = [*own, *table]
        found.append(next((each for pattern, each in rows if pattern.search(short)), COMPUTE))
    return found


def sounds_like_exchange(name: str) -> bool:
    """Whether the name of a kernel that is in no row has words of communication in it."""
    short = own_name(name)
    return not short.startswith("triton_") and _SOUNDS.search(short) is not None


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"--comm-kernel {pattern[:100]}: it is no regular expression: {error}"
        ) from None
