"""Values checked against annotated types, and dataclasses made of JSON. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

# Annotated -------------------------------------------------------------------------------------------------
# Whether a value is of an annotated type: a test that is made once for each annotation. Standard library only.
#
# Knows annotations of records that are told from process to process: plain types, records, unions, lists, tuples
# and dictionaries of them. What a test is needed for is not known here.

_Test = Callable[[Any], bool]


class Notation(NamedTuple):
    """What stands for an annotated type where values come from."""

    tuples: type
    """For a tuple."""
    whole_floats: bool
    """For integers: others than Python write 3.0, too, where 3 is meant."""


PYTHON = Notation(tuple, whole_floats=False)
JSON = Notation(list, whole_floats=True)


def fits(value: Any, hint: Any, notation: Notation = PYTHON) -> bool:
    """Whether ``value`` is of type ``hint``; True is no number."""
    return _test(hint, notation)(value)


@cache
def plain(hint: Any) -> frozenset[type]:
    """Types whose values certainly fit: most values are of such, and calling a test takes long."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return frozenset().union(*map(plain, of))
    if hint is None:
        return frozenset({NoneType})
    if hint is float:
        return frozenset({int, float})
    return frozenset({hint}) if isinstance(hint, type) and origin is None else frozenset()


@cache
def _test(hint: Any, notation: Notation) -> _Test:
    origin, of = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return lambda value: True
    if origin in (Union, UnionType):
        return _one_of(plain(hint), [_test(each, notation) for each in of if not plain(each) or each is int])
    if origin is tuple and of[-1] is not Ellipsis:
        return _each_in_its_place(notation.tuples, [_test(each, notation) for each in of])
    if origin in (tuple, list):
        return _all_alike(notation.tuples if origin is tuple else list, plain(of[0]), _test(of[0], notation))
    if origin is dict:
        return _named(_test(of[0], notation), _test(of[1], notation))
    if hint is int and notation.whole_floats:
        return lambda value: type(value) is int or (type(value) is float and value.is_integer())
    return _one_of(plain(hint), [])


def _one_of(kinds: frozenset[type], tests: list[_Test]) -> _Test:
    if not tests:
        return lambda value: type(value) in kinds
    return lambda value: type(value) in kinds or any(test(value) for test in tests)


def _all_alike(kind: Any, kinds: frozenset[type], test: _Test) -> _Test:
    return lambda value: type(value) is kind and all(type(each) in kinds or test(each) for each in value)


def _each_in_its_place(kind: Any, tests: list[_Test]) -> _Test:
    def fits_each(value: Any) -> bool:
        if type(value) is not kind or len(value) != len(tests):
            return False
        return all(test(each) for test, each in zip(tests, value, strict=True))

    return fits_each


def _named(key: _Test, test: _Test) -> _Test:
    return lambda value: type(value) is dict and all(key(k) and test(v) for k, v in value.items())


# Fields ----------------------------------------------------------------------------------------------------
# Dataclasses made of JSON, each field held to its declared type. Standard library only.

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
