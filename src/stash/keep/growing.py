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
        self.target, self.new = target, new
        """Where it is, and whether it is still to take a name that nobody has."""
        self._file: int | None = None
        self._failed = False
        self._fields: dict[str, Any] = {}
        self.last: Profile | None = None
        """As it was taken last."""

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
            if self._continues(profile):
                self._append(profile, fields)
            else:
                self._begin(profile)
        except (ArtefactError, OSError):
            self._failed = True  # the last save will say why
            return
        self._fields, self.last = fields, profile

    def close(self, discard: bool = False) -> None:
        """Let go of the file, which is whole; or ``discard`` it, if nothing of the measurement is kept."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        if discard:
            with contextlib.suppress(OSError):
                self.target.unlink()

    def _continues(self, profile: Profile) -> bool:
        """Whether the blocks of the file are still the first of the profile's: a rung may have been left out."""
        before = () if self.last is None else self.last.blocks
        return bool(before) and len(profile.blocks) >= len(before) and profile.blocks[len(before) - 1] is before[-1]

    def _begin(self, profile: Profile) -> None:
        self.close()
        if self.new:
            self.target, self.new = save_new(profile, self.target), False
        else:
            save(profile, self.target)
        # Whoever takes the name from now on has a file of their own: these lines follow this document only.
        self._file = os.open(self.target, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _append(self, profile: Profile, fields: dict[str, Any]) -> None:
        assert self._file is not None
        assert self.last is not None
        news = {name: value for name, value in fields.items() if value != self._fields[name]}
        news["blocks"] = to_columns(profile.blocks[len(self.last.blocks) :])
        line = (json.dumps(news, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        if os.write(self._file, line) < len(line):
            raise OSError("no space left")
