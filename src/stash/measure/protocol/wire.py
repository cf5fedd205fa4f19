"""Records as JSON and back, strictly: messages and orders by field name, what ranks send each other as packed bytes.

Whoever reads gets data and nothing else: no record that was not declared, no field of another type than the record's,
from other ranks no number that is not finite and no more than ``MAX_BYTES``. Who wrote it is not known here. Standard
library only: it runs in the job's interpreter, which need not be of Stash's version of Python (decision 22).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Hashable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Any,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

MAX_BYTES = 32 << 20
"""Of one message between ranks: the leader's news for those who keep a copy of its journal are the longest."""
_RECORD, _FIELDS, _TUPLE, _DICT = "record", "fields", "tuple", "dict"

T = TypeVar("T")
Reader = Callable[[Any], Any]
_RECORDS: dict[str, type] = {}


class WireError(RuntimeError):
    """What came is nothing that a rank of this version sends."""


def register_record(record: type[T]) -> type[T]:
    """Declare a frozen dataclass as one that ranks send each other; its name must be unique."""
    assert record.__name__ not in _RECORDS, record
    _RECORDS[record.__name__] = record
    return record


def build_record(cls: type[T], row: Mapping[str, Any]) -> T:
    """A dataclass of a JSON object, its lists as tuples where it has tuples.

    Raises TypeError for a field that is not there or unknown, and ValueError for one of another type.
    """
    values = dict(_check_type(row, dict))
    fields = _record_fields(cast(Hashable, cls))
    for name, value in row.items():
        field = fields.get(name)
        if field is None or type(value) in field.kinds:
            continue  # an unknown one is refused below
        try:
            values[name] = field.read(value)
        except (ValueError, TypeError, LookupError):
            raise ValueError(f"{name} is no {field.hint}") from None
    return cls(**values)


class _Field(NamedTuple):
    hint: Any
    kinds: frozenset[type]
    """JSON values of these types are the field's as they are: most are, and calling a reader takes long."""
    read: Reader
    """What makes the field's value of any other; raises ValueError or TypeError."""


@cache
def _record_fields(record: Any) -> Mapping[str, _Field]:
    """A dataclass's fields by name."""
    hints = get_type_hints(record)
    names = [field.name for field in dataclasses.fields(record)]  # no class variables
    return {
        name: _Field(hints[name], _json_types(hints[name]), _make_reader(hints[name]))
        for name in names
    }


@cache
def _json_types(hint: Any) -> frozenset[type]:
    """Types of JSON values that certainly are of an annotated type; True is no number."""
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*map(_json_types, get_args(hint)))
    if hint in (None, NoneType):
        return frozenset({NoneType})
    if hint is float:
        return frozenset({int, float})
    return frozenset({hint}) if hint in (bool, int, str) else frozenset()


@cache
def _make_reader(hint: Any) -> Reader:
    """What makes a value of an annotated type of what JSON has for it; raises ValueError or TypeError."""
    origin, of = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return lambda value: value
    if dataclasses.is_dataclass(hint):
        return partial(build_record, cast("type[Any]", hint))
    if origin in (Union, UnionType):
        members = [_make_reader(each) for each in of]
        return lambda value: _first_that_fits(members, value)
    if origin is tuple and of[-1] is not Ellipsis:
        each_in_place = [_make_reader(each) for each in of]
        return lambda value: tuple(
            read(each) for read, each in zip(each_in_place, _check_list(value), strict=True)
        )
    if origin in (tuple, list):
        build, kinds, read = (
            (tuple if origin is tuple else list),
            _json_types(of[0]),
            _make_reader(of[0]),
        )
        return lambda value: build(
            [each if type(each) in kinds else read(each) for each in _check_list(value)]
        )
    if origin is dict:
        key, item = _make_reader(of[0]), _make_reader(of[1])
        return lambda value: {
            key(name): item(each) for name, each in _check_type(value, dict).items()
        }
    if hint is int:  # others than Python write 3.0, too, where 3 is meant
        return lambda value: (
            int(value) if type(value) is float and value.is_integer() else _check_type(value, int)
        )
    kinds = _json_types(hint)
    return lambda value: value if type(value) in kinds else _check_type(value, hint)


def _first_that_fits(readers: list[Reader], value: Any) -> Any:
    for read in readers:
        try:
            return read(value)
        except (ValueError, TypeError):
            continue
    raise ValueError(f"{type(value).__name__} is none of them")


def _check_list(value: Any) -> list[Any]:
    return cast("list[Any]", _check_type(value, list))


def _check_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} is no {kind}")
    return value


# Reader and writer share no schema of a whole message, so tuples, dictionaries and records are tagged; within a
# record its annotations say what is what.


def pack_value(value: Any) -> bytes:
    """Pack a message as bytes; raises TypeError or ValueError for what cannot be sent."""
    return f"{json.dumps(_tag(value), allow_nan=False, separators=(',', ':'))}\n".encode()


def unpack_value(data: bytes) -> Any:
    """What was packed; raises WireError for anything else."""
    if len(data) > MAX_BYTES:
        raise WireError(f"a rank sent {len(data)} bytes, more than any rank has to say")
    try:
        head = data.decode().partition("\n")[0]  # what follows the line's end does not matter
        # decode() would look for blanks around it, which takes a third as long
        value, end = _JSON.raw_decode(head)
        if end < len(head):
            raise ValueError(f"it goes on with {head[end : end + 20]!r}")
        return _untag(value) if type(value) in (dict, list) else value
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError(
            f"a rank sent what no rank of this version says ({type(error).__name__}: {str(error)[:100]}); "
            "is the same version of Stash installed on all nodes?"
        ) from None


def _tag(value: Any) -> Any:
    """What JSON has for it."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_tag(each) for each in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_tag(each) for each in value]}
    if isinstance(value, dict):
        return {_DICT: [[_tag(key), _tag(each)] for key, each in value.items()]}
    if dataclasses.is_dataclass(value):
        return {_RECORD: type(value).__name__, _FIELDS: _check_plain(value)}
    return _check_plain(value)


def _check_plain(value: Any) -> Any:
    """The same within a record."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, list | tuple):
        return [_check_plain(each) for each in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("within a record names are texts")
        return value
    if _RECORDS.get(type(value).__name__) is not type(value):
        raise TypeError(f"{type(value).__name__} does not cross from rank to rank")
    names = _record_fields(cast(Hashable, type(value)))
    return {name: _check_plain(getattr(value, name)) for name in names}


def _untag(found: Any) -> Any:
    """What a value of JSON stands for."""
    if type(found) is list:
        return [_untag(each) for each in found]
    if type(found) is not dict:
        return found
    if _RECORD in found:
        return build_record(_RECORDS[found[_RECORD]], found[_FIELDS])
    if _TUPLE in found:
        return tuple(_untag(_check_list(found[_TUPLE])))
    return dict(map(_untag, map(_check_list, _check_list(found[_DICT]))))


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _parse_finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _not_finite(number)


_JSON = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_not_finite)
"""Made once: a leader of a thousand ranks reads six thousand reports a round."""
