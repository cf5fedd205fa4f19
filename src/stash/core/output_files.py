"""Where an answer goes: the file that ``--output`` names, checked before time is spent, written whole or not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from stash.core.errors import ArtefactError, UserError
from stash.core.files import write_whole


def output_file(wanted: Path | None, stem: str, suffix: str) -> Path:
    """``wanted``, or a new file named after ``stem``; raises UserError if it cannot be written."""
    if wanted is None:
        from stash.core.documents import iter_free_names

        names = iter_free_names(Path(f"{stem}{suffix}"), suffix)
        # never over an earlier one
        wanted = next(path for path in names if not os.path.lexists(path))
    folder = wanted.parent
    if wanted.exists() and not wanted.is_file() and not wanted.is_dir():
        raise UserError(f"--output {wanted} is not a regular file; name one, like run{suffix}")
    if wanted.is_dir():
        raise UserError(
            f"--output {wanted} is a folder; name a file, like {wanted / ('run' + suffix)}"
        )
    if not folder.is_dir():
        raise UserError(
            f"--output {wanted}: there is no folder {folder}; make it, or choose another place"
        )
    if not os.access(folder, os.W_OK):
        raise UserError(
            f"--output {wanted}: the folder {folder.resolve()} is not writable; choose another with -o"
        )
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"--output {wanted}: {error.strerror}; choose another place with -o"
        ) from None
    return wanted


def write_output(target: Path, content: str | bytes, new: bool = False) -> None:
    """Put ``content`` at ``target``, whole or not at all; raises ArtefactError, which says why not.

    A ``new`` file replaces none that came there meanwhile. It is its owner's alone, unless it replaces one
    that others may read.
    """
    try:
        write_whole(target, content, mode=None, new=new)
    except OSError as error:
        raise ArtefactError(
            f"cannot write {target}: {error.strerror or error}; nothing was written, so choose another place with "
            "--output"
        ) from error


def answer_file(wanted: Path, inputs: Iterable[str] = ()) -> Path:
    """The same for an answer made of ``inputs``: raises UserError too where it would replace what was measured."""
    from stash.core.documents import KINDS

    if wanted.name.endswith(tuple(kind.suffix for kind in KINDS)):
        raise UserError(
            f"--output {wanted}: what was measured or planned ends so; choose another name"
        )
    if any(is_same(wanted, each) for each in inputs):
        raise UserError(f"--output {wanted} is what the answer is made of; choose another file")
    return output_file(wanted, "", wanted.suffix)


def is_same(output: Path, file: str) -> bool:
    """Whether both are the same file."""
    try:
        return output.samefile(file)
    except (OSError, ValueError):  # one of them is not there: a new file, an address
        return False
