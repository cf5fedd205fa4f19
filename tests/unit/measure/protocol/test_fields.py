"""Dataclasses of JSON: lists become tuples where they belong, and another type is refused by its field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stash.measure.protocol.wire import made


@dataclass(frozen=True)
class Told:
    name: str
    count: int = 0
    seconds: float | None = None
    pair: tuple[int, int] | None = None
    rungs: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)


def test_every_type_is_made_of_what_json_has_for_it() -> None:
    fields = {
        "name": "a",
        "count": 3.0,
        "seconds": 2,
        "pair": [1, 2],
        "rungs": ["x"],
        "rows": [{}],
        "sizes": {"a": 1},
    }
    told = made(Told, fields)
    assert told == Told("a", 3, 2, (1, 2), ("x",), {}, [{}], {"a": 1})
    assert isinstance(told.rungs, tuple)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 1), ("count", 1.5), ("count", True), ("count", "1"), ("seconds", "1"), ("seconds", []),
        ("pair", [1]), ("pair", [1, "2"]), ("rungs", "x"), ("rungs", [1]), ("facts", []), ("rows", [1]),
        ("sizes", {"a": "b"}), ("count", None),
    ],
)  # fmt: skip
def test_another_type_is_refused_by_the_name_of_its_field(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} is no "):
        made(Told, {"name": "a", name: value})


def test_a_field_too_many_or_too_few_is_refused() -> None:
    for fields in ({"name": "a", "colour": 1}, {}):
        with pytest.raises(TypeError):
            made(Told, fields)
