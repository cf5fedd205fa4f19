"""Well-known data sets: sizes with a source, found by every way to write their names."""

import pytest

from stash.catalog.facts import is_date
from stash.catalog.reference import known_dataset, known_datasets
from stash.core.errors import UserError

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("item", known_datasets(), ids=lambda item: item.name)
def test_every_size_has_a_source_and_a_date(item):
    assert (item.samples is None) != (item.tokens is None)
    assert (item.samples or item.tokens) > 1000
    assert item.source
    assert is_date(item.as_of)


def test_names_are_found_however_they_are_written():
    names = [item.name for item in known_datasets()]
    assert len({name.replace("-", "") for name in names}) == len(names)
    assert {known_dataset(name).name for name in ("CIFAR10", "cifar-10", "Cifar 10")} == {
        "cifar-10"
    }
    with pytest.raises(UserError, match="unknown data set 'moon'; known are imagenet, "):
        known_dataset("moon")
