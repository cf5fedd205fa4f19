"""How many of what, in words."""

import pytest

from stash.core.units import format_count


@pytest.mark.parametrize(("number", "words"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_one_is_singular(number, words):
    assert format_count(number, "node") == words
