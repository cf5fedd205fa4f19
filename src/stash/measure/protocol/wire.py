"""What ranks tell each other, as bytes: plain values and a few named records, as JSON, and long texts as lines below
it. Standard library only.

Whoever reads it gets data and nothing else: no name that was not declared here by ``crosses``, no field of another
type than the record's, no number that is not finite, no more bytes than ``LONGEST``. Who wrote it is not known here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from collections import defaultdict
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeVar, get_type_hints

from stash.measure.protocol.annotated import fits, plain

LONGEST = 32 << 20
"""Bytes of one message: the leader's news for those who keep a copy of its journal are the longest."""
_RECORD, _TUPLE, _DICT, _LINE = "record", "tuple", "dict", "line"
_LONG = 100
"""Characters of a text that follows the JSON as a line of its own: in JSON each quote in it would be escaped."""

T = TypeVar("T", bound=type)
_RECORDS: dict[str, type] = {}
_FIT: defaultdict[type, set[tuple[type, ...]]] = defaultdict(set)
"""By record, the types of values that were seen to fit its fields whatever the values are."""


class _Lines(threading.local):
    """The lines below the JSON that this thread is reading."""

    lines: list[str]


_reading = _Lines()


class WireError(RuntimeError):
    """What came is nothing that a rank of this version says."""


def crosses(record: T) -> T:
    """Declare a frozen dataclass as one that ranks send each other; its name must be unique."""
    assert record.__name__ not in _RECORDS, record
    _RECORDS[record.__name__] = record
    return record


def packed(value: Any) -> bytes:
    """As bytes; raises TypeError or ValueError for what does not cross."""
    lines: list[str] = []
    head = json.dumps(_plain(value, lines), allow_nan=False, separators=(",", ":"))
    return "\n".join([head, *lines, ""]).encode()  # what follows the last line's end does not matter


def unpacked(data: bytes) -> Any:
    """What was packed; raises WireError for anything else."""
    if len(data) > LONGEST:
        raise WireError(f"a rank sent {len(data)} bytes, more than any rank has to say")
    try:
        head, *_reading.lines = data.decode().split("\n")
        value, end = _JSON.raw_decode(head)  # decode() would look for blanks around it, which takes a third as long
        if end == len(head):
            return value
        raise ValueError(f"it goes on with {head[end : end + 20]!r}")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise WireError(
            f"a rank sent what no rank of this version says ({type(error).__name__}: {str(error)[:100]}); "
            "is the same version of Stash installed on all nodes?"
        ) from None


def _plain(value: Any, lines: list[str]) -> Any:
    """What JSON has for it; long texts are added to ``lines`` instead."""
    if isinstance(value, str) and len(value) > _LONG and "\n" not in value:
        lines.append(value)
        return {_LINE: len(lines) - 1}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_plain(each, lines) for each in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(each, lines) for each in value]}
    if isinstance(value, dict):
        return {_DICT: [[_plain(key, lines), _plain(each, lines)] for key, each in value.items()]}
    name = type(value).__name__
    if name not in _RECORDS or not isinstance(value, _RECORDS[name]):
        raise TypeError(f"{name} does not cross from rank to rank")
    fields = [_plain(each, lines) for each in _said(value, _wire_fields(_RECORDS[name]))]
    if len(fields) == 1 and type(fields[0]) is dict and _LINE in fields[0]:
        return {_RECORD: name, **fields[0]}  # one object to read instead of two: most reports hold such a record
    return {_RECORD: name, "fields": fields}


def _said(value: Any, fields: tuple[_Field, ...]) -> list[Any]:
    """A record's values up to the last one that is not as usual: whoever reads it fills in the rest."""
    values = [getattr(value, field.name) for field in fields]
    while values and values[-1] == fields[len(values) - 1].usual:
        values.pop()
    return values


def _built(found: dict[str, Any]) -> Any:
    """What an object of JSON stands for; those within it have been built."""
    if _RECORD in found:
        record = _RECORDS[found[_RECORD]]
        values = [_reading.lines[found[_LINE]]] if _LINE in found else _listed(found["fields"])
        kinds = tuple(map(type, values))
        if kinds not in _FIT[record]:
            _check(record, values, kinds)
        return record(*values)  # refuses too many, and too few
    if _LINE in found:
        return _reading.lines[found[_LINE]]
    if _TUPLE in found:
        return tuple(_listed(found[_TUPLE]))
    return dict(map(_listed, _listed(found[_DICT])))


def _check(record: type, values: list[Any], kinds: tuple[type, ...]) -> None:
    """Hold each value to its field; kinds of values that fit whatever the values are need no other look."""
    certain = True
    for value, (name, hint, plainly, _) in zip(values, _wire_fields(record), strict=False):
        if type(value) not in plainly:
            certain = False
            if not fits(value, hint):
                raise TypeError(f"{record.__name__}.{name} is no {hint}")
    if certain and len(values) <= len(_wire_fields(record)):
        _FIT[record].add(kinds)


def _listed(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"{type(value).__name__} is no list")
    return value


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _not_finite(number)


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_not_finite, object_hook=_built)
"""Made once: a leader of a thousand ranks reads six thousand reports a round."""


class _Field(NamedTuple):
    name: str
    hint: Any
    kinds: frozenset[type]
    """Of values that need no closer look."""
    usual: Any
    """Its default, or a value that nothing equals."""


@cache
def _wire_fields(record: type) -> tuple[_Field, ...]:
    """Its fields in order."""
    hints = get_type_hints(record)
    return tuple(
        _Field(field.name, hints[field.name], plain(hints[field.name]), _default(field))
        for field in dataclasses.fields(record)
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else object()
