"""What a step looks up in embedding tables: how many rows, how many of them distinct, and how long that takes.

One step is looked at, on the leader, through hooks of ``torch.nn`` modules; lookups by other means are not seen.
Times are the host's, so on an accelerator there are none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from typing import Any

from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.messages import JobFacts

_MAX_TABLES = 200
Learned = dict[str, Any]


class LookupCounter:
    """Looks at embeddings from ``begin`` to ``end``; what fails is over with, and is no concern of the step."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, list[Any], float]] = {}
        """By module: itself, the indices it was called with, seconds of its forward passes."""
        self._began = 0.0
        self._handles: list[Any] = []
        self.why: str | None = None
        """Why nothing is known."""

    def begin(self) -> None:
        modules = sys.modules["torch.nn.modules.module"]
        compiler = sys.modules["torch"].compiler
        before, after = self._before, self._after
        if "torch._dynamo" in sys.modules:
            before, after = compiler.disable(before), compiler.disable(after)
        self._handles = [
            modules.register_module_forward_pre_hook(before),
            modules.register_module_forward_hook(after),
        ]

    def _before(self, module: Any, inputs: Any) -> None:
        if _is_table(module):
            self._began = time.perf_counter()

    def _after(self, module: Any, inputs: Any, outputs: Any) -> None:
        if not _is_table(module) or not inputs or self.why is not None:
            return
        seconds = time.perf_counter() - self._began
        try:
            _, kept, before = self._found.get(id(module), (module, [], 0.0))
            kept.append(inputs[0].detach())
            self._found[id(module)] = (module, kept, before + seconds)
        except Exception as error:  # of a kind of table that Stash knows nothing about
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.why = f"counting lookups in embedding tables failed ({type(error).__name__}: {str(error)[:200]})"

    def end(self) -> list[Learned]:
        """Fields of ``EmbeddingTable``, of those with most lookups."""
        for handle in self._handles:
            handle.remove()
        found, self._found = list(self._found.values()), {}
        tables: list[Learned] = []
        if self.why is None:
            try:
                tables = [_table(module, kept, seconds) for module, kept, seconds in found]
            except Exception as error:
                self._give_up(error)
        return sorted(tables, key=lambda table: -table["lookups"])[:_MAX_TABLES]


def _is_table(module: Any) -> bool:
    nn = sys.modules["torch"].nn
    return isinstance(module, (nn.Embedding, nn.EmbeddingBag))


def _table(module: Any, kept: list[Any], seconds: float) -> Learned:
    torch = sys.modules["torch"]
    rows, counts = torch.unique(torch.cat([each.reshape(-1) for each in kept]), return_counts=True)
    lookups, weight = int(counts.sum()), module.weight
    size = weight.element_size() * int(weight.shape[1])
    sparse = bool(module.sparse)
    # a sparse gradient has a row and its number (int64) for every lookup, until it is coalesced
    gradient = lookups * (size + 8) if sparse else int(weight.shape[0]) * size
    return {
        "rows": int(weight.shape[0]),
        "dimension": int(weight.shape[1]),
        "lookups": lookups,
        "distinct": len(rows),
        "hottest": int(counts.max()) / lookups if lookups else 0.0,
        "sparse": sparse,
        "gradient_bytes": gradient if weight.requires_grad else 0,
        "forward_seconds": seconds if weight.device.type == "cpu" else None,
    }


def look_at_lookups(rank: OwnRank) -> Generator[None, None, None]:
    """One step; of a job without embeddings nothing is learned."""
    counter = LookupCounter()
    counter.begin()
    try:
        yield
    finally:
        tables = counter.end()
    if counter.why is not None:
        rank.note(counter.why)
    rank.publish(JobFacts(embeddings=tables))
