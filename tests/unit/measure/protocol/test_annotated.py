"""Values are of the types that records are annotated with: as Python has them, and as JSON has."""

from __future__ import annotations

from typing import Any

import pytest

from stash.measure.protocol.annotated import JSON, PYTHON, Notation, fits, plain


@pytest.mark.parametrize(
    ("value", "hint", "does"),
    [
        (1, float, True), (True, float, False), (True, int, False), (1.0, int, False), (True, bool, True),
        (None, int | None, True), ("x", int | None, False),
        ((1, 2), tuple[int, ...], True), ([1], tuple[int, ...], False),
        ((1, "a"), tuple[int, str], True), ((1,), tuple[int, str], False), ((1, "a"), tuple[int, int], False),
        ([0.5, 1], list[float], True), (["a"], list[float], False), ({"a": 1}, dict[str, int], True),
        ({1: 1}, dict[str, int], False), (object(), Any, True),
    ],
)  # fmt: skip
def test_values_are_of_the_types_that_records_are_annotated_with(value: Any, hint: Any, does: bool) -> None:
    assert fits(value, hint) is does


@pytest.mark.parametrize(
    ("value", "hint", "notation", "does"),
    [
        ([1, 2], tuple[int, ...], JSON, True), ((1, 2), tuple[int, ...], JSON, False),
        ([[1], [2.0]], tuple[tuple[int, ...], ...], JSON, True),
        ([[1], [2.5]], tuple[tuple[int, ...], ...], JSON, False),
        (3.0, int, JSON, True), (3.5, int, JSON, False), (True, int, JSON, False),
        (3.0, int | None, JSON, True), (3.0, int | None, PYTHON, False), (1, object, JSON, True),
    ],
)  # fmt: skip
def test_json_has_lists_for_tuples_and_may_write_whole_numbers_with_a_point(
    value: Any, hint: Any, notation: Notation, does: bool
) -> None:
    assert fits(value, hint, notation) is does


def test_types_that_need_no_closer_look() -> None:
    assert plain(float | None) == {int, float, type(None)}
    assert plain(tuple[int, ...]) == frozenset()
