"""Functional collectives: those of DTensor, and of graphs that torch.compile made.

They never pass ``torch.distributed``'s functions. A kernel in front of the dispatcher's own sees them, in compiled
graphs too. They are counted and timed like others; under which scope they run cannot be chosen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.wraps import waits
from stash.measure.agent.wraps.scope import payload, scope

FUNCTIONAL = (
    "all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_", "all_gather_into_tensor",
    "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "all_to_all_single", "broadcast", "broadcast_",
)  # fmt: skip
"""Operators of ``_c10d_functional``; PyTorch versions lack some."""


def wrap_functional(module: ModuleType) -> None:
    """Put a kernel in front of functional collectives and of waits for them."""
    for name in FUNCTIONAL:
        private.before_operator("_c10d_functional", name, functools.partial(_functional, name.rstrip("_")))
    private.before_operator("_c10d_functional", "wait_tensor", _wait_tensor)


def _functional(name: str, call: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
    if not script.active() or not _real(arguments[0]):
        return call()
    key = (next((each for each in reversed(arguments) if isinstance(each, str)), ""), name)
    size = payload(arguments) * _growth(name, arguments)
    if name == "all_to_all_single" and len(arguments) > 2 and arguments[1] and arguments[2]:
        waits.ledger.dispatches(key[0], list(arguments[2]), list(arguments[1]))
    result = waits.stamped(key, size, call)
    scope.issued[name] += 1
    scope.sent[name] += size
    if not waits.ledger.counts:
        return result
    for each in result if isinstance(result, (list, tuple)) else (result,):
        waits.ledger.goes_on(each.data_ptr(), key)
    return result


def _growth(name: str, arguments: tuple[Any, ...]) -> int:
    """How many times its argument a gather's result holds, which is the payload: its group's size, as it is told."""
    sizes = (each for each in arguments if type(each) is int)
    return next(sizes, 1) if name.startswith("all_gather") else 1


def _wait_tensor(call: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
    if not waits.ledger.counts or not _real(arguments[0]):
        return call()
    return waits.waiting(waits.ledger.waited_for(arguments[0].data_ptr()), call)


def _real(value: Any) -> bool:
    """Whether a graph is run and not traced."""
    torch = sys.modules["torch"]
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    cuda = torch.cuda
    captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
    return type(first) in (torch.Tensor, torch.nn.Parameter) and not captured
