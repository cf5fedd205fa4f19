"""A profile's file while its rounds are measured: every finished round is in it, should the launcher be killed.

``core/artefact`` reads it, as it does a whole document.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from stash.core.artefact import save, save_new
from stash.core.columns import pack_blocks
from stash.core.errors import ArtefactError
from stash.core.jsonl import TO_ADD, add_lines
from stash.core.records.profile import Profile

_KILLED = "interrupted"
"""How a measurement ended whose file was not saved as one document again."""


class GrowingFile:
    """A profile's file while its rounds are measured: a document after the first, a line for each further one.

    Should the launcher be killed, every finished round is in the file. Such a line is a JSON object of fields that
    changed, which take the place of those before, and of new blocks. A disk that takes no more ends the growing, not
    the measurement.
    """

    def __init__(self, target: Path, new: bool = False) -> None:
        self.target = target
        self._must_be_new = new
        self._file: int | None = None
        self._left: tuple[int, int, int] | None = None
        """Device, inode and size of the file as it was left last."""
        self._failed = False
        self.last: Profile | None = None
        """As it was taken last."""

    @property
    def needs_free_name(self) -> bool:
        """Whether a free name is still to be taken, or again, because another process writes to the one it had."""
        return self._must_be_new and not self._is_ours()

    @property
    def has_file(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def save_rounds(self, profile: Profile) -> None:
        """Bring the file up to date with a profile that has more rounds than the one before."""
        if self._failed:
            return
        profile = profile.model_copy(update={"ended": _KILLED})
        try:
            last = self.last if self.has_file and not self.needs_free_name else None
            # a rung may have been left out since
            end = 0 if last is None else len(last.blocks)
            if last is None or not end or profile.blocks[end - 1 : end] != last.blocks[-1:]:
                self._begin_file(profile)
            elif self._is_ours():
                self._append_rounds(profile, last)
            else:
                self._failed = True  # another process writes to the name that was asked for
        except (ArtefactError, OSError):
            self._failed = True  # the last save raises the reason
        if not self._failed:
            self.last = profile

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

    def _begin_file(self, profile: Profile) -> None:
        self.close()
        if self.needs_free_name:
            self.target = save_new(profile, self.target)
        else:
            save(profile, self.target)
        # Whoever takes the name from now on has a file of their own: these lines follow this document only.
        self._file = os.open(self.target, TO_ADD | os.O_NOFOLLOW)
        self._left = _identity(os.fstat(self._file))

    def _append_rounds(self, profile: Profile, last: Profile) -> None:
        assert self._file is not None
        before, now = (each.model_dump(mode="json", exclude={"blocks"}) for each in (last, profile))
        news = {name: value for name, value in now.items() if value != before[name]}
        news["blocks"] = pack_blocks(profile.blocks[len(last.blocks) :])
        line = (json.dumps(news, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        add_lines(self._file, line)
        self._left = _identity(os.fstat(self._file))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_size
