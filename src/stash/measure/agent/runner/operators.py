"""What one step computes: its operators' FLOPs and bytes, by shape and data type; its lookups in embedding tables.

A counter is put in place at one optimizer step and taken away at the next, in a step that is not measured. FLOPs are
those of PyTorch's own formulas (``torch.utils.flop_counter.flop_registry``); its ``FlopCounterMode`` tells neither
shapes nor bytes. Bytes are what an operator moves if it reads every input once and writes every result once: what
caches and fused kernels spare is not known here.

Lookups are seen, on the leader, through hooks of ``torch.nn`` modules: how many rows, how many of them distinct, and
how long that takes. Times are the host's, so on an accelerator there are none.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from stash.measure.agent import private
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.messages import JobFacts

OTHERS = "others"
"""The name of the row that holds the sum of all operators without a row."""
MAX_ROWS = 200
_MAX_KINDS = 20_000
"""Rows kept while counting: a loop over lengths may have another shape in every call."""
_MAX_SHAPES = 4
_MAX_TABLES = 200
_WRITE_ONLY = frozenset(
    {
        "copy_",
        "fill_",
        "zero_",
        "uniform_",
        "normal_",
        "bernoulli_",
        "random_",
        "exponential_",
        "_foreach_copy_",
        "_foreach_zero_",
    }
)
"""Operators in place that do not read what they overwrite."""
_UNMOVING = ("empty", "new_empty", "_unsafe_view")
"""How the names of operators begin that touch no memory, though they say they make a new tensor."""
_GATHERERS = frozenset({"embedding", "index_select", "gather", "index", "take"})
"""Operators that read as much of their first input as they write."""
_SCATTERERS = frozenset(
    {"index_put_", "_index_put_impl_", "index_add_", "index_copy_", "scatter_", "scatter_add_"}
)
"""Operators that touch as much of their first input as the others hold."""
_BAGS = frozenset({"_embedding_bag", "_embedding_bag_forward_only"})
"""Operators that read a row of their first input for every number of the second."""
_COMPOSED = frozenset({"linear", "matmul"})
"""Products without a formula: they are taken apart before they are seen, but of nested tensors."""
_NO_MEMORY = ("c10d", "_c10d_functional", "prim", "profiler")
"""Namespaces of what is exchanged between devices, and of what only asks or notes something."""


class _Kind(NamedTuple):
    """What is known of an operator before it is called."""

    name: str
    base: str
    """Without its namespace."""
    formula: Any
    written: frozenset[int | str]
    """Its arguments that it writes into, by position or name."""
    moves: bool
    """False of a view: it makes another tensor around the same memory."""


@cache
def _describe_operator(operator: Any) -> _Kind | None:
    """None of an operator of higher order."""
    from torch.utils.flop_counter import flop_registry

    packet = private.overload_packet(operator)
    if packet is None:
        return None
    name = str(packet)
    space, _, base = name.partition(".")
    moves = not (private.is_view(operator) or space in _NO_MEMORY or base.startswith(_UNMOVING))
    return _Kind(name, base, flop_registry.get(packet), private.written_arguments(operator), moves)


RowKey = tuple[str, str, str]
"""Operator, shapes, data type."""
_REST: RowKey = (OTHERS, "", "")


class _Row(NamedTuple):
    """The calls of one operator with inputs of one shape and type."""

    calls: int = 0
    flops: float | None = None
    bytes: int | None = 0
    """None as soon as those of any call are unknown."""

    def __add__(self, other: _Row) -> _Row:  # type: ignore[override]
        flops = [each for each in (self.flops, other.flops) if each is not None]
        moved = (
            None if None in (self.bytes, other.bytes) else (self.bytes or 0) + (other.bytes or 0)
        )
        return _Row(self.calls + other.calls, sum(flops) if flops else None, moved)


class OperatorCounter:
    """Counts what one step does; whatever fails while it counts ends the counting, never the step.

    ``seconds``: how long its own work may take altogether. ``why`` says why there is no table, if there is none.
    """

    def __init__(self, seconds: float) -> None:
        self.why: str | None = None
        self._left = seconds
        self._rows: dict[RowKey, _Row] = {}
        self._complete = True
        """Every operator's FLOPs are known, or none to speak of."""
        self._mode: Any = None
        self._passes: set[tuple[int, bool]] = set()
        """Backward passes in which something was computed, and whether autograd noted it."""

    @property
    def recomputes(self) -> bool | None:
        """Whether a backward pass computed a forward pass again, which autograd notes within one it does not.

        Of gradients of gradients it notes all. ``None`` if that was not seen.
        """
        if self.why is not None or not self._rows:
            return None
        return any((number, not is_noted) in self._passes for number, is_noted in self._passes)

    def begin(self) -> None:
        if private.has_dispatch_mode():
            self.why = "the script looks at every operator itself (a dispatch mode)"
            return
        if private.has_compiled():
            self.why = "the job is compiled (torch.compile), and compiled code runs no operators that could be counted"
            return
        if private.backward_pass() is not None:  # which takes the mode with it when it ends
            self.why = (
                "its optimizers step inside the backward pass, where operators cannot be counted"
            )
            return
        try:
            import torch.utils.flop_counter  # noqa: F401 - here, not within the step

            self._mode = _counting_mode(self)
            self._mode.__enter__()
        except Exception as error:
            self._mode = None
            self._give_up(error)

    def end(self) -> None:
        """Take the counter away."""
        if self._mode is not None:
            try:
                self._mode.__exit__(None, None, None)
            except RuntimeError as error:  # it ends where it did not begin
                self._give_up(error)
            self._mode = None

    def note_call(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator was called."""
        if self.why is not None:
            return
        began = time.perf_counter()
        try:
            self._count_call(operator, args, kwargs, out)
        except Exception as error:  # of a kind of tensor that Stash knows nothing about
            self._give_up(error)
        self._left -= time.perf_counter() - began
        if self._left < 0:
            self.why = "the step calls so many operators that counting them would take too long"

    def _give_up(self, error: Exception) -> None:
        self.why = (
            f"counting a step's operators failed ({type(error).__name__}: {str(error)[:200]})"
        )

    def _count_call(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        kind = _describe_operator(operator)
        if (number := private.backward_pass()) is not None:
            self._passes.add((number, sys.modules["torch"].is_grad_enabled()))
        self._complete = self._complete and kind is not None and kind.base not in _COMPOSED
        if kind is None or not (kind.moves or kind.formula):
            return
        flops: float | None = None
        moved: int | None = None
        if kind.formula is not None:
            try:
                flops = float(kind.formula(*args, **kwargs, out_val=out))
            except Exception:  # a formula's assertion, of shapes that it was not written for
                self._complete = False
        inputs = list(_iter_tensors((*args, *kwargs.values())))
        with suppress(Exception):  # of a tensor that is laid out in a way of its own
            moved = _bytes_moved(kind, args, kwargs, out) if kind.moves else 0
        key = (kind.name, _describe_shapes(inputs), _dtype(inputs or list(_iter_tensors((out,)))))
        if key not in self._rows and len(self._rows) >= _MAX_KINDS:
            key = _REST
        self._rows[key] = self._rows.get(key, _Row()) + _Row(1, flops, moved)

    @property
    def flops(self) -> float | None:
        """Of the whole step; None if not all of them could be counted, or there are none."""
        total = sum(row.flops or 0.0 for row in self._rows.values())
        return total if self._complete and self.why is None and total else None

    def table(self, most: int = MAX_ROWS) -> list[dict[str, Any]]:
        """Fields of ``records.Operator``, the heaviest first; with the row of the others they are the whole step."""
        if self.why is not None:
            return []
        flops = sum(row.flops or 0.0 for row in self._rows.values()) or 1.0
        moved = sum(row.bytes or 0 for row in self._rows.values()) or 1.0

        def weight(key: RowKey) -> tuple[bool, float]:
            """The rest comes last."""
            row = self._rows[key]
            share = max((row.flops or 0.0) / flops, (row.bytes or 0) / moved)
            return key != _REST, share

        keys = sorted(self._rows, key=weight, reverse=True)
        rows = {key: self._rows[key] for key in keys[: most - 1]}
        for key in keys[most - 1 :]:
            rows[_REST] = rows.get(_REST, _Row()) + self._rows[key]
        return [
            {
                "operator": name,
                "shapes": shapes,
                "dtype": dtype,
                "calls": row.calls,
                "flops": row.flops,
                "bytes": row.bytes,
            }
            for (name, shapes, dtype), row in rows.items()
        ]


def _counting_mode(counter: OperatorCounter) -> Any:
    plain = sys.modules["torch"].Tensor.__torch_dispatch__

    class Mode(private.dispatch_mode()):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(cls.__torch_dispatch__ is not plain for cls in types):
                return NotImplemented  # what such a class, as DTensor, calls instead is seen in its turn
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            counter.note_call(func, args, kwargs, out)
            return out

    return Mode()


def _bytes_moved(kind: _Kind, args: Any, kwargs: Any, out: Any) -> int:
    """Bytes read and written by one call."""
    given = dict([*enumerate(args), *kwargs.items()])
    written = [*_iter_tensors(value for name, value in given.items() if name in kind.written)]
    inputs = [*_iter_tensors(given.values())]
    changed = set(map(id, written))
    results = [*_iter_tensors((*written, out))]
    if kind.base in _WRITE_ONLY or "out" in kind.written:
        inputs = [tensor for tensor in inputs if id(tensor) not in changed]
    sizes = {id(tensor): _tensor_bytes(tensor) for tensor in (*inputs, *results)}
    if inputs and (most := _most_of_first(kind, inputs, results)) is not None:
        sizes[id(inputs[0])] = min(sizes[id(inputs[0])], most)
    return sum(sizes[id(tensor)] for tensor in (*inputs, *results))


def _most_of_first(kind: _Kind, inputs: list[Any], results: list[Any]) -> int | None:
    """Bytes of its first input that a call can touch, where it need not touch all of it."""
    table, others = inputs[0], inputs[1:]
    if kind.base in _GATHERERS:
        return sum(map(_tensor_bytes, results))
    if kind.base in _BAGS:
        return int(others[0].numel() * table.shape[-1] * table.element_size())
    sparse = [tensor for tensor in others if not private.is_strided(tensor)]
    if kind.base in _SCATTERERS or sparse:
        return sum(
            _tensor_bytes(tensor) for tensor in sparse or others if tensor.is_floating_point()
        )
    return None


def _tensor_bytes(tensor: Any) -> int:
    """In memory: numbers that an expanded tensor repeats are there once."""
    if not private.is_strided(tensor):
        return sum(map(_tensor_bytes, private.dense_parts(tensor)))
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= int(size) if stride or not size else 1
    return count * int(tensor.element_size())


def _iter_tensors(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors among an operator's arguments or results, lists of them included; each once."""
    seen: set[int] = set()
    ahead = list(values)[::-1]
    while ahead:
        value = ahead.pop()
        if isinstance(value, sys.modules["torch"].Tensor):
            if id(value) not in seen:
                seen.add(id(value))
                yield value
        elif isinstance(value, (list, tuple)):
            ahead += value[::-1]


def _describe_shapes(tensors: list[Any]) -> str:
    if len(tensors) > _MAX_SHAPES:
        return f"{len(tensors)} tensors of {sum(int(tensor.numel()) for tensor in tensors)} numbers"
    return " ".join("x".join(map(str, tensor.shape)) or "1" for tensor in tensors)


def _dtype(tensors: list[Any]) -> str:
    chosen = [tensor for tensor in tensors if tensor.is_floating_point()] or tensors
    return str(chosen[0].dtype).removeprefix("torch.") if chosen else ""


class LookupCounter:
    """Looks at embeddings from ``begin`` to ``end``; what fails is over with, and is no concern of the step."""

    def __init__(self) -> None:
        self._found: dict[Any, list[Any]] = {}
        """By module: the indices it was called with."""
        self._seconds = Counter[Any]()
        """Of its forward passes."""
        self._began = 0.0
        self._handles: list[Any] = []
        self.why: str | None = None
        """Why nothing is known."""

    def begin(self) -> None:
        modules, nn = sys.modules["torch.nn.modules.module"], sys.modules["torch"].nn
        tables = (nn.Embedding, nn.EmbeddingBag)

        def begin_lookup(module: Any, inputs: Any) -> None:
            if isinstance(module, tables):
                self._began = time.perf_counter()

        def end_lookup(module: Any, inputs: Any, outputs: Any) -> None:
            if isinstance(module, tables) and inputs and self.why is None:
                self._note_lookup(module, inputs[0], time.perf_counter() - self._began)

        self._handles = [
            modules.register_module_forward_pre_hook(private.not_compiled(begin_lookup)),
            modules.register_module_forward_hook(private.not_compiled(end_lookup)),
        ]

    def _note_lookup(self, module: Any, indices: Any, seconds: float) -> None:
        try:
            self._found.setdefault(module, []).append(indices.detach().reshape(-1))
            self._seconds[module] += seconds  # type: ignore[assignment]
        except Exception as error:  # of a kind of table that Stash knows nothing about
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.why = f"counting lookups in embedding tables failed ({type(error).__name__}: {str(error)[:200]})"

    def end(self) -> list[dict[str, Any]]:
        """Fields of ``EmbeddingTable``, of those with most lookups."""
        for handle in self._handles:
            handle.remove()
        found, self._found = self._found, {}
        if self.why is not None:
            return []
        try:
            tables = [_table(module, kept, self._seconds[module]) for module, kept in found.items()]
        except Exception as error:
            self._give_up(error)
            return []
        return sorted(tables, key=lambda table: -table["lookups"])[:_MAX_TABLES]


def _table(module: Any, kept: list[Any], seconds: float) -> dict[str, Any]:
    torch, weight = sys.modules["torch"], module.weight
    _, counts = torch.unique(torch.cat(kept), return_counts=True)
    lookups, rows, dimension = int(counts.sum()), int(weight.shape[0]), int(weight.shape[1])
    size = weight.element_size() * dimension
    # a sparse gradient has a row and its number (int64) for every lookup, until it is coalesced
    gradient = lookups * (size + 8) if module.sparse else rows * size
    return {
        "rows": rows,
        "dimension": dimension,
        "lookups": lookups,
        "distinct": len(counts),
        "hottest": int(counts.max()) / lookups if lookups else 0.0,
        "sparse": bool(module.sparse),
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
