"""Where an artefact goes: the file that was asked for, or a new one, checked before time is spent measuring."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from stash.base.errors import UserError


def output_file(wanted: Path | None, stem: str, suffix: str) -> Path:
    """``wanted``, or a new file named after ``stem``; raises UserError if it cannot be written."""
    if wanted is None:
        numbers = itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
        names = (Path(f"{stem}{number}{suffix}") for number in numbers)
        wanted = next(path for path in names if not path.exists())  # never over an earlier one
    folder = wanted.parent
    if wanted.exists() and not wanted.is_file() and not wanted.is_dir():
        raise UserError(f"--output {wanted} is not a regular file; name one, like run{suffix}")
    if wanted.is_dir():
        raise UserError(f"--output {wanted} is a folder; name a file, like {wanted / ('run' + suffix)}")
    if not folder.is_dir():
        raise UserError(f"--output {wanted}: there is no folder {folder}; make it, or choose another place")
    if not os.access(folder, os.W_OK):
        raise UserError(f"--output {wanted}: the folder {folder.resolve()} is not writable; choose another with -o")
    try:
        trial = folder / f".{wanted.name}.{os.getpid()}"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise UserError(f"--output {wanted}: {error.strerror}; choose another place with -o") from None
    return wanted
