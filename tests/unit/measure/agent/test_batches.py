"""Batches as values: fresh containers of every class, measured in bytes, and scripts that write into them."""

from __future__ import annotations

from typing import Any

import containers
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from stash.measure.agent.data import batches


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


KINDS: dict[str, Any] = {
    "tensor": torch.ones(3),
    "array": np.ones((3, 2)),
    "sparse": torch.eye(4).to_sparse(),
    "rows": torch.eye(4).to_sparse_csr(),
    "jagged": jagged(),
    "nested": torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.strided),
    "packed": pack_sequence([torch.ones(3), torch.ones(2)]),
    "named tuple": containers.Pair(torch.ones(3), [torch.ones(2)]),
    "dataclass": containers.Sample(torch.ones(3)),
    "frozen dataclass": containers.Frozen({"deeper": [torch.ones(3)]}),
    "slots": containers.Slotted(torch.ones(3), containers.Frozen(torch.ones(2))),
    "graphs": containers.Graphs(2, x=torch.ones(3), edges=torch.ones(2, 5)),
    "encoding": containers.Encoding(input_ids=torch.ones(2, 3)),
    "sized": containers.Sized({"x": torch.ones(2, 3)}, (2,)),
    "instances": [{"image": torch.ones(3, 4, 4), "instances": containers.Instances(boxes=torch.ones(2, 4))}],
}
OWN_MEMORY = {"sparse", "rows", "jagged", "nested"}
"""Layouts of which a first element has no address."""


def parametrised(*but: str) -> Any:
    kinds = {name: batch for name, batch in KINDS.items() if name not in but}
    return pytest.mark.parametrize("batch", kinds.values(), ids=kinds)


def content(batch: Any) -> list[Any]:
    """Of every leaf, as something that compares."""
    nested = ((leaf, batches.is_tensor(leaf) and leaf.is_nested) for leaf in batches.leaves(batch))
    return [[str(part) for part in (leaf.unbind() if apart else [leaf])] for leaf, apart in nested]


def write(batch: Any) -> None:
    """Into the first leaf, in place."""
    leaf = next(batches.leaves(batch))
    leaf *= 2


@parametrised()
def test_a_copy_is_equal_of_the_same_class_and_independent(batch: Any) -> None:
    before = content(batch)
    assert before
    again = batches.kept(batch)
    assert type(again) is type(batch)
    assert content(again) == before
    write(again)
    assert content(again) != before
    assert content(batch) == before


@parametrised("tensor", "array", *OWN_MEMORY)
def test_fresh_containers_are_around_the_same_tensors(batch: Any) -> None:
    again = batches.fresh(batch)
    assert again is not batch
    assert type(again) is type(batch)
    assert [id(leaf) for leaf in batches.leaves(again)] == [id(leaf) for leaf in batches.leaves(batch)]


def test_what_a_script_takes_out_of_its_batch_is_there_in_the_next() -> None:
    ring = batches.Ring()
    ring.offer(containers.Graphs(2, x=torch.ones(3), y=torch.ones(2)))
    for _ in range(3):
        batch = ring.next(False, None)
        del batch.x
        batch.z = 1
        assert set(batch._store) == {"y", "z"}
        ring.judge()


@parametrised()
def test_a_script_that_writes_into_its_batch_is_handed_clones_from_then_on(batch: Any) -> None:
    ring = batches.Ring(capacity=1)
    ring.offer(batch)
    write(ring.next(False, None))
    ring.judge()
    assert ring.written_to
    write(ring.next(False, None))
    assert content(ring.next(False, None)) == content(batch)


@parametrised()
def test_a_script_that_leaves_its_batches_alone_is_handed_the_same_ones(batch: Any) -> None:
    ring = batches.Ring(capacity=1)
    ring.offer(batch)
    ring.next(False, None)
    ring.judge()
    assert not ring.written_to
    first, second = (list(batches.leaves(ring.next(False, None))) for _ in range(2))
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_asking_for_gradients_of_a_batch_counts_as_writing() -> None:
    ring = batches.Ring(capacity=1)
    ring.offer(torch.ones(3))
    ring.next(False, None).requires_grad_()
    ring.judge()
    assert not ring.next(False, None).requires_grad


def test_the_ring_keeps_several_batches_within_its_memory() -> None:
    ring = batches.Ring(capacity=4, limit_bytes=3 * 400)
    for _ in range(9):
        ring.offer(torch.zeros(100))
    assert len(ring) == 3


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("tensor", 12), ("array", 48), ("graphs", 12 + 40), ("packed", 20 + 24), ("sized", 24),
        ("sparse", 2 * 4 * 8 + 4 * 4), ("jagged", 6 * 3 * 4 + 3 * 8),
    ],
)  # fmt: skip
def test_bytes_are_those_of_all_that_is_inside(kind: str, size: int) -> None:
    assert batches.size(KINDS[kind]) == size


def test_a_tensor_that_is_there_twice_counts_once() -> None:
    tensor = torch.ones(4)
    assert batches.size([tensor, {"again": tensor}]) == 16


# Another device -------------------------------------------------------------------------------------------


@parametrised("array", "nested")
def test_a_batch_is_moved_by_its_own_method_and_the_original_stays(batch: Any) -> None:
    there = batches.moved(batch, "meta")
    assert type(there) is type(batch)
    assert {"meta"} <= {tensor.device.type for tensor in batches.tensors(there)}
    assert {tensor.device.type for tensor in batches.tensors(batch)} == {"cpu"}
    assert batches.why_immovable(batch, "meta") is None


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (["a", "b"], "no tensors were found in the loader's batches (list)"),
        (
            (np.ones(3), torch.ones(3)),
            "batches (tuple) hold numpy arrays, which the script itself makes into tensors",
        ),
        (containers.Stubborn(torch.ones(2)), "batches (Stubborn) cannot be put on meta: TypeError: not to be copied"),
    ],
)
def test_what_cannot_be_moved_says_why(batch: Any, why: str) -> None:
    assert batches.why_immovable(batch, "meta") == why


def test_what_refuses_to_be_copied_is_replayed_as_it_is() -> None:
    ring, batch = batches.Ring(), containers.Stubborn(torch.ones(2))
    ring.offer(batch)
    assert ring.next(False, None) is batch


# Any nesting ----------------------------------------------------------------------------------------------

leaf = st.one_of(
    st.lists(st.integers(-9, 9), max_size=3).map(lambda values: torch.tensor(values, dtype=torch.float32)),
    st.lists(st.integers(-9, 9), max_size=3).map(lambda values: np.array(values, dtype=np.int64)),
    st.integers(),
    st.text(max_size=3),
    st.none(),
)
nested = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(containers.Encoding),
        inner.map(containers.Sample),
        inner.map(containers.Frozen),
        st.tuples(inner, inner).map(lambda both: containers.Slotted(*both)),
        st.tuples(inner, inner).map(lambda both: containers.Pair(*both)),
    ),
    max_leaves=8,
)


def described(value: Any) -> Any:
    """The whole of a batch, containers and leaves, as something that compares."""
    if batches.is_tensor(value) or batches.is_array(value):
        return type(value).__name__, value.tolist()
    if isinstance(value, batches.PLAIN):
        return value
    keys = tuple(value) if hasattr(value, "keys") else ()
    return type(value).__name__, keys, tuple(described(part) for part in batches.held(value))


@given(nested)
def test_copies_of_any_nesting_are_equal_and_share_nothing(batch: Any) -> None:
    again = batches.kept(batch)
    assert described(again) == described(batch)
    originals = {id(found) for found in batches.leaves(batch)}
    assert not [found for found in batches.leaves(again) if id(found) in originals]
    assert batches.size(again) == batches.size(batch)


@given(nested)
def test_fresh_containers_of_any_nesting_share_every_leaf(batch: Any) -> None:
    again = batches.fresh(batch)
    assert described(again) == described(batch)
    assert [id(found) for found in batches.leaves(again)] == [id(found) for found in batches.leaves(batch)]
