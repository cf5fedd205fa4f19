"""What one probe is asked to measure, as a small JSON file that the launcher writes and its workers read.

Knows the parts, the order they run in and how they share the budget; not how any of them is measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from stash.core.records.profile import Workload

WEIGHTS = {"compute": 4.0, "copies": 1.0, "reads": 2.5, "streams": 2.0, "exchanges": 3.0}
"""The parts in the order they run, with their shares: a peer lost half-way spoils only the last two."""
PARTS = tuple(WEIGHTS)
MEETING = "STASH_PROBE_MEETING"
"""The environment variable that holds how many seconds nodes wait for each other at the start."""


class Product(NamedTuple):
    """A matrix product to measure: m by k times k by n."""

    dtype: str
    """``float32``, ``bfloat16``, ``float16``, ``tf32`` or ``fp8``."""
    shape: tuple[int, int, int]


_MOST_PRODUCTS = 3
_TYPES = ("float32", "bfloat16", "float16")


def products_of(work: Workload) -> tuple[Product, ...]:
    """The heaviest plain matrix products of a profiled job, if its profile holds any."""
    heaviest: dict[Product, float] = {}
    for operator in work.operators:
        dtype, ends = (
            operator.dtype.removeprefix("torch."),
            re.search(r"(\d+)x(\d+) (\d+)x(\d+)$", operator.shapes),
        )
        if operator.flops and dtype in _TYPES and ends and ends[2] == ends[3]:
            product = Product(dtype, (int(ends[1]), int(ends[2]), int(ends[4])))
            heaviest[product] = heaviest.get(product, 0.0) + operator.flops
    return tuple(sorted(heaviest, key=lambda product: -heaviest[product])[:_MOST_PRODUCTS])


@dataclass(frozen=True)
class ProbeOrders:
    """One node's orders. Budgets and parts are node 0's on every node; paths are each node's own."""

    folder: str
    """For progress and the result."""
    scratch: str
    """Made when files have to be written to be read; removed by the worker, and again by the launcher."""
    budget: float
    """Seconds, all parts together."""
    parts: tuple[str, ...] = PARTS
    data: str | None = None
    instance: str | None = None
    ask_metadata: bool = False
    products: tuple[Product, ...] = ()
    """The job's own; without any, standard ones are measured."""
    force: bool = False
    """Measure GPUs that others use, too."""
    secret: str | None = field(default=None, repr=False)
    """Of the run, if its nodes have one (``--rdzv-id``); the file is in a folder that is the user's alone."""
    version: str = ""
    """Stash's own, for the record."""

    @property
    def progress(self) -> Path:
        """One JSON object a line."""
        return Path(self.folder) / "progress.jsonl"

    @property
    def result(self) -> Path:
        """The ``Probe`` so far, written by rank 0 after each part."""
        return Path(self.folder) / "probe.json"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read_orders(path: str | Path) -> ProbeOrders:
    """The orders in a file; raises OSError or ValueError."""
    fields = json.loads(Path(path).read_text())
    products = tuple(Product(dtype, tuple(shape)) for dtype, shape in fields["products"])
    return ProbeOrders(**{**fields, "parts": tuple(fields["parts"]), "products": products})


def share_budget(parts: Iterable[str], budget: float) -> dict[str, float]:
    """Seconds for each of ``parts``, in the order they run; they add up to the budget."""
    wanted = [name for name in PARTS if name in set(parts)]
    total = sum(WEIGHTS[name] for name in wanted)
    return {name: budget * WEIGHTS[name] / total for name in wanted}
