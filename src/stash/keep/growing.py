"""A profile's file while its rounds are measured: a whole document after the first, and a line for each further one.

Should the launcher be killed, every finished round is in the file. The last ``save`` makes one document of it again.
Such a line is a JSON object of fields that changed, which take the place of those before, and of new blocks.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from stash.base.errors import ArtefactError
from stash.base.records import Profile
from stash.keep.artefact import save, save_new
from stash.keep.columns import to_columns

_KILLED = "interrupted"
"""How a measurement ended whose last word is such a line."""


class Growing:
    """The file of one measurement; a disk that takes no more ends its growing, not the measurement."""

    def __init__(self, target: Path, new: bool = False) -> None:
        self.target = target
        self._must_be_new = new
        self._file: int | None = None
        self._left: tuple[int, int, int] | None = None
        """Device, inode and size of the file as it was left last."""
        self._failed = False
        self._fields: dict[str, Any] = {}
        self.last: Profile | None = None
        """As it was taken last."""

    @property
    def new(self) -> bool:
        """Whether a name that nobody has is still to be taken, or again, as somebody is at work on the one it had."""
        return self._must_be_new and not self._is_ours()

    @property
    def begun(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def take(self, profile: Profile) -> None:
        """Bring the file up to date with a profile that has more rounds than the one before."""
        if self._failed:
            return
        profile = profile.model_copy(update={"ended": _KILLED})
        fields = profile.model_dump(mode="json", exclude={"blocks"})
        try:
            if not self.begun or self.new or not self._continues(profile):
                self._begin(profile)
            elif self._is_ours():
                self._append(profile, fields)
            else:
                self._failed = True  # somebody is at work on the name that was asked for
        except (ArtefactError, OSError):
            self._failed = True  # the last save will say why
        if not self._failed:
            self._fields, self.last = fields, profile

    def close(self, discard: bool = False) -> None:
        """Let go of the file, which is whole; or ``discard`` it, if nothing of the measurement is kept."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        if discard and self._is_ours():
            with contextlib.suppress(OSError):
                self.target.unlink()

    def _is_ours(self) -> bool:
        try:
            return self._left == _identity(os.lstat(self.target))
        except OSError:
            return False

    def _continues(self, profile: Profile) -> bool:
        """Whether the blocks of the file are still the first of the profile's: a rung may have been left out."""
        before = () if self.last is None else self.last.blocks
        return bool(before) and len(profile.blocks) >= len(before) and profile.blocks[len(before) - 1] is before[-1]

    def _begin(self, profile: Profile) -> None:
        self.close()
        if self.new:
            self.target = save_new(profile, self.target)
        else:
            save(profile, self.target)
        # Whoever takes the name from now on has a file of their own: these lines follow this document only.
        self._file = os.open(self.target, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._left = _identity(os.fstat(self._file))

    def _append(self, profile: Profile, fields: dict[str, Any]) -> None:
        assert self._file is not None
        assert self.last is not None
        news = {name: value for name, value in fields.items() if value != self._fields[name]}
        news["blocks"] = to_columns(profile.blocks[len(self.last.blocks) :])
        line = (json.dumps(news, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        written = os.write(self._file, line)
        self._left = _identity(os.fstat(self._file))
        if written < len(line):
            raise OSError("no space left")


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_size
