"""Blocks in columns: small, whole when they come back, and refused with the place where they are wrong."""

import json
from dataclasses import fields, replace
from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.core.columns import ColumnError, pack_blocks, pack_rows, unpack_blocks
from stash.core.measured import Block

pytestmark = pytest.mark.usefixtures("home")

BLOCKS = build({"solo": [0.1, 0.2], "crowd": [0.11, 0.19]}).blocks
RAGGED = tuple(
    replace(block, step_seconds=(0.5,) * number, resident=number / 10 if number % 2 else None)
    for number, block in enumerate(BLOCKS)
)


st.register_type_strategy(float, st.floats(-1e18, 1e18) | st.just(0.5))
st.register_type_strategy(int, st.integers(0, 2**63 - 1))
STAGES = st.dictionaries(st.sampled_from(["input", "forward", "backward"]), st.floats(0, 1e18))
KINDS = {name: st.from_type(kind) for name, kind in get_type_hints(Block).items()} | {
    "stage_seconds": STAGES,
    "group_waits": STAGES,
    "group_under_way": STAGES,
    "received_rows": STAGES,
    "phase_seconds": STAGES,
}
ANY = st.lists(st.builds(Block, **KINDS))


@settings(max_examples=10, deadline=None)
@given(ANY)
def test_blocks_come_back_as_they_were_whatever_fields_they_have(blocks):
    assert unpack_blocks(json.loads(json.dumps(pack_blocks(blocks)))) == tuple(blocks)


def test_a_value_that_repeats_is_written_once_and_a_default_not_at_all():
    columns = pack_blocks(BLOCKS)
    assert columns["rung"] == {"times": [2, 4], "values": ["solo", "crowd"]}
    assert columns["rank"] == [0, 0, 0, 1, 0, 1]
    assert columns.keys() == {"round", "rung", "rank", "steps", "seconds"}
    assert pack_blocks(RAGGED)["step_seconds"] == {
        "lengths": [0, 1, 2, 3, 4, 5],
        "items": {"times": [15], "values": [0.5]},
    }


def test_blocks_of_the_first_schema_were_an_object_each():
    rows = [
        {
            "round": 0,
            "rung": "solo",
            "rank": 0,
            "steps": 2,
            "seconds": 1.0,
            "step_seconds": [0.5, 0.5],
        }
    ]
    rows += [
        {
            "round": 0,
            "rung": "crowd",
            "rank": 1,
            "steps": 2,
            "seconds": 1,
            "later": "field",
            "cpu": 0.5,
        }
    ]
    first, second = unpack_blocks(pack_rows(rows))
    assert first == Block(0, "solo", 0, 2, 1.0, step_seconds=(0.5, 0.5))
    assert second == Block(0, "crowd", 1, 2, 1.0, cpu=0.5)


def test_a_list_of_the_first_schema_that_is_none_is_named():
    rows = [
        {"round": 0, "rung": "solo", "rank": 0, "steps": 2, "seconds": 1.0, "step_seconds": 0.5}
    ]
    with pytest.raises(ColumnError, match=r"blocks\.0\.step_seconds: input should be a list"):
        pack_rows(rows)


def test_columns_of_a_later_stash_are_left_alone():
    assert unpack_blocks({**pack_blocks(BLOCKS), "colour": ["blue"] * 6}) == BLOCKS


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("seconds", None, r"blocks\.seconds: field required"),
        ("seconds", ["long"] * 6, r"blocks\.seconds\.0: input should be a valid number"),
        ("seconds", [1.0], r"blocks\.seconds: 1 entries, others have 6"),
        ("rung", {"times": [6]}, r"blocks\.rung\.values: field required"),
        ("rung", {"times": [3, 3], "values": ["solo"]}, r"blocks\.rung: 2 times, and 1 values"),
        ("rank", 7, r"blocks\.rank\.times: field required"),
        (
            "step_seconds",
            {"lengths": [1] * 6, "items": [0.5]},
            r"1 items, and lengths that add up to 6",
        ),
        ("seconds", [1.0] * 5 + [float("inf")], r"blocks\.seconds\.5: input should be"),
        (
            "seconds",
            [1.0] * 5 + [1e300],
            r"blocks\.seconds\.5: input should be less than or equal to 10{18}",
        ),
        ("steps", [1] * 5 + [10**30], r"blocks\.steps\.5: input should be less than"),
        ("rank", [-1] * 6, r"blocks\.rank\.0: input should be greater than or equal to 0"),
        (
            "rank",
            {"times": [10**12], "values": [0]},
            r"blocks\.rank\.times: more entries than a file of this size",
        ),
        (
            "rank",
            {"times": [-6], "values": [0]},
            r"blocks\.rank\.times\.0: input should be greater than or equal",
        ),
        (
            "step_seconds",
            {"lengths": {"times": [6], "values": [10**12]}, "items": [0.5]},
            r"1 items, and lengths that add up to 6000000000000",
        ),
    ],
)
def test_a_column_that_is_wrong_is_named(name, column, says):
    columns = {**pack_blocks(BLOCKS), name: column}
    if column is None:
        del columns[name]
    with pytest.raises(ColumnError, match=says):
        unpack_blocks(columns)


def test_every_field_has_a_type_that_a_column_can_check():
    assert {field.name for field in fields(Block)} == get_type_hints(Block).keys()
