"""An artefact fit to be passed on: machines are numbered, paths and addresses are left out, all numbers stay.

Applies to the fields that name a machine or a file, to the command, and to sentences, which may quote either. Secrets
are left out of every artefact already, when it is written (``core/secrets.py``). Parameters' and devices' names stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, overload

from stash.core.records.host import Host, Probe
from stash.core.records.profile import Profile

PATH, URL, ADDRESS = "<path>", "<url>", "<address>"
HOSTNAMES = ("hostname",)
PATHS = ("path",)
SENTENCES = ("price_source", "why", "notes", "fault", "unrecorded")
COMMANDS = ("command",)
"""Fields that are changed, by the kind of what they hold; any other says nothing of where the run was."""

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]+")
_PATH = re.compile(r"(?<![\w.~<-])(?!/dev/)(?:~[\w.-]*|\.{1,2})?/[^\s\"',;:()\[\]<>]+")
"""Absolute, or from the home folder or the current one."""
_RELATIVE = re.compile(r"^[^\s/=<>]+/[^\s=]*$")
"""A word of a command that has a folder in it."""
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]|-\w)|\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b")


@overload
def redacted(artefact: Profile) -> Profile: ...
@overload
def redacted(artefact: Probe) -> Probe: ...
def redacted(artefact: Profile | Probe) -> Profile | Probe:
    """``artefact`` with ``host0``, ``host1`` … for its machines and neither paths nor addresses."""
    record = type(artefact)
    text = _changer(artefact.hosts)
    fields = _walked(artefact.model_dump(exclude={"blocks"}), text)
    if isinstance(artefact, Profile):
        fields["workload"]["name"] = text(PurePath(artefact.workload.name).name)
        fields["blocks"] = artefact.blocks
    return record.model_validate(fields)


def _changer(hosts: Sequence[Host]) -> Callable[[str], str]:
    """What leaves names, paths and addresses out of a text; a name is left out with the domain behind it."""
    names = {name: f"host{number}" for number, name in enumerate(dict.fromkeys(host.hostname for host in hosts))}
    known = {short: alias for name, alias in reversed(names.items()) for short in (name.split(".")[0], name) if short}
    longest = sorted(known, key=len, reverse=True)
    named = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})(?:\.[\w-]+)*(?![\w-])") if known else None

    def change(text: str) -> str:
        text = _ADDRESS.sub(ADDRESS, _PATH.sub(PATH, _URL.sub(URL, text)))
        return text if named is None else named.sub(lambda match: known[match[1]], text)

    return change


def _walked(fields: Any, text: Callable[[str], str]) -> Any:
    """A dumped record with its fields changed, at any depth."""
    if isinstance(fields, dict):
        return {name: _changed(name, value, text) for name, value in fields.items()}
    if isinstance(fields, (list, tuple)):
        return [_walked(each, text) for each in fields]
    return fields


def _changed(name: str, value: Any, text: Callable[[str], str]) -> Any:
    if value is None:
        return None
    if name in HOSTNAMES and isinstance(value, str):
        return text(value)
    if name in PATHS and isinstance(value, str):
        return PATH
    if name in COMMANDS:
        return [_word(number, word, text) for number, word in enumerate(value)]
    if name in SENTENCES:
        return text(value) if isinstance(value, str) else _each(value, text)
    return _walked(value, text)


def _each(sentences: Any, text: Callable[[str], str]) -> Any:
    if isinstance(sentences, dict):
        return {name: text(each) for name, each in sentences.items()}
    return [text(each) for each in sentences]


def _word(number: int, word: str, text: Callable[[str], str]) -> str:
    """A word of a command; of the program itself its name stays."""
    if number == 0:
        return text(PurePath(word).name)
    option, sign, value = word.rpartition("=")
    return f"{option}{sign}{PATH if _RELATIVE.match(value) else text(value)}"
