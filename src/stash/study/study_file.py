"""Reads a study file and a hosts file; every mistake is told with its line and field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.core.units import nearest
from stash.core.yamlines import Lines, not_yaml, parse, text_of
from stash.study import fields
from stash.study.fields import Study

# File ------------------------------------------------------------------------------------------------------
# Reads a study file; every mistake in it is told with its line and field.
#
# Knows YAML with lines (``core/yamlines.py``), the study's fields, and the scripts that its commands name. Whether
# a workload or an instance of that name exists, ``derive/study`` finds out, and asks here for its line.

_MAX_MISTAKES = 20
"""That are listed; of more, how many there are."""
_SCRIPTS = (".py", ".sh")
_MAX_SCRIPT = 2**26
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
                    found.update(read_up_to(self.folder / word, _MAX_SCRIPT))
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


def read_study(path: Path) -> StudyFile:
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
    more = len(said) - _MAX_MISTAKES
    return "\n".join([*said[:_MAX_MISTAKES], f"and {more} more mistakes"] if more > 0 else said)


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


# Hosts -----------------------------------------------------------------------------------------------------
# A hosts file, as MPI, pdsh and scripts around torchrun have them: a host a line, the first one where all meet.
#
# What follows a host on its line (``slots=8``) and what follows ``#`` is not looked at. Asks no host anything.

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9@._-]*")
"""A name or an address, ``user@`` before it; nothing that a shell or ``ssh`` would read otherwise."""
_MAX = 2**20
"""Characters."""


def read_hosts(path: Path) -> tuple[str, ...]:
    """The hosts in order; raises UserError for a file that cannot be read, and for what is no host with its line."""
    try:
        content = read_up_to(path, _MAX)
    except OSError as error:
        raise UserError(f"cannot read the hosts file {path}: {error.strerror or error}") from error
    if len(content) > _MAX:
        raise UserError(f"the hosts file {path} is larger than {_MAX // 2**20} MiB; write one host a line")
    found: dict[str, int] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if not _HOST.fullmatch(words[0]):
            raise UserError(f"{path} line {number}: {words[0]!r} is no host; write a name or an address")
        if words[0] in found:
            raise UserError(f"{path} line {number}: {words[0]} is in line {found[words[0]]} already")
        found[words[0]] = number
    if not found:
        raise UserError(f"{path} names no host; write one a line")
    return tuple(found)


def address(host: str) -> str:
    """Where the others find it."""
    return host.rpartition("@")[2]
