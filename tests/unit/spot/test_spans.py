"""Ranges of samples, against plain sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.spot.train.ledger import Spans, cut

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=12)


@given(RANGES, st.integers(0, 50), st.integers(1, 8))
def test_spans_are_sets_that_refuse_what_they_have(ranges: list[tuple[int, int]], at: int, length: int) -> None:
    spans, truth = Spans(), set[int]()
    for start, size in ranges:
        these = set(range(start, start + size))
        if truth & these:
            with pytest.raises(ValueError, match="were there before"):
                spans.add(start, start + size)
        else:
            spans.add(start, start + size)
            truth |= these
    asked = set(range(at, at + length))
    assert spans.samples == len(truth)
    assert spans.holds(at, at + length) == (asked <= truth)
    assert spans.touches(at, at + length) == bool(asked & truth)
    missing = {number for start, stop in spans.gaps(50) for number in range(start, stop)}
    assert missing == set(range(50)) - truth
    assert Spans(spans.ranges).ranges == spans.ranges
    assert all(left[1] < right[0] for left, right in zip(spans.ranges, spans.ranges[1:], strict=False))


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="no range"):
        Spans().add(3, 3)


def test_pieces_have_no_edge_inside_and_no_more_than_they_may() -> None:
    assert cut(10, 30, [5, 18, 30, 40], 6) == [(10, 16), (16, 18), (18, 24), (24, 30)]
