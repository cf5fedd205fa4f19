"""The reference of every file format, field by field, from the records' docstrings.

What is promised of these files, and what a docstring does not hold, stands in ``docs/format.md``, written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from stash.core.fix_records import Fix
from stash.core.records.host import Probe
from stash.core.records.profile import Profile
from stash.plan.records import RentalPlan
from stash.spot.fleet_records import FleetModel, FleetPlan
from stash.spot.run_records import LearnedCurve, SpotLog
from stash.store.schema import TABLES
from stash.study.study_file import Study

DOCUMENTS: dict[str, type] = {
    "`*.stash.json`, a profile": Profile,
    "`*.host.json`, a probe": Probe,
    "`*.plan.json`, a plan of what to rent": RentalPlan,
    "`*.fleet.json`, a fitted fleet model": FleetModel,
    "`*.curve.json`, a learned loss curve": LearnedCurve,
    "`*.fix.json`, what `stash fix` tried": Fix,
    "a plan of `stash spot plan`": FleetPlan,
    "`*.spotlog.json`, the log of a run": SpotLog,
    "a study file (YAML)": Study,
}
_WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "anything",
    NoneType: "null",
}


def docstrings(record: type) -> dict[str, str]:
    """The docstring below each field of a class, and of the classes it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if base.__module__.startswith("stash."):
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(body, ast.ClassDef)
            for node, after in zip(body.body, body.body[1:], strict=False):
                named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    found[node.target.id] = inspect.cleandoc(str(after.value.value))
    return found


def annotations(record: type) -> dict[str, Any]:
    """The fields of a record, in their order, each with its type."""
    if is_dataclass(record):
        known = inspect.get_annotations(record, eval_str=True)
        return {field.name: known[field.name] for field in fields(record)}
    assert issubclass(record, BaseModel)
    return {name: field.annotation for name, field in record.model_fields.items()}


def _inside(annotation: Any) -> list[type]:
    """The records that a type mentions."""
    if isinstance(annotation, type) and (
        is_dataclass(annotation) or issubclass(annotation, BaseModel)
    ):
        return [annotation]
    return [found for part in get_args(annotation) for found in _inside(part)]


def records_of(root: type) -> list[type]:
    """``root`` and every record inside it, in the order in which they are first mentioned."""
    found: list[type] = []
    waiting = [root]
    while waiting:
        record = waiting.pop(0)
        if record not in found:
            found.append(record)
            waiting += [
                part for annotation in annotations(record).values() for part in _inside(annotation)
            ]
    return found


def type_of(annotation: Any) -> str:
    """A field's type in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_of(inside[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (Union, UnionType):
        words = dict.fromkeys(type_of(part) for part in inside if part is not NoneType)
        return " or ".join([*words, *(["null"] if NoneType in inside else [])])
    if origin in (tuple, list):
        return f"list of {type_of(inside[0])}" if inside else "list"
    if origin is dict:
        return f"{type_of(inside[1])} by name"
    if _inside(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def line(text: str) -> str:
    """Text that fits into a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("``", "`").replace("|", "\\|")


def section(record: type) -> str:
    """One record as a heading, a sentence and a table."""
    texts = docstrings(record)
    lines = [f"### {record.__name__}", "", line(inspect.getdoc(record) or ""), ""]
    lines += ["| field | type | meaning |", "|---|---|---|"]
    for name, kind in annotations(record).items():
        lines.append(f"| `{name}` | {type_of(kind)} | {line(texts.get(name, ''))} |")
    return "\n".join([*lines, ""])


def _tables() -> str:
    parts = ["## the tables of a store", ""]
    for name, columns in TABLES.items():
        parts += [f"### `{name}`", "", "| column | type | meaning |", "|---|---|---|"]
        parts += [
            f"| `{column.name}` | {column.kind} | {line(column.meaning)} |" for column in columns
        ] + [""]
    return "\n".join(parts)


def page() -> str:
    """The whole reference."""
    parts: list[str] = []
    done: set[type] = set()
    for title, root in DOCUMENTS.items():
        new = [record for record in records_of(root) if record not in done]
        parts += [f"## {title}\n", *map(section, new)]
        done.update(new)
    return "\n".join([*parts, _tables()])
