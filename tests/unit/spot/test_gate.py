"""The bound on how far ahead a worker may be."""

from __future__ import annotations

import pytest

from stash.spot.train.ledger import SspGate


def test_without_a_bound_nobody_waits() -> None:
    gate = SspGate(None)
    gate.join("a")
    gate.join("b")
    for _ in range(100):
        gate.advance("a")
    assert gate.open("a")


def test_a_fast_worker_is_let_no_further_than_the_bound() -> None:
    gate = SspGate(2)
    gate.join("fast")
    gate.join("slow")
    made = 0
    while gate.open("fast"):
        gate.advance("fast")
        made += 1
    assert made == 3  # 0, 1 and 2 ahead are within it
    gate.advance("slow")
    assert gate.open("fast")


def test_a_bound_of_nothing_has_all_take_turns() -> None:
    gate = SspGate(0)
    gate.join("a")
    gate.join("b")
    gate.advance("a")
    assert not gate.open("a")
    assert gate.open("b")


def test_who_left_holds_nobody_up_and_who_joins_begins_with_the_slowest() -> None:
    gate = SspGate(1)
    gate.join("a")
    gate.join("b")
    gate.advance("a")
    gate.advance("a")
    assert not gate.open("a")
    gate.leave("b")
    assert gate.open("a")
    gate.join("c")
    gate.advance("c")
    gate.advance("c")
    assert not gate.open("c")
    gate.advance("b")  # from the dead
    assert set(gate.workers) == {"a", "c"}


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody"):
        SspGate(-1)
