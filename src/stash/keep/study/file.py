"""Reads a study file; every mistake in it is told with its line and field.

Knows YAML with lines (``base/yamlines.py``), the study's fields, and the scripts that its commands name. Whether a
workload or an instance of that name exists, ``derive/study`` finds out, and asks here for its line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from stash.base.errors import UserError
from stash.base.files import read_up_to
from stash.base.words.spelling import nearest
from stash.base.yamlines import Lines, not_yaml, parse, text_of
from stash.keep.study import fields
from stash.keep.study.fields import Study

_MOST_MISTAKES = 20
"""That are listed; of more, how many there are."""
_SCRIPTS = (".py", ".sh")
_MOST_SCRIPT = 2**26
"""Bytes of one."""
_ENGINES: dict[str, type[BaseModel]] = {
    "local": fields.LocalTarget,
    "slurm": fields.SlurmTarget,
    "hosts": fields.HostsTarget,
    "sky": fields.SkyTarget,
    "emulated": fields.EmulatedTarget,
}
_INSIDE: dict[str, type[BaseModel]] = {
    "workloads": fields.StudyWorkload,
    "exclude": fields.Selection,
    "include": fields.Selection,
    "settings": fields.StudySettings,
}
_SENTENCES = {
    "missing": "is missing",
    "union_tag_not_found": f"needs `engine:`, one of {', '.join(_ENGINES)}",
    "union_tag_invalid": f"engine: there is no such engine; use one of {', '.join(_ENGINES)}",
    "model_type": "must hold named fields",
    "model_attributes_type": "must hold named fields",
    "tuple_type": "must be a list",
    "too_short": "needs at least one entry",
    "string_pattern_mismatch": "may hold letters, digits and . _ + / - only",
}


@dataclass(frozen=True)
class StudyFile:
    """A checked study, and where everything in it stands."""

    path: Path
    study: Study
    lines: Lines

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
                    found.update(read_up_to(self.folder / word, _MOST_SCRIPT))
        return found.hexdigest() if any(word.endswith(_SCRIPTS) for word in words) else ""

    def lacks(self, words: Sequence[str]) -> str | None:
        """The script that a command begins with, if it is missing here, and so wherever cells run; an absolute path
        may be one of those machines' own.
        """
        script = words[0] if words and words[0].endswith(_SCRIPTS) else ""
        here = not script or Path(script).is_absolute() or (self.folder / script).is_file()
        return None if here else script

    def mistake(self, where: tuple[int | str, ...], why: str) -> UserError:
        """The error about the value at ``where``: with its line, its field and ``why``."""
        return UserError(f"{self.path} line {self.lines.of(where)}: {_called(where)}: {why}")


def read(path: Path) -> StudyFile:
    """The study at ``path``; raises UserError with line and field of every mistake."""
    return of_text(text_of(path, "the study", "a study is written in YAML, see docs/format.md"), path)


def of_text(text: str, path: Path) -> StudyFile:
    """The study whose text is ``text``; ``path`` is only named in errors. Raises UserError."""
    try:
        data, lines = parse(text)
    except yaml.YAMLError as error:
        raise not_yaml(error, path) from error
    try:
        return StudyFile(path, Study.model_validate({} if data is None else data), lines)
    except ValidationError as error:
        raise UserError(_all_mistakes(error, path, lines)) from error


def _all_mistakes(error: ValidationError, path: Path, lines: Lines) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = []
    below = {tuple(detail["loc"])[:1] for detail in found if len(detail["loc"]) > 1}
    for detail in found:
        if detail["type"] == "too_short" and tuple(detail["loc"]) in below:
            continue  # its entries are there, and wrong
        where = tuple(detail["loc"])
        if len(where) > 2 and where[0] == "targets":
            where = (*where[:2], *where[3:])  # pydantic names the engine between
        why = _sentence(detail["type"], tuple(detail["loc"]), detail["msg"])
        said.append(f"{path} line {lines.of(where)}: {_called(where)}: {why}")
    said = list(dict.fromkeys(said))  # a value of several possible kinds is told once for each
    more = len(said) - _MOST_MISTAKES
    return "\n".join([*said[:_MOST_MISTAKES], f"and {more} more mistakes"] if more > 0 else said)


def _sentence(kind: str, where: tuple[int | str, ...], message: str) -> str:
    if kind == "extra_forbidden":
        alike = nearest(str(where[-1]), _fields_at(where), 1)
        return f"there is no such field; did you mean {alike[0]}?" if alike else "there is no such field"
    return _SENTENCES.get(kind) or message.removeprefix("Value error, ").removeprefix("Input ")


def _fields_at(where: tuple[int | str, ...]) -> dict[str, Any]:
    """The fields that there are where one was given that is none."""
    if len(where) == 1:
        return dict(Study.model_fields)
    if where[0] == "targets" and len(where) > 2:
        return dict(_ENGINES[str(where[2])].model_fields)
    return dict(_INSIDE[str(where[0])].model_fields) if where[0] in _INSIDE else {}


def _called(where: tuple[int | str, ...]) -> str:
    """``targets[0].partition``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".") or "the file"
