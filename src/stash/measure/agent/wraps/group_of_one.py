"""What collectives do in a group of one: identity and replication, in the shapes that the caller expects. Pure.

Under scope *self* these stand in for the real ones, so that a rank can step while the others wait. Knows neither the
scope nor any process group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Done:
    """A finished ``Work``: what an asynchronous collective of a group of one returns."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Any:
        import torch

        future: Any = torch.futures.Future()
        future.set_result(self._result if isinstance(self._result, list) else [self._result])
        return future


class Call:
    """The bound arguments of a collective, with its group's size and this rank's place in it."""

    def __init__(self, arguments: Mapping[str, Any], rank: int, size: int) -> None:
        self.arguments, self.rank, self.size = arguments, rank, size

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def first(self, *names: str) -> Any:
        """The first argument that exists among ``names``: PyTorch has renamed some over time."""
        return next((self.arguments[n] for n in names if n in self.arguments), None)


def _identity(call: Call) -> Any:
    return call.first("tensor", "tensors", "object_list")


def _nothing(call: Call) -> Any:
    return None


def _fill_list(call: Call) -> Any:
    outputs, tensor = call["tensor_list"], call["tensor"]
    for output in outputs:
        output.copy_(tensor)
    return outputs


def _fill_lists(call: Call) -> Any:
    for outputs, tensor in zip(call["output_tensor_lists"], call["input_tensor_list"], strict=False):
        for output in outputs:
            output.copy_(tensor)
    return call["output_tensor_lists"]


def _replicate(call: Call) -> Any:
    output = call.first("output_tensor", "output")
    given = call.first("input_tensor", "input")
    output.view(call.size, -1).copy_(given.reshape(1, -1))
    return output


def _own_chunk(call: Call) -> Any:
    output = call["output"]
    given = call.first("input", "input_tensor")
    output.view(-1).copy_(given.reshape(call.size, -1)[call.rank])
    return output


def _own_of_list(call: Call) -> Any:
    call["output"].copy_(call["input_list"][call.rank])
    return call["output"]


def _gather(call: Call) -> Any:
    for output in call["gather_list"] or ():
        output.copy_(call["tensor"])
    return call["tensor"]


def _scatter(call: Call) -> Any:
    if call["scatter_list"]:
        call["tensor"].copy_(call["scatter_list"][call.rank])
    return call["tensor"]


def _exchange_lists(call: Call) -> Any:
    for output, given in zip(call["output_tensor_list"], call["input_tensor_list"], strict=False):
        if output.shape == given.shape:
            output.copy_(given)
    return call["output_tensor_list"]


def _exchange(call: Call) -> Any:
    output, given = call["output"], call["input"]
    if output.numel() == given.numel():
        output.view(-1).copy_(given.reshape(-1))
    return output


def _fill_objects(call: Call) -> None:
    outputs = call["object_list"] if call["object_list"] is not None else call["object_gather_list"]
    if outputs is not None:
        outputs[:] = [call["obj"]] * len(outputs)


def _scatter_objects(call: Call) -> None:
    given = call["scatter_object_input_list"]
    if given:
        call["scatter_object_output_list"][0] = given[call.rank]


LOCAL: Mapping[str, Callable[[Call], Any]] = {
    "all_reduce": _identity,
    "all_reduce_coalesced": _identity,
    "broadcast": _identity,
    "reduce": _identity,
    "barrier": _nothing,
    "monitored_barrier": _nothing,
    "all_gather": _fill_list,
    "all_gather_coalesced": _fill_lists,
    "all_gather_into_tensor": _replicate,
    "all_gather_single": _replicate,
    "_all_gather_base": _replicate,
    "reduce_scatter": _own_of_list,
    "reduce_scatter_tensor": _own_chunk,
    "reduce_scatter_single": _own_chunk,
    "_reduce_scatter_base": _own_chunk,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _exchange_lists,
    "all_to_all_single": _exchange,
    "all_gather_object": _fill_objects,
    "gather_object": _fill_objects,
    "broadcast_object_list": _nothing,
    "scatter_object_list": _scatter_objects,
    "send": _nothing,
    "recv": _nothing,
    "isend": _nothing,
    "irecv": _nothing,
    "batch_isend_irecv": _nothing,
}
"""By name; PyTorch has renamed some of them over time."""
ALWAYS_WORK = frozenset({"isend", "irecv"})
"""Asynchronous without being asked to be."""


def answer(name: str, call: Call) -> Any:
    """What the caller of the collective ``name`` gets back in a group of one."""
    if name == "batch_isend_irecv":
        return []
    result = LOCAL[name](call)
    return Done(result) if call["async_op"] or name in ALWAYS_WORK else None
