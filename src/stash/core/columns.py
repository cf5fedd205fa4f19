"""Blocks as columns: how the artefact holds very many of them in little space, and how they come out again.

A column is a list, or ``{"times": [3, 2], "values": [a, b]}`` for a, a, a, b, b where that is shorter. Of a field of
lists it is ``{"lengths": column, "items": column}``; a field that every block leaves at its default has none.
Columns are checked as a whole, by the types of ``Block``: a record's fields are all that this module knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from itertools import accumulate, chain, groupby, pairwise, repeat
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from stash.core.measured import Block
from stash.core.records.base import Count, first_mistake

Packed = list[Any] | dict[str, Any]
_MAX_OMITTED = 10_000
"""Blocks that a file may hold beyond the numbers written in it: nearly each has a time of its own. Without a bound a
file of a hundred bytes could ask for all memory."""


class ColumnError(ValueError):
    """A column that is not what it should be: which, and what is wrong."""


def pack_blocks(blocks: Sequence[Block]) -> dict[str, Packed]:
    """The columns of ``blocks`` by field, in the order of the blocks."""
    return _pack_fields(lambda field: [getattr(block, field.name) for block in blocks])


def pack_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Packed]:
    """Columns, unchecked, of blocks as schema 1 held them: an object each, without what is at its default.

    Raises ColumnError where a list is none, which a column could not say.
    """
    lists = [name for name, kind in _field_types().items() if _item_type(kind) is not None]
    for number, row in enumerate(rows):
        for name in lists:
            if not isinstance(row.get(name, []), list):
                raise ColumnError(f"blocks.{number}.{name}: input should be a list")
    return _pack_fields(lambda field: [row.get(field.name, _default(field)) for row in rows])


def _pack_fields(values_of: Callable[[Field[Any]], list[Any]]) -> dict[str, Packed]:
    types = _field_types()
    columns = {}
    for field in fields(Block):
        values = values_of(field)
        default = _default(field)
        if default is MISSING or any(value != default for value in values):
            columns[field.name] = _pack_column(values, _item_type(types[field.name]) is not None)
    return columns


def _pack_column(values: list[Any], of_lists: bool = False) -> Packed:
    if of_lists:
        return {
            "lengths": _pack_column([len(each) for each in values]),
            "items": _pack_column([*chain.from_iterable(values)]),
        }
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(values)]
    if 2 * len(runs) >= len(values):
        return values
    return {"times": [times for _, times in runs], "values": [value for value, _ in runs]}


def unpack_blocks(columns: dict[str, Any]) -> tuple[Block, ...]:
    """The blocks of ``columns``; raises ColumnError. Columns of fields that a later Stash added are left alone."""
    types = _field_types()
    most = _MAX_OMITTED + _count_values(columns)
    read = {
        f.name: _read_column(f.name, columns[f.name], types[f.name], most)
        for f in fields(Block)
        if f.name in columns
    }
    count = len(next(iter(read.values()), ()))
    for name, values in read.items():
        if len(values) != count:
            raise ColumnError(f"blocks.{name}: {len(values)} entries, others have {count}")
    rows = [_fill_column(field, read, count) for field in fields(Block)]
    return tuple(Block(*row) for row in zip(*rows, strict=True))


def _fill_column(field: Field[Any], read: dict[str, list[Any]], count: int) -> Iterable[Any]:
    default = _default(field)
    if field.name not in read and default is MISSING:
        raise ColumnError(f"blocks.{field.name}: field required")
    return read[field.name] if field.name in read else repeat(default, count)


def _count_values(columns: Any) -> int:
    """How many values stand in the columns, runs counted once."""
    if isinstance(columns, dict):
        return sum(map(_count_values, columns.values()))
    return len(columns) if isinstance(columns, list) else 0


def _read_column(name: str, column: Any, kind: Any, most: int) -> list[Any]:
    """One value for each block, of type ``kind``; of lists and their items, at most ``most``."""
    item = _item_type(kind)
    if item is None:
        return _unpack_column(name, column, kind, most)
    lengths = _unpack_column(f"{name}.lengths", _column_part(name, column, "lengths"), Count, most)
    items = _unpack_column(f"{name}.items", _column_part(name, column, "items"), item, most)
    ends = [0, *accumulate(lengths)]
    if ends[-1] != len(items):
        raise ColumnError(
            f"blocks.{name}: {len(items)} items, and lengths that add up to {ends[-1]}"
        )
    return [tuple(items[start:end]) for start, end in pairwise(ends)]


def _unpack_column(name: str, column: Any, kind: Any, most: int) -> list[Any]:
    if isinstance(column, list):
        return _validate_column(name, column, kind)
    times = _validate_column(f"{name}.times", _column_part(name, column, "times"), Count)
    values = _validate_column(f"{name}.values", _column_part(name, column, "values"), kind)
    if len(times) != len(values):
        raise ColumnError(f"blocks.{name}: {len(times)} times, and {len(values)} values")
    if sum(times) > most:
        raise ColumnError(f"blocks.{name}.times: more entries than a file of this size can have")
    return [*chain.from_iterable(map(repeat, values, times))]


def _column_part(name: str, column: Any, part: str) -> Any:
    if not isinstance(column, dict) or part not in column:
        raise ColumnError(f"blocks.{name}.{part}: field required")
    return column[part]


def _validate_column(name: str, values: Any, kind: Any) -> list[Any]:
    try:
        return _adapter(kind).validate_python(values)
    except ValidationError as error:
        raise ColumnError(first_mistake(error, "blocks", name)) from None


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[list[Any]]:
    """Of lists of such values; making it takes longer than reading most columns."""
    return TypeAdapter(list[kind])


@lru_cache
def _field_types() -> dict[str, Any]:
    """The types of a block's fields, with their bounds."""
    return get_type_hints(Block, include_extras=True)


def _item_type(kind: Any) -> Any:
    """The type of the items of a field that holds a list of any length; ``None`` of another field."""
    arguments = get_args(kind)
    return arguments[0] if get_origin(kind) is tuple and arguments[1:] == (...,) else None


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
