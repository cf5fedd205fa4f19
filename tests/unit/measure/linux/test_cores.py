"""Every rank's own share of the cores."""

from __future__ import annotations

import os

import pytest

from stash.measure.linux.processes import pin


@pytest.mark.parametrize(
    ("cores", "ranks", "shares"),
    [
        ({0, 1, 2, 3}, 2, [{0, 1}, {2, 3}]),
        ({5, 1, 9}, 3, [{1}, {5}, {9}]),  # not all are ours, and they are taken in order
        ({0, 1, 2}, 2, [{0}, {1}]),  # alike for all, so one is left over
        ({0}, 2, [None, None]),
    ],
)
def test_ranks_share_the_cores_evenly_or_keep_them_all(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], ranks: int, shares: list[set[int] | None]
) -> None:
    given: list[set[int] | None] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, some: given.__setitem__(-1, set(some)))
    for rank in range(ranks):
        given.append(None)
        pin(rank, ranks)
    assert given == shares
