"""The commit of the repository that a job's script is in, and whether files were changed since.

The commit is read from git's own files; only what was changed takes git itself, which is asked with care: it may take
seconds, take no lock and start no program of the repository's. Whatever fails is "not known", never an error.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stash.core.files import read_up_to
from stash.measure.launcher.job import Job

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MAX = 2**22
"""Bytes of ``packed-refs``: one of 50,000 branches."""
_PATIENCE = 3.0
"""Seconds."""
_SCRIPTS = (".py", ".sh", ".bash")


class Commit(NamedTuple):
    """What is known of the repository; both ``None`` where there is none."""

    name: str | None = None
    """The commit, in hexadecimal digits."""
    dirty: bool | None = None
    """Whether files that git knows were changed since; ``None`` if that could not be found out."""


def commit_of(job: Job) -> Commit:
    """Of the repository that the job's script is in, else of the one that it is started in."""
    if job.kind == "module" and job.target.startswith("stash."):
        return Commit()  # a workload of the zoo, or a function: its module is Stash's own
    with suppress(OSError, ValueError):
        folder = _folder(job)
        place = _git(folder)
        name = None if place is None else _head(place)
        if name is not None:
            return Commit(name, _dirty(folder))
    return Commit()


def _folder(job: Job) -> Path:
    """Where the script is; of a module, and of a command that names no script, where it is started."""
    words = (job.target,) if job.kind == "script" else job.command if job.kind == "command" else ()
    scripts = [Path(word) for word in words if word.endswith(_SCRIPTS)]
    there = next((path for path in scripts if path.is_file()), None)
    return Path.cwd() if there is None else there.resolve().parent


def _git(folder: Path) -> Path | None:
    """The repository's own folder, found upwards; a worktree's or a submodule's is named in a file."""
    for above in (folder, *folder.parents):
        place = above / ".git"
        if place.is_dir():
            return place
        if place.is_file():
            kind, _, path = _text(place).partition(":")
            return (above / path.strip()).resolve() if kind == "gitdir" else None
    return None


def _head(place: Path) -> str | None:
    """The commit that is checked out; ``None`` before the first, or where git keeps branches in another way."""
    head = _text(place / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    branch = head.removeprefix("ref:").strip()
    if ".." in branch or branch.startswith("/"):
        return None
    common = place
    with suppress(FileNotFoundError):
        common = (place / _text(place / "commondir").strip()).resolve()
    for folder in (place, common):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = _text(folder / branch).strip()
            return found if _COMMIT.fullmatch(found) else None
    with suppress(FileNotFoundError):
        packed = re.search(rf"^([0-9a-f]+) {re.escape(branch)}$", _text(common / "packed-refs"), re.MULTILINE)
        return packed[1] if packed and _COMMIT.fullmatch(packed[1]) else None
    return None


def _dirty(folder: Path) -> bool | None:
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        said = subprocess.run(
            [*command, "--untracked-files=no", "--ignore-submodules=all"],
            cwd=folder,
            env={**environment, "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):  # no git, a repository of somebody else's, a very large one
        return None
    return bool(said.stdout.strip())


def _text(path: Path) -> str:
    return read_up_to(path, _MAX).decode("utf-8", "replace")
