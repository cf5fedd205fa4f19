"""The commit that a profile tells: read as git keeps it, in every way it does, and never a reason to fail."""

import shutil
import subprocess

import pytest

from stash.measure.launcher.job import Commit, Job, commit_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder, *words):
    settings = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "init.defaultBranch=m",
    ]
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "repo"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "train.py").write_text("x = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def script(folder):
    return Job("script", str(folder / "pack" / "train.py"))


def test_changed_files_are_said_and_new_ones_are_not(repo):
    (repo / "notes.txt").write_text("")
    assert commit_of(script(repo)) == Commit(git(repo, "rev-parse", "HEAD"), dirty=False)
    (repo / "pack" / "train.py").write_text("x = 2\n")
    assert commit_of(script(repo)).dirty is True


@pytest.mark.parametrize(
    "job",
    [
        Job("command", "torchrun", ("--nproc-per-node=2", "repo/pack/train.py", "--lr", "1")),
        Job("command", "bash", ("repo/pack/train.py",)),
    ],
)
def test_a_command_is_known_by_the_script_in_it(repo, job):
    assert commit_of(job).name == git(repo, "rev-parse", "HEAD")


def test_a_module_is_of_the_folder_that_it_is_started_in(repo, monkeypatch):
    assert commit_of(Job("module", "pack.train")) == Commit()
    monkeypatch.chdir(repo)
    assert commit_of(Job("module", "pack.train")).name == git(repo, "rev-parse", "HEAD")
    assert commit_of(Job("module", "stash.lab.zoo.train", name="resnet18")) == Commit()


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ../../etc/passwd", "\x00\xff"])
def test_a_head_that_is_none_is_not_known(repo, head):
    (repo / ".git" / "HEAD").write_text(head)
    assert commit_of(script(repo)) == Commit()


def test_nothing_of_the_repository_is_run_and_nothing_changed(repo, monkeypatch):
    git(repo, "config", "core.fsmonitor", "touch ran; false")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    index = (repo / ".git" / "index").read_bytes()
    assert commit_of(script(repo)).dirty is False
    assert not (repo / "ran").exists()
    assert (repo / ".git" / "index").read_bytes() == index
