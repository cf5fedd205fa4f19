"""What a data set says of itself, and what is said of a damaged one."""

import json

import pytest

from stash.core.errors import UserError
from stash.lab.zoo.datasets import MANIFEST, make_dataset


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 1, "kind": "text"}'])
def test_a_damaged_manifest_is_named(damage, tmp_path):
    (tmp_path / MANIFEST).write_text(damage)
    with pytest.raises(UserError, match=f"{MANIFEST} is damaged"):
        make_dataset("text", tmp_path, 1)


def test_the_manifest_says_what_was_made(tmp_path):
    made = make_dataset("text", tmp_path / "data", 2)
    assert json.loads((made.path / MANIFEST).read_text()) == {
        "kind": "text",
        "count": 2,
        "complete": True,
        "bytes": 4096,
        "format": 1,
    }
