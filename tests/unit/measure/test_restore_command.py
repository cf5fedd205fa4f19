"""``stash restore``, and that every other command restores first and says so."""

import os
import sys
import time

import pytest

from stash.cli.main import main
from stash.measure.protocol import folder, put_back
from stash.measure.protocol.file_backup import FileBackup
from stash.measure.protocol.folder import RunFolder

NOTHING = "nothing to put back: no profile that was killed has left a file changed\n"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that the job of a profile wrote over that was killed with its guardian."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "last.pt"
    path.write_text("the user's")
    os.utime(path, (1, 1))
    made = put_back.claim_for_run(tmp_path / "stash-run")
    (tmp_path / "stash-run").mkdir()
    (tmp_path / "stash-run" / "kept").symlink_to(made[0])
    keeper = FileBackup(RunFolder(tmp_path / "stash-run" / "launch-0-0"), time.time() - 60)
    keeper.before_writing(str(path), truncates=True)
    path.write_text("of the job")
    os.close(made[1])
    return path


def typed(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["stash", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_dry_run_names_what_would_be_put_back_from_where(file, monkeypatch, capsys):
    assert typed(monkeypatch, "restore", "--dry-run") == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"  {file} would be put back, from {file.parent}/state/stash/kept/stash-run-"
    )
    assert file.read_text() == "of the job"


def test_it_puts_back_and_says_what_and_then_there_is_nothing(file, monkeypatch, capsys):
    assert typed(monkeypatch, "restore") == 0
    assert capsys.readouterr().out == (
        "put back as before, since the job wrote to or removed 1 file: last.pt\n"
    )
    assert file.read_text() == "the user's"
    assert typed(monkeypatch, "restore") == 0
    assert capsys.readouterr().out == NOTHING


def test_what_may_still_run_on_another_machine_is_restored_only_when_that_is_asked_for(
    file, monkeypatch, capsys
):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(folder, "_kernel_id", lambda: b"of another machine")
        assert typed(elsewhere, "lab", "zoo") == 0
        assert "earlier profile" not in capsys.readouterr().err
        assert typed(elsewhere, "restore") == 0
        out = capsys.readouterr().out
        assert out.startswith(
            f"of a profile on the machine {os.uname().nodename}, which may still run:\n  {file} would"
        )
        assert file.read_text() == "of the job"
        assert typed(elsewhere, "restore", "--other-machines") == 0
    assert file.read_text() == "the user's"


def test_what_cannot_be_put_back_is_named_and_is_no_success(file, monkeypatch, capsys):
    file.unlink()
    file.mkdir()
    assert typed(monkeypatch, "restore") == 1
    assert "`stash restore` tries again" in capsys.readouterr().out
    file.rmdir()
    assert typed(monkeypatch, "restore") == 0
    assert file.read_text() == "the user's"


def test_any_other_command_restores_first_and_says_so_beside_its_output(file, monkeypatch, capsys):
    assert typed(monkeypatch, "lab", "zoo") == 0
    printed = capsys.readouterr()
    assert printed.err == (
        "an earlier profile was killed; put back as before, since the job wrote to or removed 1 file: last.pt\n"
    )
    assert "Workloads that come with Stash" in printed.out
    assert file.read_text() == "the user's"
