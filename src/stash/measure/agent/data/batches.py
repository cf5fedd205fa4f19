"""Batches as values: the tensors and arrays inside them, their size, safe copies, and how many samples they hold.

A batch is whatever a loader yields: tensors and arrays in tuples, lists, mappings, or objects of any class, at any
depth. Samples are counted by what a batch's parts agree on; None rather than a guess. Which copies are replayed is
``ring``'s to say.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.private import dense_parts, is_strided

PLAIN = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)
"""What holds nothing."""
Change = Callable[[Any], Any]
_COUNTS = ("num_graphs", "batch_size")
"""Attributes by which containers say so: PyG's batches, TensorDict."""
_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features")
"""Keys of Hugging Face's batches that have a row a sample, whatever else is beside them."""
_PICTURE = (1, 3, 4)
"""Channels of a single picture: in a sample, a first of three dimensions that is one of these says nothing."""
_DEEP = 8

Votes = frozenset[int]
SILENT: Votes = frozenset()
_of_shapes: dict[tuple[Any, ...], int | None] = {}
"""What was found of plain lists and tuples of tensors, whose votes depend on nothing but their shapes."""
_MAX_SHAPES = 4096


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of any layout or class."""
    return isinstance(value, sys.modules["torch"].Tensor)


def is_in_worker() -> bool:
    """Whether this process is a loader's worker."""
    workers = sys.modules.get("torch.utils.data")
    return workers is not None and workers.get_worker_info() is not None


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy, which holds numbers (arrays of objects are passed over)."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject


def list_contents(value: Any) -> Iterable[Any]:
    """What a container of any class holds: elements, values, attributes."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    slots = (getattr(cls, "__slots__", ()) for cls in type(value).__mro__)
    names = [
        name
        for own in slots
        for name in ((own,) if isinstance(own, str) else own)
        if name[:2] != "__"
    ]
    return [
        *getattr(value, "__dict__", {}).values(),
        *(getattr(value, name, None) for name in names),
    ]


def iter_leaves(batch: Any) -> Iterator[Any]:
    """The tensors and arrays inside a batch, each once, in order."""
    seen: set[int] = set()
    ahead = [batch]
    while ahead:
        value = ahead.pop()
        if isinstance(value, PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if is_tensor(value) or is_array(value):
            yield value
        else:
            ahead += reversed(list(list_contents(value)))


def iter_tensors(batch: Any) -> Iterator[Any]:
    """The tensors inside a batch, each once, in order."""
    return filter(is_tensor, iter_leaves(batch))


def rebuild_batch(batch: Any, change: Change) -> Any:
    """``batch`` with fresh containers and ``change`` applied to every tensor and array in it.

    Containers of other classes than Python's own are copied by their own methods (``copy.deepcopy`` asks them), which
    find the changed tensors already made. Raises what those methods raise.
    """

    def copy_container(container: Any) -> Any:
        return copy.deepcopy(
            container, {id(leaf): change(leaf) for leaf in list(iter_leaves(container))}
        )

    return _map_batch(batch, change, copy_container)


def copy_containers(batch: Any) -> Any:
    """``batch`` with fresh containers around the same tensors and arrays; raises what a container's methods raise."""

    def copy_container(container: Any) -> Any:
        if callable(getattr(container, "clone", None)):
            with contextlib.suppress(
                TypeError
            ):  # TensorDict, whose deep copies are never around the same tensors
                return container.clone(recurse=False)
        return rebuild_batch(container, _keep_leaf)

    return _map_batch(batch, _keep_leaf, copy_container)


def move_batch(batch: Any, device: Any) -> Any:
    """A copy with its tensors on ``device``, by a container's own ``to`` if it has one; raises what that raises."""

    def move_leaf(leaf: Any) -> Any:
        return leaf.to(device) if is_tensor(leaf) else leaf

    def move_container(container: Any) -> Any:
        if not callable(getattr(container, "to", None)):
            return rebuild_batch(container, move_leaf)
        # for some change themselves, and return themselves or nothing
        own = copy_containers(container)
        result = own.to(device)
        return own if result is None else result

    return _map_batch(batch, move_leaf, move_container)


def _map_batch(batch: Any, of_leaf: Change, of_container: Change) -> Any:
    """Python's own containers made again, and what they hold changed: leaves, and containers of other classes."""
    if isinstance(batch, PLAIN):
        return batch
    if is_tensor(batch) or is_array(batch):
        return of_leaf(batch)
    if type(batch) in (list, tuple):
        return type(batch)(_map_batch(part, of_leaf, of_container) for part in batch)
    if type(batch) is dict:
        return {key: _map_batch(value, of_leaf, of_container) for key, value in batch.items()}
    return of_container(batch)


def list_devices(batch: Any) -> list[Any]:
    """The accelerators that tensors of a batch are on, each once; none of a batch in host memory."""
    return list(
        dict.fromkeys(
            tensor.device for tensor in iter_tensors(batch) if tensor.device.type != "cpu"
        )
    )


def why_immovable(batch: Any, device: Any) -> str | None:
    """Why keeping a batch on ``device`` would not show what copying it there takes; None if it would."""
    kind = type(batch).__name__
    if there_already := list_devices(batch):
        return (
            f"batches ({kind}) arrive on {there_already[0]}: the loader's collate function or data set copies them, "
            "so copying is part of making them; copy them in the training loop to tell the two apart"
        )
    if any(is_array(leaf) for leaf in iter_leaves(batch)):
        return f"batches ({kind}) hold numpy arrays, which the script itself makes into tensors"
    try:
        there = move_batch(batch, device)
    except Exception as error:  # of a class that Stash knows nothing about
        return f"batches ({kind}) cannot be put on {device}: {type(error).__name__}: {error}"
    if not any(
        tensor.device.type == sys.modules["torch"].device(device).type
        for tensor in iter_tensors(there)
    ):
        return f"no tensors were found in the loader's batches ({kind})"
    return None


def count_bytes(batch: Any) -> int:
    """Bytes of the tensors and arrays in a batch."""
    return sum(_leaf_bytes(leaf) for leaf in iter_leaves(batch))


def _leaf_bytes(leaf: Any) -> int:
    if is_array(leaf):
        return int(leaf.nbytes)
    return sum(int(part.numel() * part.element_size()) for part in _list_dense(leaf))


def _list_dense(tensor: Any) -> list[Any]:
    """The ordinary tensors that a sparse or nested one is made of."""
    torch = sys.modules["torch"]
    if tensor.layout is torch.strided:
        return list(tensor.unbind()) if tensor.is_nested else [tensor]
    return (
        [tensor.values(), tensor.offsets()]
        if tensor.layout is torch.jagged
        else dense_parts(tensor)
    )


def copy_batch(batch: Any) -> Any:
    """A copy that stays valid: out of the workers' shared memory, pinned if the original was."""
    return _copy_or_same(batch, lambda: rebuild_batch(batch, _copy_leaf))


def rewrap_batch(batch: Any) -> Any:
    """Fresh containers around the same tensors and arrays."""
    return _copy_or_same(batch, lambda: copy_containers(batch))


def _copy_or_same(batch: Any, copied: Callable[[], Any]) -> Any:
    """A copy of a batch; what refuses to be copied is handed out as it is."""
    try:
        return copied()
    except (
        Exception
    ):  # of a class that Stash knows nothing about; a replay must not end the user's job
        return batch


def _keep_leaf(leaf: Any) -> Any:
    return leaf


def _copy_leaf(leaf: Any) -> Any:
    if is_array(leaf):
        return leaf.copy()
    again = leaf.detach().clone()
    try:
        pinned = bool(leaf.is_pinned())
    except (RuntimeError, NotImplementedError):  # of a layout that cannot be
        pinned = False
    return again.pin_memory() if pinned else again


def count_samples(batch: Any) -> int | None:
    """How many samples a batch holds, or None if that is unknown; asked in every step, so quick for most.

    Containers that count themselves are asked. Else each part votes for the lengths that it could mean, and the one
    that all agree on counts: a tensor's first dimension; a list's elements, as fields of one batch or as samples of
    it.
    """
    if type(batch) not in (list, tuple) or not all(map(is_tensor, batch)):
        return _count_by_votes(batch)
    try:
        shapes = tuple([part.shape for part in batch])
        return _of_shapes[shapes]
    except RuntimeError:  # of a nested tensor, which has none
        return _count_by_votes(batch)
    except KeyError:
        if len(_of_shapes) >= _MAX_SHAPES:
            _of_shapes.clear()
        return _of_shapes.setdefault(shapes, _count_by_votes(batch))


def _count_by_votes(batch: Any) -> int | None:
    fields = isinstance(batch, (list, tuple)) and _own_count(batch) is None
    votes = _votes_of_fields(batch) if fields else _votes(batch, 0)
    return next(iter(votes)) if len(votes) == 1 else None


def _votes_of_fields(batch: list[Any] | tuple[Any, ...]) -> Votes:
    """Of a loader's list or tuple: nearly always the fields of a batch, but a collate function may leave a list."""
    if batch and not any(
        is_tensor(part) or is_array(part) or isinstance(part, (list, tuple)) for part in batch
    ):
        return _votes(batch, 1)
    if len(batch) > 2 and all(map(_is_picture, batch)):
        return SILENT
    return _intersect_votes(_votes(part, 1) for part in batch)


def _votes(part: Any, depth: int, single: bool = False) -> Votes:
    """The numbers of samples that a part could mean; none if it has no opinion. ``single``: it may be one sample."""
    if is_tensor(part) or is_array(part):
        shape = _shape(part)
        return SILENT if not shape or (single and _is_picture(part)) else frozenset({int(shape[0])})
    if isinstance(part, PLAIN) or depth > _DEEP:
        return SILENT
    if (count := _own_count(part)) is not None:
        return frozenset({count})
    if isinstance(part, Mapping):
        rows = [
            part[name]
            for name in _FIRST
            if name in part and is_tensor(part[name]) and part[name].dim() > 1
        ]
        return _intersect_votes(_votes(value, depth + 1, single) for value in rows or part.values())
    if isinstance(part, (list, tuple)):
        of_elements = _intersect_votes(_votes(element, depth + 1, single=True) for element in part)
        alike = len({type(element) for element in part}) == 1
        return of_elements | {len(part)} if alike else of_elements
    return _intersect_votes(_votes(value, depth + 1, single) for value in list_contents(part))


def _own_count(part: Any) -> int | None:
    """The samples of a container that counts them itself."""
    running: Any = getattr(part, "batch_sizes", None) if isinstance(part, tuple) else None
    if is_tensor(running):  # a PackedSequence: at the first moment all of its sequences run
        return int(running[0])
    for name in _COUNTS:
        try:
            count = getattr(part, name, None)
        except Exception:  # a property of a class that Stash knows nothing about
            continue
        if isinstance(count, tuple):
            count = count[0] if count else None
        if isinstance(count, int) and not isinstance(count, bool):
            return count
    return None


def _is_picture(part: Any) -> bool:
    return (
        (is_tensor(part) or is_array(part))
        and len(shape := _shape(part)) == 3
        and shape[0] in _PICTURE
    )


def _shape(part: Any) -> tuple[Any, ...]:
    """Of a tensor or an array; of a nested one only how many it holds is known."""
    return (part.size(0),) if is_tensor(part) and part.is_nested else tuple(part.shape)


def _intersect_votes(votes: Iterable[Votes]) -> Votes:
    """What all that have an opinion could mean; a single row beside others is shared by them."""
    opinions = [each for each in votes if each]
    several = [each for each in opinions if each != {1}] or opinions
    return frozenset.intersection(*several) if several else SILENT


_TOKENS = ("input_ids", "tokens")
"""Keys under which batches hold the tokens of sequences."""


def count_tokens(batch: Any) -> tuple[int, int | None] | None:
    """Tokens of a batch, and how many of them its mask keeps (None without one); None if it is not known to hold any.

    They are known by their key, or by a batch of nothing but two equal matrices of int64: inputs and targets.
    """
    if isinstance(batch, Mapping):
        found: Any = next((batch[key] for key in _TOKENS if key in batch), None)
        mask: Any = batch.get("attention_mask")
        unclear = next(
            (what for what, part in (("tokens", found), ("padding", mask)) if _holds_nan(part)),
            None,
        )
        if unclear is not None:
            script.note(f"a batch holds NaN where {unclear} would be counted: {unclear} unknown")
        if not _is_sequences(found):
            return None
        tells = is_tensor(mask) and mask.shape == found.shape and unclear is None
        return int(found.numel()), int((mask != 0).sum()) if tells else None
    if type(batch) not in (list, tuple) or len(batch) != 2 or not all(map(_is_sequences, batch)):
        return None
    return (int(batch[0].numel()), None) if batch[0].shape == batch[1].shape else None


def _holds_nan(value: Any) -> bool:
    return is_tensor(value) and is_strided(value) and bool(value.isnan().any())


def _is_sequences(value: Any) -> bool:
    """Whether it is a tensor of whole numbers, samples by places."""
    return (
        is_tensor(value)
        and value.dtype is sys.modules["torch"].int64
        and value.ndim == 2
        and is_strided(value)
    )
