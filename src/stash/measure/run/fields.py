"""Dataclasses made of JSON, each field held to its declared type. Standard library only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from stash.measure.run.annotated import JSON, fits, plain

T = TypeVar("T")


def made(cls: type[T], fields: Mapping[str, Any]) -> T:
    """``cls`` of ``fields``, their lists as tuples where it has tuples.

    Raises TypeError for a field that is not there or unknown, and ValueError for one of another type.
    """
    known, values = _fields(cast(Hashable, cls)), dict(fields)
    for name, value in fields.items():
        hint, kinds, is_tuple = known.get(name, _ANYTHING)
        if type(value) not in kinds and not fits(value, hint, JSON):
            raise ValueError(f"{name} is no {hint}")
        if is_tuple and type(value) is list:
            values[name] = tuple(value)
    return cls(**values)


_ANYTHING: tuple[Any, frozenset[type], bool] = (Any, frozenset(), False)
"""Of a field that is not known: ``cls`` itself refuses it."""


@cache
def _fields(cls: Hashable) -> Mapping[str, tuple[Any, frozenset[type], bool]]:
    """Annotated type, types of values that need no closer look, and whether lists are tuples, by name."""
    return {name: (hint, plain(hint), _is_tuple(hint)) for name, hint in get_type_hints(cls).items()}


def _is_tuple(hint: Any) -> bool:
    return get_origin(hint) is tuple or any(get_origin(part) is tuple for part in get_args(hint))
