"""A run leaves no folder behind, sweeps what others left, and touches nothing else."""

import os

import pytest

from stash.core.errors import UserError
from stash.measure.launcher import neighbours
from stash.measure.launcher.neighbours import TemporaryFolder, sweep_folders
from stash.measure.protocol.file_backup import FileBackup
from stash.measure.protocol.folder import RunFolder, claim, has_owner

WEEK = 7 * 24 * 3600


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_lasts_as_long_as_the_run_and_is_owned(temporary):
    with TemporaryFolder() as folder:
        assert folder.path.parent == temporary
        assert has_owner(folder.path) is True
        assert folder.path.stat().st_mode & 0o777 == 0o700
        (folder.path / "launch").mkdir()
    assert list(temporary.iterdir()) == []


def test_where_nothing_can_be_written_one_sentence_says_so(temporary, monkeypatch):
    def full(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(neighbours, "claim", full)
    with pytest.raises(
        UserError, match=rf"nothing can be written in {temporary} \(No space left on device\); make"
    ):
        TemporaryFolder().__enter__()


def test_a_log_that_is_kept_is_all_that_stays(temporary):
    with TemporaryFolder() as folder:
        launch = folder.path / "launch"
        launch.mkdir()
        (launch / "output.log").write_text("words")
        kept = folder.keep_file(launch / "output.log")
    assert kept.read_text() == "words"
    assert sorted(path.name for path in folder.path.iterdir()) == ["output.log", "owner"]
    sweep_folders(temporary)
    assert kept.exists()
    os.utime(folder.path, (0, folder.path.stat().st_mtime - WEEK - 60))
    sweep_folders(temporary)
    assert not folder.path.exists()


def left_by_a_dead_launcher(folder):
    folder.mkdir()
    os.close(claim(folder))
    return folder


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_of_one_that_runs(temporary):
    dead = left_by_a_dead_launcher(temporary / "stash-dead")
    with TemporaryFolder() as running:
        assert not dead.exists()
        with TemporaryFolder():
            assert running.path.exists()


def test_nothing_that_stash_did_not_make_is_touched(temporary, monkeypatch):
    mine = temporary / "stash-of-photographs"
    mine.mkdir()
    (mine / "owner").write_text("me")
    elsewhere = left_by_a_dead_launcher(temporary / "elsewhere")
    (temporary / "stash-link").symlink_to(elsewhere)
    (temporary / "stash-file").write_text("words")
    for path in (mine, elsewhere):
        os.utime(path, (0, 0))
    sweep_folders(temporary)
    assert {path.name for path in temporary.iterdir()} == {
        mine.name,
        "elsewhere",
        "stash-link",
        "stash-file",
    }
    theirs = left_by_a_dead_launcher(temporary / "stash-theirs")
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    sweep_folders(temporary)
    assert theirs.exists()


def test_what_a_container_kept_is_put_back_before_a_killed_runs_folder_is_removed(temporary):
    dead = left_by_a_dead_launcher(temporary / "stash-dead")
    (dead / "launch-0-0").mkdir()
    (dead / "kept").symlink_to("/nowhere")
    file = temporary / "last.pt"
    file.write_text("the user's")
    os.utime(file, (1, 1))
    FileBackup(RunFolder(dead / "launch-0-0"), began=60.0).before_removing(str(file))
    file.unlink()
    ((aftermath,),) = [sweep_folders(temporary).reports]
    assert aftermath.restored == (str(file),)
    assert file.read_text() == "the user's"
    assert not dead.exists()
