"""Ledgers of kept files outlive their launcher; whose it is, and whether it lives, is told before any is undone."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stash.measure.protocol import folder as owner
from stash.measure.protocol import put_back
from stash.measure.protocol.file_backup import FileBackup, entries_of
from stash.measure.protocol.folder import KEPT, RunFolder

MINUTE, PLACES = 60.0, put_back.backup_places
HOLDER = """
import sys, time
from pathlib import Path
from stash.measure.protocol.put_back import claim_for_run
print(claim_for_run(Path(sys.argv[1]))[0], flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(
        put_back,
        "backup_places",
        lambda: [str(tmp_path / "state/stash/kept"), str(tmp_path / "var/stash-0/kept")],
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state/stash/kept"


def killed_run(tmp_path, name="last.pt"):
    """A run that is gone whose job had written over a file of the user's: where it kept things, and the file."""
    run = tmp_path / f"stash-{Path(name).name}"
    (run / "launch-0-0").mkdir(parents=True)
    made = put_back.claim_for_run(run)
    (run / KEPT).symlink_to(made[0])
    file = tmp_path / name
    file.write_text("the user's")
    os.utime(file, (1, 1))
    FileBackup(RunFolder(run / "launch-0-0"), time.time() - MINUTE).before_writing(
        str(file), truncates=True
    )
    file.write_text("of the job")
    os.close(made[1])
    return made[0], file


def test_a_killed_runs_files_are_found_and_put_back_without_its_temporary_folder(tmp_path, place):
    folder, file = killed_run(tmp_path)
    (tmp_path / "stash-last.pt" / KEPT).unlink()
    # not where the job works
    assert [path.read_text() for path in folder.rglob("last.pt.*")] == ["the user's"]
    assert not list(tmp_path.glob(".*"))
    assert put_back.find_abandoned() == [folder]
    assert put_back.restore_run(folder).restored == (str(file),)
    assert file.read_text() == "the user's"
    assert list(place.iterdir()) == put_back.find_abandoned() == []
    assert not list(tmp_path.glob(".kept-by-stash-*"))
    assert put_back.restore_run(folder).restored == ()  # somebody else was faster


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_an_original_of_another_file_system_steps_aside_at_its_top(place, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        if os.stat(shared).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("the temporary folder is in memory, too")
        (Path(shared) / "work").mkdir()
        os.chdir(Path(shared) / "work")
        folder, file = killed_run(tmp_path, f"{shared}/work/last.pt")
        (kept,) = [
            each for ledger in put_back.list_ledgers(folder) for each in entries_of(ledger) or ()
        ]
        assert Path(kept.other).parent.parent == Path("/dev/shm")
        assert not list(Path(shared).rglob(".*"))
        assert put_back.restore_run(folder).restored == (str(file),)
        assert file.read_text() == "the user's"
        assert not Path(kept.other).parent.exists()


def test_a_run_whose_launcher_or_guardian_lives_is_not_there_to_be_restored(tmp_path):
    words = (sys.executable, "-c", HOLDER, str(tmp_path / "stash-lives"))
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=variables, cwd=tmp_path
    ) as holder:
        folder = Path(holder.stdout.readline().strip())
        assert put_back.find_abandoned() == []
        assert put_back.restore_run(folder) is None
        holder.kill()
    assert put_back.find_abandoned() == [folder]


def test_what_another_user_made_is_left_alone(tmp_path, monkeypatch):
    killed_run(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert put_back.find_abandoned() == []


def test_where_the_home_cannot_be_written_or_locked_another_private_folder_serves(
    tmp_path, place, monkeypatch
):
    (tmp_path / "state").write_text("no folder")
    folder, _ = killed_run(tmp_path)
    assert folder.parent == tmp_path / "var/stash-0/kept"
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(owner, "lock", lambda descriptor, shared=False: None)
    assert put_back.claim_for_run(tmp_path / "stash-other") is None
    assert put_back.find_abandoned() == [folder]


def test_a_place_that_others_may_have_filled_is_not_believed(tmp_path, place):
    folder, _ = killed_run(tmp_path)
    place.chmod(0o777)
    assert put_back.find_abandoned() == []
    place.chmod(0o700)
    place.parent.rename(tmp_path / "moved")
    place.parent.symlink_to(tmp_path / "moved")
    assert put_back.find_abandoned() == []
    assert folder.exists()


def started_again(tmp_path, monkeypatch, ago):
    """This machine runs another kernel since so many seconds."""
    (tmp_path / "boot_id").write_text("another\n")
    (tmp_path / "stat").write_text(f"cpu 1 2\nbtime {time.time() - ago:.0f}\n")
    monkeypatch.setattr(owner, "_BOOT", tmp_path / "boot_id")
    monkeypatch.setattr(owner, "_STAT", tmp_path / "stat")


def test_after_a_restart_of_the_machine_its_runs_are_over(tmp_path, monkeypatch):
    folder, file = killed_run(tmp_path)
    for path in (file, *folder.iterdir(), folder):
        os.utime(path, (time.time() - 10 * MINUTE,) * 2)
    started_again(tmp_path, monkeypatch, ago=MINUTE)
    assert owner.has_owner(folder) is False
    monkeypatch.setattr(owner, "host_name", lambda: b"another")
    assert owner.has_owner(folder) is None  # a machine that shares this home
    assert owner.machine_of(folder) == os.uname().nodename


def test_one_that_was_written_since_the_restart_is_of_another_machine_of_this_name(
    tmp_path, monkeypatch
):
    folder, _ = killed_run(tmp_path)
    started_again(tmp_path, monkeypatch, ago=MINUTE)
    assert owner.has_owner(folder) is None


def test_what_somebody_changed_since_is_told_by_the_last_sign_of_life_also_at_the_second_attempt(
    tmp_path, monkeypatch
):
    folder, file = killed_run(tmp_path)
    os.utime(folder, (time.time() - MINUTE,) * 2)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as no_room:
        no_room.setattr("shutil.move", full)
        (unprotected,) = put_back.restore_run(folder).unprotected
    assert "No space left" in unprotected
    (unprotected,) = put_back.restore_run(folder).unprotected
    assert unprotected == f"{file} (another one is there now; as it was, it is {file}.as-it-was)"
    assert (file.read_text(), Path(f"{file}.as-it-was").read_text()) == ("of the job", "the user's")
    assert put_back.find_abandoned() == []


def test_the_usual_places_are_the_state_directory_and_what_survives_a_reboot(monkeypatch):
    own = f"/var/tmp/stash-{os.geteuid()}/kept"
    for value, expected in (
        ("/state", "/state/stash/kept"),
        ("relative", "/home/me/.local/state/stash/kept"),
    ):
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert PLACES() == [expected, own]
