"""A file that is whole or not there: what is seen of it while it is written, and after what ends the writing."""

import os
import signal
import stat
from pathlib import Path

import pytest

from stash.core.files import is_half, write_whole


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"\x00old")
    assert path.read_bytes() == b"\x00old"
    write_whole(path, "né\n")
    assert path.read_bytes() == "né\n".encode()
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.usefixtures("umask")
def test_a_report_is_its_owners_alone_unless_it_replaces_one_that_others_may_read(
    tmp_path,
):
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o644)
    (tmp_path / "link").symlink_to("old")
    for name in ("new", "old", "link"):
        write_whole(tmp_path / name, "y", mode=None)
    modes = {
        name: stat.S_IMODE((tmp_path / name).lstat().st_mode) for name in ("new", "old", "link")
    }
    assert modes == {"new": 0o600, "old": 0o644, "link": 0o600}


def test_the_content_is_flushed_before_it_takes_the_name_and_the_name_after(tmp_path, monkeypatch):
    path = tmp_path / "file"
    seen = []
    path.write_text("old")

    def fsync(handle):
        seen.append(
            (
                Path(os.readlink(f"/proc/self/fd/{handle}")).name.startswith(".file."),
                path.read_text(),
            )
        )

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, "new")
    assert seen == [(True, "old"), (False, "new")]


def test_a_disk_that_fills_up_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_writer_that_is_killed_leaves_the_old_file_and_a_half_that_is_known_as_such(
    tmp_path,
):
    path = tmp_path / "file.json"
    path.write_text("old")
    child = os.fork()
    if child == 0:
        os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
        write_whole(path, "new")
    os.waitpid(child, 0)
    assert path.read_text() == "old"
    (half,) = (found for found in tmp_path.iterdir() if found != path)
    assert is_half(half.name, of="file.json")
    assert is_half(half.name)
    assert not is_half(half.name, of="file")
    assert not is_half(path.name, of="file.json")


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_takes_no_name_that_something_has(tmp_path, monkeypatch, links):
    def refuse(*_):
        raise PermissionError("this file system has no hard links")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    victim = tmp_path / "victim"
    planted = tmp_path / "planted"
    free = tmp_path / "free"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(planted, "new", new=True)
    write_whole(free, "new", new=True)
    assert free.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["free", "planted"]


def test_a_link_is_replaced_and_never_followed(tmp_path):
    victim = tmp_path / "victim"
    planted = tmp_path / "planted"
    victim.write_text("old")
    planted.symlink_to(victim)
    write_whole(planted, "new")
    assert (victim.read_text(), planted.read_text(), planted.is_symlink()) == ("old", "new", False)
