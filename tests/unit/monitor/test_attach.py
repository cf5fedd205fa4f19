"""Files in memory whose names others can foresee: they neither lead anywhere, nor are another user's."""

import os
import stat
from pathlib import Path

import pytest

from stash.measure.protocol import watch_folder
from stash.measure.protocol.folder import claim
from stash.measure.protocol.orders import ATTACHABLE
from stash.monitor import attach

SOMEBODY = 65534


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_folder, "shared_places", lambda: (str(tmp_path), str(tmp_path)))
    monkeypatch.setenv(ATTACHABLE, "1")
    return tmp_path


@pytest.fixture
def attachable(monkeypatch, tmp_path):
    """The number of a process that lets watchers in."""
    read_bytes = Path.read_bytes
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: f"{ATTACHABLE}=1\0".encode() if path.name == "environ" else read_bytes(path),
    )
    return 4711


def test_the_name_of_orders_is_left_in_a_folder_of_the_users_alone(place, attachable):
    assert attach.enter_job(attachable, Path("/dev/shm/watch"), None)
    file = watch_folder.attach_file(attachable)
    assert file.read_text() == "/dev/shm/watch/orders.json"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["attach-4711", "attach-4711.new"])
def test_a_link_in_the_place_of_that_file_is_not_followed(place, attachable, name):
    victim = place / "thesis.txt"
    victim.write_text("years of work")
    (watch_folder.own_folder(str(place)) / name).symlink_to(victim)
    assert attach.enter_job(attachable, Path("/dev/shm/watch"), None)
    assert victim.read_text() == "years of work"
    assert watch_folder.attach_file(attachable).read_text() == "/dev/shm/watch/orders.json"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder another user's")
@pytest.mark.parametrize("how", ["theirs", "open to all", "a link"])
def test_a_folder_that_another_user_has_made_is_refused_and_untouched(place, how):
    folder = watch_folder.user_folder(str(place))
    if how == "a link":
        (place / "elsewhere").mkdir()
        folder.symlink_to(place / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777 if how == "open to all" else 0o700)
        os.chown(folder, SOMEBODY if how == "theirs" else 0, -1)
    with pytest.raises(PermissionError, match="not a folder of yours alone"):
        watch_folder.own_folder(str(place))
    assert list(folder.iterdir()) == []


def test_only_folders_whose_owner_is_gone_are_abandoned(place):
    own = watch_folder.own_folder(str(place))
    lives = place / "stash-watch-a"
    left = place / "stash-watch-b"
    inside = own / "stash-watch-c"
    unknown = place / "stash-watch-d"
    for folder in (lives, left, inside, unknown):
        folder.mkdir()
    (place / "stash-watch-link").symlink_to(left)
    held = claim(lives)
    for folder in (left, inside):
        os.close(claim(folder))
    try:
        assert set(watch_folder.abandoned_folders()) == {left, inside}
    finally:
        os.close(held)


def test_orders_of_a_watcher_that_was_killed_are_told_to_nobody(place):
    own = watch_folder.own_folder(str(place))
    (place / "orders.json").touch()
    (own / "attach-1").write_text(str(place / "orders.json"))
    (own / "attach-2").write_text(str(place / "gone" / "orders.json"))
    watch_folder.remove_stale_orders()
    assert [path.name for path in own.iterdir()] == ["attach-1"]
