"""The loss of each task: from a model and one batch, as its reader collates it, to a scalar.

Knows how a batch is taken apart. Does not know which workload uses which loss: the registry does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[nn.Module, Sequence[Tensor]], Tensor]


def classification(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of (inputs, labels)."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


def question_answering(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of an answer's first and last token; batch is (ids, starts, ends)."""
    ids, starts, ends = batch
    loss: Tensor = model(input_ids=ids, start_positions=starts, end_positions=ends).loss
    return loss


def next_token(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of every next token; batch is (ids,)."""
    (ids,) = batch
    logits: Tensor = model(input_ids=ids).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def click_through(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Binary cross entropy of (counters, categories, clicked)."""
    dense, categories, clicked = batch
    return functional.binary_cross_entropy_with_logits(model(dense, categories), clicked)
