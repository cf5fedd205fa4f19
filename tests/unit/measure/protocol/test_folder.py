"""Who owns a run's folder: seen by a lock, and unknown where a lock would say nothing."""

import os
import subprocess
import sys

from stash.measure.protocol import folder

HOLDER = """
import sys, time
from pathlib import Path
from stash.measure.protocol.folder import claim
claim(Path(sys.argv[1]))
print("claimed", flush=True)
time.sleep(600)
"""


def test_an_owner_is_seen_until_it_dies_however_it_does(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert holder.stdout.readline() == "claimed\n"
        assert folder.has_owner(tmp_path) is True
        assert folder.is_run(tmp_path)
    finally:
        holder.kill()
        holder.wait(60)
    assert folder.has_owner(tmp_path) is False


def test_a_folder_that_is_gone_has_no_owner(tmp_path):
    assert folder.has_owner(tmp_path / "gone") is False


def test_a_lock_of_another_kernel_tells_nothing(tmp_path, monkeypatch):
    os.close(folder.claim(tmp_path))
    assert folder.has_owner(tmp_path) is False
    monkeypatch.setattr(folder, "_BOOT", tmp_path / "boot_id")
    assert folder.has_owner(tmp_path) is None
    (tmp_path / "boot_id").write_text("another\n")
    assert folder.has_owner(tmp_path) is None


def test_nor_does_a_file_system_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "lock", lambda descriptor, shared=False: None)
    os.close(folder.claim(tmp_path))
    assert folder.has_owner(tmp_path) is None


def test_a_folder_can_stay_without_an_owner(tmp_path):
    os.close(folder.claim(tmp_path))
    folder.disown_folder(tmp_path)
    assert folder.has_owner(tmp_path) is None
    assert folder.is_run(tmp_path)


def test_a_folder_of_the_users_own_is_no_run(tmp_path):
    assert not folder.is_run(tmp_path)
    (tmp_path / "owner").write_text("me")
    assert not folder.is_run(tmp_path)


def test_a_lock_keeps_others_out_and_a_shared_one_only_those_that_do_not_share(tmp_path):
    first, second = (os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert folder.lock(first, shared=True)
    assert folder.lock(second, shared=True)
    assert folder.lock(second) is False
    os.close(first)
    assert folder.lock(second)
    os.close(second)
