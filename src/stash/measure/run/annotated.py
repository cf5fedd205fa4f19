"""Whether a value is of an annotated type: a test that is made once for each annotation. Standard library only.

Knows annotations of records that are told from process to process: plain types, records, unions, lists, tuples and
dictionaries of them. What a test is needed for is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

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
