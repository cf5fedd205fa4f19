"""Batches of every kind that loaders yield, and what tests do with any of them."""

from __future__ import annotations

from typing import Any

import containers
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from stash.measure.agent.data import batches


def jagged_tensor() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


KINDS: dict[str, Any] = {
    "tensor": torch.ones(3),
    "array": np.ones((3, 2)),
    "sparse": torch.eye(4).to_sparse(),
    "rows": torch.eye(4).to_sparse_csr(),
    "jagged": jagged_tensor(),
    "nested": torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.ones(4, 3)], layout=torch.strided
    ),
    "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
    "named tuple": containers.Pair(torch.ones(3), [torch.ones(2)]),
    "dataclass": containers.Sample(torch.ones(3)),
    "frozen dataclass": containers.Frozen({"deeper": [torch.ones(3)]}),
    "slots": containers.Slotted(torch.ones(3), containers.Frozen(torch.ones(2))),
    "graphs": containers.Graphs(2, x=torch.ones(3), edges=torch.ones(2, 5)),
    "encoding": containers.Encoding(input_ids=torch.ones(2, 3)),
    "sized": containers.Sized({"x": torch.ones(2, 3)}, (2,)),
    "instances": [
        {"image": torch.ones(3, 4, 4), "instances": containers.Instances(boxes=torch.ones(2, 4))}
    ],
}
OWN_MEMORY = {"sparse", "rows", "jagged", "nested"}
"""Layouts of which a first element has no address."""


def parametrize_kinds(*but: str) -> Any:
    kinds = {name: batch for name, batch in KINDS.items() if name not in but}
    return pytest.mark.parametrize("batch", kinds.values(), ids=kinds)


def content(batch: Any) -> list[Any]:
    """Of every leaf, as something that compares."""
    nested = (
        (leaf, batches.is_tensor(leaf) and leaf.is_nested) for leaf in batches.iter_leaves(batch)
    )
    return [[str(part) for part in (leaf.unbind() if apart else [leaf])] for leaf, apart in nested]


def write(batch: Any) -> None:
    """Into the first leaf, in place."""
    leaf = next(batches.iter_leaves(batch))
    leaf *= 2
