"""Parameters over servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.spot.train.server import shares


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(1, 8))
def test_every_parameter_has_one_home_and_no_server_has_none(sizes: list[int], servers: int) -> None:
    named = {f"p{number}": size for number, size in enumerate(sizes)}
    if servers > len(named):
        with pytest.raises(UserError, match=f"take 1 to {len(named)}"):
            shares(named, servers)
        return
    found = shares(named, servers)
    assert sorted(name for own in found for name in own) == sorted(named)
    assert all(found)
    heaviest = max(sum(named[name] for name in own) for own in found)
    assert heaviest <= max(*sizes, 0) + sum(sizes) / servers + len(sizes)


def test_the_shares_are_even_in_bytes_not_in_number() -> None:
    assert shares({"a": 60, "b": 20, "c": 20, "d": 20}, 2) == (("a",), ("b", "c", "d"))
