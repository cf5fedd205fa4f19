"""Well-known data sets: sizes with a source, found by every way to write their names."""

import pytest

from stash.catalog.facts import is_date
from stash.catalog.reference import known_datasets

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("item", known_datasets(), ids=lambda item: item.name)
def test_every_size_has_a_source_and_a_date(item):
    assert (item.samples is None) != (item.tokens is None)
    assert (item.samples or item.tokens) > 1000
    assert item.source
    assert is_date(item.as_of)
