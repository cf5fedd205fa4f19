"""Reads a study file; whether a workload or an instance of a name exists, others find out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.core.user_files import Location, YamlText, load, loads
from stash.study.fields import Study

_SCRIPTS = (".py", ".sh")
_MAX_SCRIPT = 2**26
"""Bytes of one."""


@dataclass(frozen=True)
class StudyFile:
    """A checked study, and where everything in it stands."""

    path: Path
    study: Study
    document: YamlText

    @property
    def name(self) -> str:
        return self.study.name or self.path.name.split(".")[0]

    @property
    def folder(self) -> Path:
        """Where its commands run, and its paths begin."""
        return self.path.resolve().parent

    def script(self, words: Sequence[str]) -> str:
        """The SHA-256 of the scripts that a command names: an edited one is another workload. Empty without any."""
        found = hashlib.sha256()
        for word in words:
            if word.endswith(_SCRIPTS):
                with suppress(OSError):  # named, and not here: whoever runs it will say so
                    found.update(read_up_to(self.folder / word, _MAX_SCRIPT))
        return found.hexdigest() if any(word.endswith(_SCRIPTS) for word in words) else ""

    def lacks(self, words: Sequence[str]) -> str | None:
        """The script that a command begins with, if it is missing here, and so wherever cells run; an absolute path
        may be one of those machines' own.
        """
        script = words[0] if words and words[0].endswith(_SCRIPTS) else ""
        here = not script or Path(script).is_absolute() or (self.folder / script).is_file()
        return None if here else script

    def mistake(self, where: Location, why: str) -> UserError:
        """The error about the value at ``where``: with its line, its field and ``why``."""
        return self.document.mistake(where, why)


def read_study(path: Path) -> StudyFile:
    """The study at ``path``; raises UserError with line and field of every mistake."""
    file = load(path, Study, "the study", "a study is written in YAML, see docs/format.md")
    return StudyFile(path, file.content, file)


def of_text(text: str, path: Path) -> StudyFile:
    """The study whose text is ``text``; ``path`` is only named in errors. Raises UserError."""
    file = loads(text, path, Study)
    return StudyFile(path, file.content, file)
