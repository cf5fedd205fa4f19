"""Files of the user's: whatever a job does to them, they are as they were afterwards."""

import errno
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

from stash.measure.protocol import file_backup
from stash.measure.protocol.file_backup import FileBackup, entries_of
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.put_back import RestoreReport, put_back
from stash.measure.protocol.put_back import _undo_entry as _really_undo

OLD = b"what the user had" * 100


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that was started in a folder of the test's own, where originals step aside to."""
    monkeypatch.chdir(tmp_path)
    launch = tmp_path / "stash-run" / "launch"
    launch.mkdir(parents=True)
    return RunFolder(launch)


@pytest.fixture
def file(tmp_path):
    """A file of the user's, an hour old."""
    path = tmp_path / "work" / "last.pt"
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(0o640)
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))
    return path


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The job does not work in the temporary folder, as tests do."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))


def refused(*arguments, **settings):
    raise PermissionError(1, "Operation not permitted")


def keeper(run, **answers):
    return FileBackup(run, began=time.time() - 60, **answers)


def rewrite(keeps, path):
    keeps.before_writing(str(path), truncates=True)
    path.write_bytes(b"of the job")


def change_in_place(keeps, path):
    keeps.before_writing(str(path), truncates=False)
    assert path.read_bytes() == OLD  # the job finds what it expects
    with path.open("r+b") as file:
        file.write(b"XX")


def remove(keeps, path):
    keeps.before_removing(str(path))
    path.unlink()


def remove_with_its_folder(keeps, path):
    keeps.before_removing(str(path))
    shutil.rmtree(path.parent)


def replace(keeps, path):
    fresh = path.with_name("fresh")
    fresh.write_bytes(b"of the job")
    keeps.before_moving(str(fresh), str(path))
    fresh.replace(path)


def make(keeps, folder):
    keeps.before_making(str(folder))
    folder.mkdir()


def move(keeps, path, to):
    keeps.before_moving(str(path), str(to))
    path.rename(to)


def move_away(keeps, path):
    move(keeps, path, path.with_name("moved"))


def move_away_and_rewrite(keeps, path):
    move_away(keeps, path)
    rewrite(keeps, path.with_name("moved"))


def rewrite_twice(keeps, path):
    rewrite(keeps, path)
    remove(keeps, path)
    rewrite(keeps, path)


CHANGES = [
    rewrite,
    rewrite_twice,
    change_in_place,
    remove,
    remove_with_its_folder,
    replace,
    move_away,
    move_away_and_rewrite,
]


@pytest.mark.parametrize("age", [3600, -86400])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_is_as_it_was_whatever_the_job_did_and_its_clock_says(run, file, change, age):
    dated(file, time.time() - age)
    before = file.stat()
    change(keeper(run), file)
    outcome = put_back(run.kept)
    after = file.stat()
    assert file.read_bytes() == OLD
    assert (after.st_ino, after.st_mtime, after.st_mode) == (
        before.st_ino,
        before.st_mtime,
        before.st_mode,
    )
    assert str(file) in outcome.restored
    assert not list(file.parent.parent.rglob(".*")), "nothing is left of the attic"


def dated(path, moment):
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("ahead", [86400, -86400])
def test_what_the_job_itself_makes_is_its_own_whatever_its_time(run, tmp_path, ahead):
    keeps, path, folder = keeper(run), tmp_path / "probe", tmp_path / "saving"
    keeps.before_writing(str(path), truncates=False)
    path.write_bytes(b"blat")
    dated(path, time.time() + ahead)
    rewrite(keeps, path)
    dated(path, time.time() + ahead)
    replaced = tmp_path / "last"
    move(keeps, path, replaced)
    remove(keeps, replaced)
    make(keeps, folder)
    dated(folder, time.time() + ahead)
    move(keeps, folder, tmp_path / "saved")
    assert not run.kept.exists()


@pytest.mark.parametrize("removes", [True, False])
def test_a_file_of_the_users_that_takes_the_name_of_one_of_the_job_is_kept(run, file, removes):
    keeps, own = keeper(run), file.with_name("own")
    rewrite(keeps, own)
    if removes:
        remove(keeps, own)
    keeps.before_moving(str(file), str(own))
    file.replace(own)
    change_in_place(keeps, own)
    put_back(run.kept)
    assert file.read_bytes() == OLD


def test_what_a_server_with_a_fast_clock_dates_is_kept_once(run, file):
    tomorrow, keeps = time.time() + 86400, keeper(run)
    os.utime(file, (tomorrow, tomorrow))
    for _ in range(3):
        rewrite(keeps, file)
        os.utime(file, (tomorrow, tomorrow))
    assert len(run.kept.read_text().splitlines()) == 1
    put_back(run.kept)
    assert file.read_bytes() == OLD


def test_two_processes_of_the_job_keep_a_file_once(run, file):
    for _ in range(2):
        rewrite(keeper(run), file)
    assert len(run.kept.read_text().splitlines()) == 1
    put_back(run.kept)
    assert file.read_bytes() == OLD


def test_a_link_is_kept_as_a_link_and_written_through(run, file):
    link = file.with_name("latest.pt")
    link.symlink_to(file.name)
    os.utime(link, (1, 1), follow_symlinks=False)
    keeps = keeper(run)
    rewrite(keeps, link)
    remove(keeps, link)
    link.symlink_to("elsewhere")
    put_back(run.kept)
    assert os.readlink(link) == file.name
    assert file.read_bytes() == OLD


@pytest.mark.parametrize("target", ["nowhere", "folder", "last.pt"])
def test_a_link_that_cannot_be_hard_linked_leads_where_it_led_and_nothing_is_written_through_it(
    run, file, monkeypatch, target
):
    # GIVEN a link of another user's, or on a file system without hard links
    monkeypatch.setattr(os, "link", refused)
    (file.parent / "folder").mkdir()
    other = shutil.copy2(file, file.with_name("best.pt"))
    link = file.with_name("latest.pt")
    link.symlink_to(target)
    os.utime(link, (1, 1), follow_symlinks=False)
    # WHEN the job lets it lead to another file of the user's
    remove(keeper(run), link)
    link.symlink_to(other.name)
    found = put_back(run.kept)
    # THEN it leads where it did, and that file is what it was
    assert os.readlink(link) == target
    assert found == RestoreReport(restored=(str(link),))
    assert (other.read_bytes(), file.read_bytes()) == (OLD, OLD)


@pytest.mark.parametrize("content", [OLD, b""])
def test_what_is_put_back_over_a_link_of_the_jobs_does_not_go_through_it(
    run, file, monkeypatch, content
):
    monkeypatch.setattr(os, "link", refused)
    other = shutil.copy2(file, file.with_name("best.pt"))
    file.write_bytes(content)
    os.utime(file, (1, 1))
    keeps = keeper(run)
    rewrite(keeps, file)
    file.unlink()
    file.symlink_to(other.name)
    put_back(run.kept)
    assert (file.is_symlink(), file.read_bytes(), other.read_bytes()) == (False, content, OLD)


@pytest.mark.parametrize(
    ("refuses", "truncates"), [("replace", True), ("replace", False), ("open", True)]
)
def test_a_file_that_may_be_written_in_a_folder_that_may_not_is_written_where_it_is(
    run, file, monkeypatch, refuses, truncates
):
    # GIVEN a sticky folder in which the file is another user's, or one in which nothing may be made
    before, keeps, real = file.stat(), keeper(run), getattr(os, refuses)
    with monkeypatch.context() as folder:
        folder.setattr(
            os,
            refuses,
            lambda path, *rest: (refused if Path(path).parent == file.parent else real)(
                path, *rest
            ),
        )
        keeps.before_writing(str(file), truncates)
    # WHEN the job writes there
    file.write_bytes(b"of the job")
    assert file.stat().st_ino == before.st_ino
    # THEN its content is put back where it is
    assert put_back(run.kept).restored == (str(file),)
    after = file.stat()
    assert (after.st_ino, after.st_mtime, file.read_bytes()) == (
        before.st_ino,
        before.st_mtime,
        OLD,
    )
    assert not list(file.parent.parent.rglob(".*"))


def test_a_name_that_the_job_gave_a_file_of_the_users_is_gone(run, file):
    """While both name one inode, renaming one to the other does nothing: the next backup would be lost."""
    backup, older = file.with_name("last.bak"), file.with_name("last.bak.1")
    keeps = keeper(run)
    for source, target in ((file, backup), (backup, older)):
        move(keeps, source, target)
        rewrite(keeps, file)
    rewrite(keeps, older)
    assert put_back(run.kept).restored == (str(file),)
    assert (file.read_bytes(), file.stat().st_nlink) == (OLD, 1)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_file_that_is_moved_to_another_file_system_is_put_back_once(run, file, tmp_path):
    keeps, away = keeper(run), tmp_path / "scratch.pt"
    keeps.before_moving(str(file), str(away))  # renaming fails: shutil copies it, and removes it
    shutil.copy2(file, away)
    remove(keeps, file)
    assert put_back(run.kept).restored == (str(file),)
    assert (file.read_bytes(), file.stat().st_nlink) == (OLD, 1)
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("content", [None, b"of the job"])
@pytest.mark.parametrize("passing", [True, False])
def test_a_folder_that_was_rotated_away_has_its_name_again_and_that_of_the_job_stays_beside_it(
    run, file, tmp_path, passing, content
):
    # GIVEN a script that renames its output folder, makes a new one and saves there under the same name
    keeps = keeper(run, passing=lambda: passing)
    out, old = file.parent, tmp_path / "work_old"
    empty = out / "done"
    empty.touch()
    for path in (empty, out):
        dated(path, 1)
    move(keeps, out, old)
    make(keeps, out)
    if content is not None:
        for path in (file, empty):
            keeps.before_writing(str(path), truncates=True)
            keeps.writes_new_file(str(path))
            path.write_bytes(content)
    found = put_back(run.kept)
    # THEN the user's folder is whole, and what is left of the job's has another name, which is told
    assert (file.read_bytes(), empty.read_bytes()) == (OLD, b"")
    assert not old.exists()
    left = tmp_path / "work.of-the-job"
    stays = content is not None and not passing
    assert found == RestoreReport(restored=(str(out),), new=(str(left),) if stays else ())
    assert left.exists() is stays
    assert not run.kept.exists()


def test_what_is_made_before_training_is_named_once_and_stays(run, tmp_path):
    keeps = keeper(run)
    prepared, part = tmp_path / "prepared", tmp_path / "prepared" / "part"
    for folder in (prepared, part):
        keeps.before_appearing(str(folder))
        make(keeps, folder)
    marks = [part / "0.bin", part / "done", tmp_path / "start.pt"]
    for path in marks:
        keeps.before_appearing(str(path))
        path.touch()
    gone = tmp_path / "gone.tmp"
    keeps.before_appearing(str(gone))
    epoch = part / "epoch.pt"
    keeps.writes_new_file(str(epoch))
    epoch.write_text("of the job")
    assert len(entries_of(run.kept) or entries_of(run.kept_here) or ()) == 4
    found = put_back(run.kept) + put_back(run.kept_here)
    # THEN even what is empty stays, such as a mark that data are prepared, and a folder stands for what is in it
    assert found == RestoreReport(new=(str(prepared), str(tmp_path / "start.pt")))
    assert all(path.exists() for path in marks)


def test_folders_that_could_not_be_renamed_stay_as_they_are(run, file, tmp_path):
    other = tmp_path / "work_old"
    other.mkdir()
    (other / "mine").touch()
    dated(file.parent, 1)
    keeper(run).before_moving(str(file.parent), str(other))  # fails: there is something in it
    assert put_back(run.kept) == RestoreReport()
    assert [path.name for path in other.iterdir()] == ["mine"]
    assert file.read_bytes() == OLD


def test_what_was_kept_of_a_folder_waits_until_it_has_its_name_again(
    run, file, tmp_path, monkeypatch
):
    keeps, old = keeper(run), tmp_path / "work_old"
    before = file.parent.stat()
    rewrite(keeps, file)
    dated(file.parent, before.st_mtime - 3600)
    move(keeps, file.parent, old)
    file.parent.mkdir()
    (file.parent / "log").touch()
    with monkeypatch.context() as now:
        now.setattr(os, "rename", refused)
        assert len(put_back(run.kept).unprotected) == 2
    assert put_back(run.kept).restored == (str(file.parent), str(file))
    assert file.read_bytes() == OLD


def write_until_full(descriptor, line, write=os.write):
    """What is left on the disk is room for the beginning of a line."""
    if not line.startswith(b"{"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(descriptor, line[:20])


def test_a_line_that_the_full_disk_cut_short_spoils_none_that_follows(run, file, monkeypatch):
    keeps = keeper(run)
    with monkeypatch.context() as full:
        full.setattr(os, "write", write_until_full)
        keeps.writes_new_file(str(file.with_name("new.pt")))
    rewrite(keeps, file)
    assert put_back(run.kept).restored == (str(file),)
    assert file.read_bytes() == OLD


def test_an_empty_file_a_lock_perhaps_stays_where_it_is_and_is_emptied_again(run, file):
    file.write_bytes(b"")
    os.utime(file, (1, 1))
    inode = file.stat().st_ino
    keeper(run).before_writing(str(file), truncates=True)
    file.write_text("4711")
    assert file.stat().st_ino == inode
    put_back(run.kept)
    assert file.read_bytes() == b""


def test_a_long_log_is_cut_to_its_length_and_what_is_too_large_is_named(run, file, monkeypatch):
    monkeypatch.setattr(file_backup, "MAX_COPIED", 10)
    monkeypatch.setattr(file_backup, "_can_clone", lambda path: False)
    database = file.with_name("data.mdb")
    shutil.copy2(file, database)
    keeps = keeper(run)
    keeps.before_writing(str(file), truncates=False, appends=True)
    with file.open("ab") as log:
        log.write(b"one line more")
    keeps.before_writing(str(database), truncates=False)
    outcome = put_back(run.kept)
    assert file.read_bytes() == OLD
    assert outcome.unprotected == (f"{database} (too large to keep)",)


def test_what_the_job_made_itself_is_its_own(run, tmp_path):
    mine = tmp_path / "new.pt"
    keeps = keeper(run)
    keeps.writes_new_file(str(mine))
    mine.write_text("first")
    rewrite(keeps, mine)
    gone = tmp_path / "gone.pt"
    keeps.writes_new_file(str(gone))
    cached = Path(tempfile.gettempdir()) / "torchinductor_me" / "kernel.so"
    for others in (run.crash("0"), cached):  # Stash's, and what a compiler keeps for the next start
        keeps.writes_new_file(str(others))
    run.crash("0").touch()
    outcome = put_back(run.kept)
    assert (outcome.restored, outcome.new) == ((), (str(mine),))
    assert mine.read_text() == "of the job"
    assert put_back(run.kept) == RestoreReport()


def test_nothing_is_touched_that_the_full_disk_could_not_note(run, file, monkeypatch):
    keeps = keeper(run)
    with monkeypatch.context() as full:
        full.setattr(os, "write", write_until_full)
        with pytest.raises(OSError, match="No space left"):
            keeps.before_writing(str(file), truncates=True)
    assert file.read_bytes() == OLD
    assert [path for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_what_cannot_be_put_back_now_stays_in_the_ledger_for_the_next_attempt(
    run, file, monkeypatch
):
    monkeypatch.setattr(os, "link", refused)
    before = file.stat()
    rewrite(keeper(run), file)
    file.unlink()
    file.mkdir()
    (unprotected,) = put_back(run.kept).unprotected
    assert unprotected.startswith(f"{file} (Is a directory; as it was, it is ")
    assert unprotected.endswith("; `stash restore` tries again)")
    file.rmdir()
    assert put_back(run.kept).restored == (str(file),)
    assert (file.read_bytes(), file.stat().st_mtime) == (OLD, before.st_mtime)
    assert not run.kept.exists()


def test_half_a_copy_on_a_disk_that_is_full_undoes_nothing(run, file, monkeypatch):
    def full(source, target):
        Path(target).write_bytes(OLD[:9])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as copying:
        copying.setattr(os, "link", refused)
        copying.setattr(file_backup, "_copy_content", full)
        with pytest.raises(OSError, match="No space left"):
            keeper(run).before_writing(str(file), truncates=False)
    assert put_back(run.kept).restored == ()
    assert file.read_bytes() == OLD


def test_what_was_put_in_its_place_since_stays_whatever_the_time_of_its_content(run, file):
    rewrite(keeper(run), file)
    last = time.time()
    time.sleep(0.02)
    (file.parent / "good.pt").write_bytes(b"of a friend")
    dated(file.parent / "good.pt", 1)
    (file.parent / "good.pt").replace(file)
    (unprotected,) = put_back(run.kept, last).unprotected
    assert file.read_bytes() == b"of a friend"
    assert (file.parent / "last.pt.as-it-was").read_bytes() == OLD
    assert unprotected == f"{file} (another one is there now; as it was, it is {file}.as-it-was)"


def test_a_new_file_that_is_empty_was_a_placeholder_and_goes(run, tmp_path):
    keeps, path = keeper(run), tmp_path / "last.pt"
    keeps.writes_new_file(str(path))
    path.touch()
    assert put_back(run.kept).new == ()
    assert not path.exists()


def test_what_python_compiled_it_may_compile_again(run, file):
    compiled = file.parent / "__pycache__" / "model.cpython-311.pyc"
    compiled.parent.mkdir()
    file.rename(compiled)
    rewrite(keeper(run), compiled)
    assert compiled.read_bytes() == b"of the job"
    assert not run.kept.exists()


@pytest.mark.usefixtures("elsewhere")
def test_what_a_trial_makes_goes_again_and_the_rest_stays(run, file, tmp_path):
    # GIVEN a trial, whose script saves beside a checkpoint of the user's, by way of a file with another name
    keeps = keeper(run, passing=lambda: True)
    rewrite(keeps, file)
    out, mine = tmp_path / "out", tmp_path / "out" / "mine.txt"
    make(keeps, out)
    draft, saved = out / "draft", out / "epoch-1.pt"
    rewrite(keeps, draft)
    move(keeps, draft, saved)
    # AND samples that are kept for the next trial
    samples = run.run_path / "samples"
    make(keeps, samples)
    # WHEN the trial ends
    found = put_back(run.kept)
    # THEN the user's file is as it was, what the job made is gone, with its folder, and the samples are there
    assert file.read_bytes() == OLD
    assert found == RestoreReport(restored=(str(file),))
    assert not out.exists()
    assert samples.is_dir()
    # AND a folder in which somebody else has put something stays
    make(keeps, out)
    mine.write_text("mine")
    put_back(run.kept)
    assert mine.read_text() == "mine"


@pytest.mark.usefixtures("elsewhere")
def test_a_folder_that_is_saved_under_another_name_and_then_renamed_goes_with_what_is_in_it(
    run, tmp_path
):
    # GIVEN a checkpoint of two processes, in a folder that gets its name when it is whole
    keepers = [keeper(run, passing=lambda: True) for _ in range(2)]
    draft, saved = tmp_path / "draft", tmp_path / "epoch-1"
    # as Path.mkdir(parents=True) does, before what is above it
    keepers[0].before_making(str(draft / "part"))
    for keeps in keepers:  # at the same time
        keeps.before_making(str(draft))
    (draft / "part").mkdir(parents=True)
    for rank, keeps in enumerate(keepers):
        rewrite(keeps, draft / f"{rank}.pt")
    move(keepers[0], draft, saved)
    # WHEN the job has ended, THEN nothing of it is left, under either name
    assert put_back(run.kept) == RestoreReport()
    assert not saved.exists()
    assert not run.kept.exists()


def checkpoint(keeps, folder, saving):
    """A folder of its own: weights, whose saving is told, and a manifest that is a file like any other."""
    keeps.before_making(str(folder))
    folder.mkdir(parents=True)
    saving.append(1)
    for file in (folder / "weights.pt", folder / "meta.json"):
        rewrite(keeps, file)
        saving.clear()


@pytest.mark.usefixtures("elsewhere")
def test_a_folder_made_while_training_goes_whole_with_the_checkpoint_in_it(run, file, tmp_path):
    # GIVEN folders of which one was made before training, and one is renamed once it is whole
    saving, trains = list[int](), list[int]()
    keeps = keeper(run, passing=lambda: bool(saving), trains=lambda: bool(trains))
    early, folder, renamed = (tmp_path / "work" / name for name in ("early", "1", "tmp-2"))
    checkpoint(keeps, early, saving)
    trains.append(1)
    for path in (folder, renamed):
        checkpoint(keeps, path, saving)
    move(keeps, renamed, tmp_path / "work" / "2")
    # AND one that the job trained beside, and saved nothing into
    pictures = tmp_path / "work" / "pictures"
    make(keeps, pictures)
    rewrite(keeps, pictures / "1.png")
    # WHEN the job has ended THEN half a checkpoint is nowhere, and all else is there
    assert put_back(run.kept) == RestoreReport()
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == [
        "early",
        "last.pt",
        "pictures",
    ]
    assert (pictures / "1.png").exists()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("since", ["moved there by the job", "put there since"])
def test_a_folder_of_the_jobs_with_something_of_the_users_in_it_stays(
    run, file, tmp_path, monkeypatch, since
):
    saving = []
    keeps = keeper(run, passing=lambda: bool(saving), trains=lambda: True)
    folder = tmp_path / "1"
    checkpoint(keeps, folder, saving)
    if since == "moved there by the job":
        hour_ago = time.time() - 3600
        os.utime(file.parent, (hour_ago, hour_ago))
        move(keeps, file.parent, folder / "before")
        mine, last = folder / "before" / file.name, time.time() + 60
        monkeypatch.setattr("stash.measure.protocol.put_back._undo_entry", _refuse_moves)
    else:
        mine, last = folder / "mine.txt", time.time() - 30
        mine.write_bytes(OLD)
    outcome = put_back(run.kept, last=last)
    assert mine.read_bytes() == OLD
    assert any(str(folder) in sentence for sentence in outcome.unprotected)


def _refuse_moves(kept):
    """A folder that could not be given its name again, as where a disk is full or rights are missing."""
    if kept.how == "moved":
        refused()
    _really_undo(kept)


@pytest.mark.usefixtures("elsewhere")
def test_a_folder_made_before_training_goes_if_it_is_left_empty(run, tmp_path):
    """So does a file that was there at the first step, of this launch, and is written again."""
    trains = []
    keeps = keeper(run, passing=lambda: bool(trains))
    data, runs = tmp_path / "data", tmp_path / "runs"
    for folder in (data, runs):
        make(keeps, folder)
    for file in (data / "samples.npy", runs / "last.pt"):
        keeps.before_writing(str(file), truncates=True)
        file.write_bytes(b"untrained")
    trains.append(1)
    keeps.before_writing(str(runs / "last.pt"), truncates=True)
    put_back(run.kept)
    assert not runs.exists()
    assert (data / "samples.npy").exists()


@pytest.mark.parametrize(
    ("work", "home", "goes"),
    [
        ("work", "work", True),
        ("work", ".", True),
        ("work", "elsewhere", True),
        ("tmpabcd_123", ".", False),
        ("tmpabcd_123", "tmpabcd_123", True),  # a script at work in a folder that Python named
    ],
)
def test_in_the_temporary_folder_only_what_libraries_keep_there_stays(
    run,
    tmp_path,
    monkeypatch,
    work,
    home,
    goes,
):
    # GIVEN a script that somebody tries out in the temporary folder, or in one of a library's
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in (work, home):
        (tmp_path / name).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / home)
    keeps = keeper(run, passing=lambda: True)
    made = tmp_path / work / "last.pt"
    rewrite(keeps, made)
    put_back(run.kept)
    assert made.exists() is not goes


@pytest.mark.parametrize("truncates", [True, False])
def test_a_file_of_the_users_at_a_name_that_the_job_gave_up_is_never_removed(
    run, file, monkeypatch, truncates
):
    # GIVEN a file that the job made and removed, and an old one of the user's, moved there since
    monkeypatch.setattr("tempfile.tempdir", str(file.parent / "elsewhere"))
    keeps, name = keeper(run, passing=lambda: True), file.parent / "next.pt"
    rewrite(keeps, name)
    remove(keeps, name)
    file.rename(name)
    # WHEN the job writes there again
    keeps.before_writing(str(name), truncates=truncates)
    name.write_bytes(b"of the job")
    put_back(run.kept)
    assert name.read_bytes() == OLD


def test_nothing_is_asked_of_tempfile_while_it_holds_its_lock(run, tmp_path, monkeypatch):
    """As where the first to ask for the temporary folder is torch, and the file that tempfile tries is an event."""
    keeps = keeper(run, passing=lambda: True)
    monkeypatch.setattr("tempfile.tempdir", None)
    noting = threading.Thread(
        target=keeps.before_writing, args=(str(tmp_path / "new"), True), daemon=True
    )
    with tempfile._once_lock:
        noting.start()
        noting.join(10)
        assert not noting.is_alive()
