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
from operator import attrgetter
from types import ModuleType
from typing import Any

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
_SHAPE = attrgetter("shape")


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
    names = list(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        slots = getattr(cls, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return [getattr(value, name, None) for name in names if name[:2] != "__"]


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


def rebuild_batch(batch: Any, change: Change, rebuild_container: Change | None = None) -> Any:
    """``batch`` with fresh containers and ``change`` applied to every tensor and array in it.

    Containers of other classes than Python's own are made again by ``rebuild_container``, or copied by their own
    methods (``copy.deepcopy`` asks them), which find the changed tensors already made. Raises what those raise.
    """
    if isinstance(batch, PLAIN):
        return batch
    if is_tensor(batch) or is_array(batch):
        return change(batch)
    if type(batch) in (list, tuple):
        return type(batch)(rebuild_batch(part, change, rebuild_container) for part in batch)
    if type(batch) is dict:
        parts = batch.items()
        return {key: rebuild_batch(part, change, rebuild_container) for key, part in parts}
    if rebuild_container is not None:
        return rebuild_container(batch)
    return copy.deepcopy(batch, {id(leaf): change(leaf) for leaf in list(iter_leaves(batch))})


def copy_containers(batch: Any) -> Any:
    """``batch`` with fresh containers around the same tensors and arrays; raises what a container's methods raise."""

    def copy_container(container: Any) -> Any:
        if callable(getattr(container, "clone", None)):
            # TensorDict, whose deep copies are never around the same tensors
            with contextlib.suppress(TypeError):
                return container.clone(recurse=False)
        return rebuild_batch(container, _keep_leaf)

    return rebuild_batch(batch, _keep_leaf, copy_container)


def _keep_leaf(leaf: Any) -> Any:
    return leaf


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

    return rebuild_batch(batch, move_leaf, move_container)


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
    return sum(map(_leaf_bytes, iter_leaves(batch)))


def count_array_bytes(batch: Any) -> int:
    """Bytes of the arrays in a batch, which a loader's worker pickles: only tensors go over in shared memory."""
    return sum(map(_leaf_bytes, filter(is_array, iter_leaves(batch))))


def _leaf_bytes(leaf: Any) -> int:
    if is_array(leaf) or is_strided(leaf):
        return int(leaf.nbytes)
    parts = dense_parts(leaf)
    if leaf.layout is sys.modules["torch"].jagged:
        parts.append(leaf.offsets())
    return sum(int(part.nbytes) for part in parts)


def copy_batch(batch: Any) -> Any:
    """A copy that stays valid: out of the workers' shared memory, pinned if the original was."""
    return _copy_or_keep(batch, rebuild_batch, _copy_leaf)


def rewrap_batch(batch: Any) -> Any:
    """Fresh containers around the same tensors and arrays."""
    return _copy_or_keep(batch, copy_containers)


def _copy_or_keep(batch: Any, copy_it: Callable[..., Any], *arguments: Any) -> Any:
    """A copy of a batch; what refuses to be copied is handed out as it is."""
    try:
        return copy_it(batch, *arguments)
    except Exception:  # of a class that Stash knows nothing about: the job goes on
        return batch


def _copy_leaf(leaf: Any) -> Any:
    if is_array(leaf):
        return leaf.copy()
    again = leaf.detach().clone()
    with contextlib.suppress(RuntimeError, NotImplementedError):  # of a layout that cannot be
        if leaf.is_pinned():
            return again.pin_memory()
    return again


def count_samples(batch: Any) -> int | None:
    """How many samples a batch holds, or None if that is unknown; asked in every step, so quick for most.

    Containers that count themselves are asked. Else each part votes for the lengths that it could mean, and the one
    that all agree on counts: a tensor's first dimension; a list's elements, as fields of one batch or as samples of
    it.
    """
    if type(batch) not in (list, tuple) or {*map(type, batch)} != {sys.modules["torch"].Tensor}:
        return _count_by_votes(batch)
    try:
        shapes = tuple(map(_SHAPE, batch))
    except RuntimeError:  # of a nested tensor, which has none
        return _count_by_votes(batch)
    if shapes not in _of_shapes:
        if len(_of_shapes) >= _MAX_SHAPES:
            _of_shapes.clear()
        _of_shapes[shapes] = _count_by_votes(batch)
    return _of_shapes[shapes]


def _count_by_votes(batch: Any) -> int | None:
    fields = isinstance(batch, (list, tuple)) and _own_count(batch) is None
    votes = _votes_of_fields(batch) if fields else _votes(batch, 0)
    return next(iter(votes)) if len(votes) == 1 else None


def _votes_of_fields(batch: list[Any] | tuple[Any, ...]) -> Votes:
    """Of a loader's list or tuple: nearly always the fields of a batch, but a collate function may leave a list."""
    kinds = [_shape(part) is not None or isinstance(part, (list, tuple)) for part in batch]
    if batch and not any(kinds):
        return _votes(batch, 1)
    if len(batch) > 2 and all(map(_is_picture, batch)):
        return SILENT
    return _intersect_votes(_votes(part, 1) for part in batch)


def _votes(part: Any, depth: int, single: bool = False) -> Votes:
    """The numbers of samples that a part could mean; none if it has no opinion. ``single``: it may be one sample."""
    shape = _shape(part)
    if shape is not None:
        return SILENT if not shape or (single and _is_picture(part)) else frozenset({int(shape[0])})
    if isinstance(part, PLAIN) or depth > _DEEP:
        return SILENT
    if (count := _own_count(part)) is not None:
        return frozenset({count})
    if isinstance(part, (list, tuple)):
        of_elements = _intersect_votes(_votes(element, depth + 1, single=True) for element in part)
        alike = len(set(map(type, part))) == 1
        return of_elements | {len(part)} if alike else of_elements
    named: list[Any] = [part.get(name) for name in _FIRST] if isinstance(part, Mapping) else []
    rows = [value for value in named if is_tensor(value) and value.dim() > 1]
    values = rows or list_contents(part)
    return _intersect_votes(_votes(value, depth + 1, single) for value in values)


def _own_count(part: Any) -> int | None:
    """The samples of a container that counts them itself."""
    running: Any = getattr(part, "batch_sizes", None) if isinstance(part, tuple) else None
    if is_tensor(running):  # a PackedSequence: at the first moment all of its sequences run
        return int(running[0])
    for name in _COUNTS:
        count = None
        with contextlib.suppress(Exception):  # a property of a class that Stash knows nothing about
            count = getattr(part, name, None)
        if isinstance(count, tuple):
            count = next(iter(count), None)
        if isinstance(count, int) and not isinstance(count, bool):
            return count
    return None


def _is_picture(part: Any) -> bool:
    shape = _shape(part) or ()
    return len(shape) == 3 and shape[0] in _PICTURE


def _shape(part: Any) -> tuple[Any, ...] | None:
    """Of a tensor or an array; of a nested one only how many it holds is known."""
    if is_tensor(part) and part.is_nested:
        return (part.size(0),)
    return tuple(part.shape) if is_tensor(part) or is_array(part) else None


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
        if not _is_sequences(found):
            return None
        mask: Any = batch.get("attention_mask")
        tells = is_tensor(mask) and mask.shape == found.shape and not mask.isnan().any()
        return int(found.numel()), int((mask != 0).sum()) if tells else None
    if type(batch) not in (list, tuple) or len(batch) != 2 or not all(map(_is_sequences, batch)):
        return None
    return (int(batch[0].numel()), None) if batch[0].shape == batch[1].shape else None


def _is_sequences(value: Any) -> bool:
    """Whether it is a tensor of whole numbers, samples by places."""
    if not is_tensor(value) or not is_strided(value):
        return False
    return value.dtype is sys.modules["torch"].int64 and value.ndim == 2
