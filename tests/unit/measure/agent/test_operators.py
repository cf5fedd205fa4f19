"""FLOPs and bytes of one step's operators, beside hand-worked ones and PyTorch's own counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from stash.measure.agent import private
from stash.measure.agent.runner.operators import OTHERS, OperatorCounter

FLOAT = 4
"""Bytes."""
FOREVER = 1e9
Step = Callable[[], Any]


def counted(step: Step, seconds: float = FOREVER) -> OperatorCounter:
    counter = OperatorCounter(seconds)
    counter.begin()
    try:
        step()
    finally:
        counter.end()
    return counter


def rows(counter: OperatorCounter) -> dict[str, dict[str, Any]]:
    """By operator; each is called with one shape."""
    table = counter.table()
    found = {row["operator"].removeprefix("aten."): row for row in table}
    assert len(found) == len(table)
    return found


def test_a_linear_layer_forward_and_backward() -> None:
    layer, x, gradient = nn.Linear(8, 4), torch.randn(16, 8), torch.randn(16, 4)
    found = rows(counted(lambda: layer(x).backward(gradient)))
    forward, of_weight, of_bias = found["addmm"], found["mm"], found["sum"]
    assert (forward["flops"], forward["bytes"]) == (
        2 * 16 * 8 * 4,
        (4 + 16 * 8 + 8 * 4 + 16 * 4) * FLOAT,
    )
    assert (of_weight["flops"], of_weight["bytes"]) == (
        2 * 4 * 16 * 8,
        (4 * 16 + 16 * 8 + 4 * 8) * FLOAT,
    )
    assert (of_bias["flops"], of_bias["bytes"]) == (None, (16 * 4 + 4) * FLOAT)
    assert (forward["shapes"], forward["dtype"], forward["calls"]) == ("4 16x8 8x4", "float32", 1)
    assert found.keys() == {"addmm", "mm", "sum"}  # transposing moves nothing


def test_a_convolution_forward_and_backward() -> None:
    layer, x = nn.Conv2d(3, 8, 3, bias=False), torch.randn(2, 3, 10, 10)
    image, weight, out = 2 * 3 * 10 * 10, 8 * 3 * 3 * 3, 2 * 8 * 8 * 8
    gradient = torch.randn(2, 8, 8, 8)
    found = rows(counted(lambda: layer(x).backward(gradient)))
    forward, backward = found["convolution"], found["convolution_backward"]
    assert (forward["flops"], forward["bytes"]) == (
        2 * out * 3 * 3 * 3,
        (image + weight + out) * FLOAT,
    )
    assert backward["flops"] == 2 * out * 3 * 3 * 3  # the weight's gradient; the image needs none
    assert backward["bytes"] == (out + image + weight + weight) * FLOAT


@pytest.mark.parametrize(
    ("step", "bytes_moved"),
    [
        (lambda x, y: x.add_(y), 3 * 100 * FLOAT),
        (lambda x, y: x.copy_(y), 2 * 100 * FLOAT),
        (lambda x, y: x.zero_(), 100 * FLOAT),
        (lambda x, y: torch.add(x, y, out=x), 2 * 100 * FLOAT),
        (lambda x, y: x.view(10, 10).t()[2:4], 0),
        (lambda x, y: torch.empty_like(x), 0),
        (lambda x, y: x[:1].expand(100).add(y), (1 + 2 * 100) * FLOAT),
        (lambda x, y: torch._foreach_add_([x], [y]), 3 * 100 * FLOAT),
        (lambda x, y: x.half(), 100 * (FLOAT + 2)),
    ],
)
def test_bytes_are_those_read_once_and_written_once(step: Any, bytes_moved: int) -> None:
    x, y = torch.randn(100), torch.randn(100)
    found = counted(lambda: step(x, y)).table()
    assert sum(row["bytes"] for row in found) == bytes_moved


@pytest.mark.parametrize("sparse", [False, True])
def test_of_a_table_only_what_is_looked_up_counts(sparse: bool) -> None:
    table = nn.Embedding(100_000, 16, sparse=sparse)
    found = rows(counted(lambda: table(torch.arange(32))))
    assert found["embedding"]["bytes"] == 2 * 32 * 16 * FLOAT + 32 * 8


def test_a_sparse_update_touches_as_much_as_its_gradient_holds() -> None:
    table = nn.EmbeddingBag(100_000, 16, mode="sum", sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    table(torch.arange(32), torch.arange(0, 32, 4)).sum().backward()
    found = rows(counted(optimizer.step))
    assert found["add_"]["bytes"] < 5 * (32 * 16 * FLOAT + 32 * 8)


def attention() -> Step:
    layer, x = nn.TransformerEncoderLayer(32, 4, batch_first=True), torch.randn(2, 5, 32)
    return lambda: layer(x).sum().backward()


def recomputing() -> Step:
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = torch.randn(4, 64, requires_grad=True)
    return lambda: checkpoint(layers, x, use_reentrant=True).sum().backward()


def mixed() -> Step:
    layer = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 10, 10).to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer(x).sum()
        loss.backward()

    return step


def mapped() -> Step:
    weight, x = torch.randn(5, 3), torch.randn(7, 4, 5)
    return lambda: torch.func.vmap(torch.func.grad(lambda w, x: (x @ w).sum()), (None, 0))(
        weight, x
    )


@pytest.mark.parametrize("kind", [attention, recomputing, mixed, mapped])
def test_flops_are_those_of_pytorchs_own_counter(kind: Callable[[], Step]) -> None:
    step = kind()
    theirs = FlopCounterMode(display=False)
    with theirs:
        step()
    ours = counted(step)
    assert ours.flops == theirs.get_total_flops()
    assert ours.flops == sum(row["flops"] or 0 for row in ours.table())


def test_a_step_without_any_has_no_known_flops() -> None:
    assert counted(lambda: torch.ones(3).add(1)).flops is None


def test_rows_beyond_the_table_are_summed_in_one() -> None:
    x = [torch.randn(n) for n in range(1, 30)]
    counter = counted(lambda: [each.add(1) for each in x])
    whole, short = counter.table(), counter.table(most=10)
    assert len(whole) == 29
    assert [row["operator"] for row in short] == ["aten.add"] * 9 + [OTHERS]
    assert short[0]["shapes"] == "29"
    for field in ("calls", "bytes"):
        assert sum(row[field] for row in short) == sum(row[field] for row in whole)
    assert short[-1]["flops"] is None  # additions are not counted


def test_counting_leaves_results_and_random_numbers_alone() -> None:
    layer, dropout = nn.Linear(8, 4), nn.Dropout()

    def step() -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer.zero_grad()
        out = dropout(layer(torch.randn(16, 8)))
        out.sum().backward()
        return [out.detach(), layer.weight.grad.clone(), torch.get_rng_state()]

    alone, seen = step(), []
    counted(lambda: seen.extend(step()))
    assert all(torch.equal(one, other) for one, other in zip(alone, seen, strict=True))


def double_backward(layer: Any, x: torch.Tensor) -> None:
    (gradient,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    (gradient.square().sum() + layer(x).sum()).backward()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda layer, x: layer(x).sum().backward(), False),
        (lambda layer, x: checkpoint(layer, x, use_reentrant=False).sum().backward(), True),
        (lambda layer, x: checkpoint(layer, x, use_reentrant=True).sum().backward(), True),
        (double_backward, False),
        (lambda layer, x: layer(x), False),
    ],
    ids=["once", "checkpoint", "reentrant", "gradients of gradients", "no backward pass"],
)
def test_a_forward_pass_within_a_backward_pass_is_seen(step: Any, expected: bool) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    x = torch.randn(4, 8, requires_grad=True)
    assert counted(lambda: step(layer, x)).recomputes is expected


def test_what_fails_while_counting_ends_the_counting_and_not_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(operator: object) -> bool:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(private, "is_view", fail)
    results: list[torch.Tensor] = []
    counter = counted(lambda: results.append(torch.ones(2).cumprod(0)))
    assert results[0].tolist() == [1.0, 1.0]
    assert counter.table() == []
    assert counter.why == "counting a step's operators failed (RuntimeError: no such operator)"


def test_a_formula_that_does_not_fit_leaves_the_total_unknown_and_the_rows_known() -> None:
    counter = OperatorCounter(FOREVER)
    operator = torch.ops.aten.mm.default
    counter.note_call(operator, (torch.ones(2, 3), torch.ones(4, 5)), {}, torch.ones(2, 5))
    assert counter.flops is None
    assert counter.table()[0]["flops"] is None
    assert counter.table()[0]["calls"] == 1


def test_bytes_that_cannot_be_told_leave_flops_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensor: object) -> bool:
        raise RuntimeError("no layout")

    monkeypatch.setattr(private, "is_strided", fail)
    counter = counted(lambda: torch.ones(2, 3) @ torch.ones(3, 4))
    assert counter.flops == 2 * 2 * 3 * 4
    assert {row["bytes"] for row in counter.table()} == {None}


def test_counting_takes_no_longer_than_it_may() -> None:
    counter = counted(lambda: [torch.ones(3).add(1) for _ in range(5)], seconds=0.0)
    assert counter.table() == []
    assert "take too long" in str(counter.why)


def test_compiled_code_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "has_compiled", lambda: True)
    counter = counted(lambda: torch.ones(3).add(1))
    assert counter.table() == []
    assert "torch.compile" in str(counter.why)


def test_a_script_that_looks_at_operators_itself_is_left_alone() -> None:
    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Theirs():
        counter = counted(lambda: torch.ones(3).add(1))
    assert "a dispatch mode" in str(counter.why)


def test_what_a_tensor_of_another_class_calls_is_what_counts() -> None:
    nested = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged)
    counter = counted(nested.sin)
    assert [(row["shapes"], row["bytes"]) for row in counter.table()] == [
        ("8x4", 2 * 8 * 4 * FLOAT)
    ]
