"""What ranks send each other comes out as it went in, and nothing else; JSON makes the records that it fits."""

import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from stash.core.measured import Block, Rank
from stash.measure.agent.runner.block_plan import BlockSize, Plan, StepPace
from stash.measure.agent.runner.discovery import Introduction, Ladder
from stash.measure.agent.runner.judge import BlockReport, CacheEvidence, Outcome
from stash.measure.agent.runner.rank import LoopEnded
from stash.measure.agent.wraps.groups import Membership
from stash.measure.agent.wraps.sharding import FirstBatch
from stash.measure.protocol import wire
from stash.measure.protocol.messages import Payload
from stash.measure.protocol.wire import WireError, build_record, pack_value, unpack_value

PLAN = Plan(BlockSize(1, 2), BlockSize(1, 4), BlockSize(3, 4), 1.5, 2)
GROUP = Membership("7", (0, 3), "cpu:gloo")
BLOCK = Payload.pack(Block(0, "cold", 1, 2, 0.5, step_seconds=(0.25, 0.25)))
VALUES = [
    None,
    True,
    3,
    0.1,
    1e-300,
    "a\n\u202e\x00 \ud7ff",
    [],
    [[1, 2], []],
    (),
    (1, [0.5], [2.0]),
    {"a": (1,), 2: None},
    "x" * 200,
    ["y" * 150, '"' * 150, " " * 150, "z\n" * 100],
    {"k" * 120: "é\r\t" * 60},
    {"record": "Plan", "fields": []},
    LoopEnded(),
    PLAN,
    StepPace(0.1, 2),
    Outcome(True, "cold", plan=PLAN),
    BlockReport(BLOCK, 0.5, CacheEvidence(batches=2, file_system="nfs"), 0.5, (BLOCK,)),
    Ladder(("solo", "crowd"), (GROUP,), None, False, 3),
    Introduction(
        Rank(0, 0, 0, "cpu", 1),
        {"cores": 2, "gpus": []},
        (GROUP,),
        ("send",),
        (),
        FirstBatch(7, (1,)),
        0.2,
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_ranks_say_comes_out_as_it_went_in(value):
    received = unpack_value(pack_value(value))
    assert received == value
    assert type(received) is type(value)


STRANGE = [
    b"",
    b"\xff",
    b"[" * 4000,
    b"[" * 1_000_000,
    b"9" * 5000,
    b"Infinity",
    b"[NaN]",
    b"-Infinity",
    b"1e999",
    b"{}",
    b'{"record": "Orders", "fields": []}',
    b'{"record": "os.system", "fields": ["id"]}',
    b'{"record": 1}',
    b'{"record": ["Plan"]}',
    b'{"record": "BlockSize", "fields": [1, 2]}',
    b'{"record": "BlockSize", "fields": {"settle": 1}}',
    b'{"record": "BlockSize", "fields": {"settle": 1, "steps": 2, "more": 3}}',
    b'{"record": "BlockSize", "fields": {"settle": 1, "steps": 2.5}}',
    b'{"record": "BlockSize", "fields": {"settle": true, "steps": 2}}',
    b'{"record": "BlockSize", "fields": {"settle": "1", "steps": 2}}',
    b'{"record": "Told", "fields": ["one line\\nand another"]}',
    b'{"dict": [[[], 1]]}',
    b'{"line": 0}',
    b'{"line": 1}\nonly one',
    b'{"line": "0"}\nx',
    b'{"dict": [1]}',
    pickle.dumps(PLAN),
]


@pytest.mark.parametrize("payload", STRANGE, ids=range(len(STRANGE)))
def test_anything_else_is_refused(payload):
    with pytest.raises(WireError):
        unpack_value(payload)


def test_what_is_too_long_is_not_even_read(monkeypatch):
    monkeypatch.setattr(wire, "MAX_BYTES", 10)
    with pytest.raises(WireError, match="11 bytes"):
        unpack_value(b'"' + b"x" * 9 + b'"')


@dataclass(frozen=True)
class Undeclared:
    field: int = 0


@pytest.mark.parametrize(
    "value", [Undeclared(), object(), b"bytes", float("nan"), float("inf"), {1, 2}]
)
def test_what_does_not_cross_is_found_where_it_is_said(value):
    with pytest.raises((TypeError, ValueError)):
        pack_value(value)


@dataclass(frozen=True)
class Row:
    name: str
    count: int = 0
    seconds: float | None = None
    pair: tuple[int, int] | None = None
    rungs: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)


def test_every_type_is_made_of_what_json_has_for_it():
    fields = {
        "name": "a",
        "count": 3.0,
        "seconds": 2,
        "pair": [1, 2],
        "rungs": ["x"],
        "rows": [{}],
        "sizes": {"a": 1},
    }
    row = build_record(Row, fields)
    assert row == Row("a", 3, 2, (1, 2), ("x",), {}, [{}], {"a": 1})
    assert isinstance(row.rungs, tuple)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 1),
        ("count", 1.5),
        ("count", True),
        ("count", "1"),
        ("seconds", "1"),
        ("seconds", []),
        ("pair", [1]),
        ("pair", [1, "2"]),
        ("rungs", "x"),
        ("rungs", [1]),
        ("facts", []),
        ("rows", [1]),
        ("sizes", {"a": "b"}),
        ("count", None),
    ],
)
def test_another_type_is_refused_by_the_name_of_its_field(name, value):
    with pytest.raises(ValueError, match=f"^{name} is no "):
        build_record(Row, {"name": "a", name: value})


def test_a_field_too_many_or_too_few_is_refused():
    for fields in ({"name": "a", "colour": 1}, {}):
        with pytest.raises(TypeError):
            build_record(Row, fields)
