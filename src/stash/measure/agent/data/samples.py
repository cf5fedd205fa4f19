"""How many samples a batch holds, by what its parts agree on; None rather than a guess.

Containers that count themselves are asked. Else each part votes for the lengths that it could mean, and the one that
all agree on counts: a tensor's first dimension; a list's elements, as fields of one batch or as samples of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stash.measure.agent.data.batches import PLAIN, held, is_array, is_tensor

_COUNTS = ("num_graphs", "batch_size")
"""Attributes by which containers tell: PyG's batches, TensorDict."""
_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features")
"""Keys of Hugging Face's batches that have a row a sample, whatever else is beside them."""
_PICTURE = (1, 3, 4)
"""Channels of a single picture: in a sample, a first of three dimensions that is one of these says nothing."""
_DEEP = 8

Votes = frozenset[int]
SILENT: Votes = frozenset()
_of_shapes: dict[tuple[Any, ...], int | None] = {}
"""What was found of plain lists and tuples of tensors, whose votes depend on nothing but their shapes."""
_MOST_SHAPES = 4096


def samples(batch: Any) -> int | None:
    """How many samples a batch holds, or None if that cannot be told; asked in every step, so quick for most."""
    if type(batch) not in (list, tuple) or not all(map(is_tensor, batch)):
        return _counted(batch)
    shapes = tuple([part.shape for part in batch])
    try:
        return _of_shapes[shapes]
    except KeyError:
        if len(_of_shapes) >= _MOST_SHAPES:
            _of_shapes.clear()
        return _of_shapes.setdefault(shapes, _counted(batch))


def _counted(batch: Any) -> int | None:
    fields = isinstance(batch, (list, tuple)) and _told(batch) is None
    return _only(_votes_of_fields(batch) if fields else _votes(batch, 0))


def _only(votes: Votes) -> int | None:
    return next(iter(votes)) if len(votes) == 1 else None


def _votes_of_fields(batch: list[Any] | tuple[Any, ...]) -> Votes:
    """Of a loader's list or tuple: nearly always the fields of a batch, but a collate function may leave a list."""
    if batch and not any(map(_is_ordinary, batch)):
        return _votes(batch, 1)
    if len(batch) > 2 and all(map(_is_picture, batch)):
        return SILENT
    return _agreed(_votes(part, 1) for part in batch)


def _is_ordinary(part: Any) -> bool:
    return is_tensor(part) or is_array(part) or isinstance(part, (list, tuple))


def _votes(part: Any, depth: int, single: bool = False) -> Votes:
    """The numbers of samples that a part could mean; none if it has no opinion. ``single``: it may be one sample."""
    if is_tensor(part) or is_array(part):
        silent = not len(part.shape) or (single and _is_picture(part))
        return SILENT if silent else frozenset({int(part.shape[0])})
    if isinstance(part, PLAIN) or depth > _DEEP:
        return SILENT
    told = _told(part)
    if told is not None:
        return frozenset({told})
    if isinstance(part, Mapping):
        rows = [part[name] for name in _FIRST if name in part and is_tensor(part[name]) and part[name].dim() > 1]
        return _agreed(_votes(value, depth + 1, single) for value in rows or part.values())
    if isinstance(part, (list, tuple)):
        of_elements = _agreed(_votes(element, depth + 1, single=True) for element in part)
        alike = len({type(element) for element in part}) == 1
        return of_elements | {len(part)} if alike else of_elements
    return _agreed(_votes(value, depth + 1, single) for value in held(part))


def _told(part: Any) -> int | None:
    """What a container says of itself."""
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
    return (is_tensor(part) or is_array(part)) and len(part.shape) == 3 and part.shape[0] in _PICTURE


def _agreed(votes: Iterable[Votes]) -> Votes:
    """What all that have an opinion could mean; a single row beside others is shared by them."""
    opinions = [each for each in votes if each]
    several = [each for each in opinions if each != {1}] or opinions
    return frozenset.intersection(*several) if several else SILENT
