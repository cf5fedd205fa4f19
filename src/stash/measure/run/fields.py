"""Dataclasses made of JSON, each field held to its declared type. Standard library only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def made(cls: type[T], fields: Mapping[str, Any]) -> T:
    """``cls`` of ``fields``, their lists as tuples where it has tuples.

    Raises TypeError for a field that is not there or unknown, and ValueError for one of another type.
    """
    types = _types(cast(Hashable, cls))
    for name, value in fields.items():
        if name in types and not _fits(value, types[name]):
            raise ValueError(f"{name} is no {types[name]}")
    return cls(**{name: _as(types.get(name), value) for name, value in fields.items()})


@lru_cache(maxsize=64)
def _types(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls)


def _as(kind: Any, value: Any) -> Any:
    """``value`` of ``kind``: JSON turns tuples into lists."""
    return tuple(value) if isinstance(value, list) and _is_tuple(kind) else value


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple or any(get_origin(part) is tuple for part in get_args(kind))


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin in (list, tuple):
        several = origin is list or parts[-1] is ...
        items = isinstance(value, list) and (several or len(value) == len(parts))
        return items and all(_fits(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, parts[1]) for item in value.values())
    if kind is int:
        return type(value) is int or (type(value) is float and value.is_integer())
    if kind is float:
        return type(value) in (int, float)
    return isinstance(value, NoneType if kind is None else kind)
