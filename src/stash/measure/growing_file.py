"""A profile's file while its rounds are measured: finished rounds are in it, should the launcher be killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from stash.core.artefact import save, save_new
from stash.core.errors import ArtefactError
from stash.core.records.profile import Profile

_KILLED = "interrupted"
"""How a measurement ended whose file was not saved again at its end."""


class GrowingFile:
    """A profile's file while its rounds are measured, saved as a whole after a round.

    A disk that takes no more ends the saving, not the measurement.
    """

    def __init__(self, target: Path, new: bool = False) -> None:
        self.target = target
        self._must_be_new = new
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
        return self._left is not None

    def save_rounds(self, profile: Profile) -> None:
        """Bring the file up to date with a profile that has more rounds than the one before."""
        self.last = profile = profile.model_copy(update={"ended": _KILLED})
        if self._failed:
            return
        try:
            if self.needs_free_name:
                self.target = save_new(profile, self.target)
            elif not self.has_file or self._is_ours():
                save(profile, self.target)
            else:
                self._failed = True  # another process writes to the name that was asked for
                return
            self._left = _identify(self.target)
        except (ArtefactError, OSError):
            self._failed = True  # the last save raises the reason

    def discard(self) -> None:
        """Remove the file, where nothing of the measurement is kept."""
        if self._is_ours():
            with contextlib.suppress(OSError):
                self.target.unlink()

    def _is_ours(self) -> bool:
        try:
            return self._left == _identify(self.target)
        except OSError:
            return False


def _identify(path: Path) -> tuple[int, int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino, status.st_size
