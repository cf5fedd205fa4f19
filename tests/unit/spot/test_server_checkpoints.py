"""Checkpoints that are whole, or not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.spot.train import saved_shards


def test_the_newest_is_read_and_only_two_are_kept(tmp_path: Path) -> None:
    for number in range(4):
        saved_shards.save(tmp_path, 1, {"version": number}, b"x" * number)
    found = saved_shards.newest(tmp_path, 1)
    assert found is not None
    assert (found.facts, found.content, found.skipped) == ({"version": 3}, b"xxx", ())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["shard1-00000002.ckpt", "shard1-00000003.ckpt"]
    assert saved_shards.newest(tmp_path, 0) is None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: raw[:-1], "is truncated or damaged"),
        (lambda raw: raw[:-1] + b"?", "is truncated or damaged"),
        (lambda raw: raw[:20], "is damaged"),
        (lambda raw: b"", "is damaged"),
        (lambda raw: raw.replace(b'"format": 1', b'"format": 9'), "is from a newer Stash"),
    ],
)
def test_of_a_damaged_one_the_one_before_is_used_and_that_is_said(tmp_path: Path, damage: object, said: str) -> None:
    saved_shards.save(tmp_path, 0, {"version": 1}, b"first")
    path = saved_shards.save(tmp_path, 0, {"version": 2}, b"second")
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    found = saved_shards.newest(tmp_path, 0)
    assert found is not None
    assert found.content == b"first"
    assert len(found.skipped) == 1
    assert said in found.skipped[0]
    assert found.skipped[0].endswith("the one before it, shard0-00000000.ckpt, is used")


def test_if_none_is_whole_training_does_not_quietly_begin_anew(tmp_path: Path) -> None:
    path = saved_shards.save(tmp_path, 0, {}, b"only")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match="no earlier one is whole; remove"):
        saved_shards.newest(tmp_path, 0)


def test_what_a_killed_save_leaves_is_no_checkpoint_and_goes_with_the_next(tmp_path: Path) -> None:
    half = tmp_path / ".shard0-00000000.ckpt.0123abcd.tmp"
    half.write_bytes(b"half")
    assert saved_shards.newest(tmp_path, 0) is None
    saved_shards.save(tmp_path, 0, {}, b"whole")
    assert not half.exists()
