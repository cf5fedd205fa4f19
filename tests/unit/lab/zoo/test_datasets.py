"""Generated data sets: deterministic, and refused where they do not fit."""

import errno
import os
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.zoo import synthesis
from stash.lab.zoo.datasets import KINDS, MANIFEST, make_dataset
from stash.lab.zoo.feed import open_feed
from stash.lab.zoo.registry import workload

COUNTS = {"images": 5, "text": 5_000}


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_makes_the_same_bytes(kind, tmp_path):
    made = make_dataset(kind, tmp_path / "a", COUNTS[kind])
    first = contents(made.path)
    assert first == contents(make_dataset(kind, tmp_path / "b", COUNTS[kind]).path)
    assert made.bytes == sum(map(len, first.values())) - len(first[MANIFEST])


@pytest.fixture
def _small_pictures(monkeypatch):
    monkeypatch.setattr(synthesis, "make_jpeg", lambda random: b"a picture")


small_pictures = pytest.mark.usefixtures("_small_pictures")


@small_pictures
def test_nothing_is_written_where_the_same_is_there(tmp_path):
    make_dataset("images", tmp_path / "data", 4)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for count in (4, None):
        assert make_dataset("images", tmp_path / "data", count).seconds is None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@small_pictures
def test_progress_counts_up_to_the_whole(tmp_path):
    seen = []
    make_dataset(
        "images", tmp_path / "data", 70, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[0] == (0, 70)
    assert seen[-1] == (70, 70)
    assert seen == sorted(seen)


@small_pictures
def test_every_file_is_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda handle: flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name),
    )
    make_dataset("images", tmp_path / "data", 3)
    assert {f"{index:08d}.jpg" for index in range(3)} <= set(flushed)


@small_pictures
def test_a_full_disk_is_one_sentence_and_what_was_begun_is_read_by_nobody(tmp_path, monkeypatch):
    def full(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith(".jpg"):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="is full; free some space") as caught:
        make_dataset("images", tmp_path / "data", 6)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.rglob("*.jpg")) == []
    with pytest.raises(UserError, match="is unfinished"):
        open_feed(workload("resnet18"), tmp_path / "data")
    with pytest.raises(UserError, match="already holds unfinished images"):
        make_dataset("images", tmp_path / "data", 6)


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match="Read-only file system; name a folder you may write to"):
        make_dataset("text", tmp_path / "data", 1)


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(UserError, match="files that Stash did not make"):
        make_dataset("text", tmp_path, 1)
    with pytest.raises(UserError, match="is a file"):
        make_dataset("text", tmp_path / "thesis.txt", 1)
    assert contents(tmp_path) == {"thesis.txt": b"do not touch"}


def test_a_folder_with_half_a_manifest_is_ours(tmp_path):
    (tmp_path / f".{MANIFEST}.0123abcd.tmp").write_text("{")
    assert make_dataset("text", tmp_path, 1).count == 1


@pytest.mark.parametrize(
    ("kind", "count", "message"),
    [
        ("images", None, "already holds 2 samples of text"),
        ("text", 1, "already holds 2 samples of text"),
        ("text", 0, "at least one sample"),
        ("video", None, "choose one of images, text"),
    ],
)
def test_a_request_that_contradicts_the_folder_is_refused(kind, count, message, tmp_path):
    make_dataset("text", tmp_path / "data", 2)
    with pytest.raises(UserError, match=message):
        make_dataset(kind, tmp_path / "data", count)
