"""An artefact fit to be passed on: machines are numbered, paths, addresses and code are left out, numbers stay.

Applies to the fields that name a machine or a file, to the command, and to sentences, which may quote either. Secrets
are left out of every artefact already, when it is written (``core/secrets.py``). Parameters' and devices' names stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, overload

from stash.core.records.host import Probe
from stash.core.records.profile import Profile

PATH, URL, ADDRESS, SOURCE = "<path>", "<url>", "<address>", "<source>"
HOSTNAMES = ("hostname",)
PATHS = ("path", "left_files")
CODE = ("file", "samples_at", "caller")
"""Files of code, of which the name stays, as the script's own does."""
SOURCES = ("text",)
"""Lines of code."""
SENTENCES = ("price_source", "why", "notes", "fault", "unrecorded", "unplaced")
COMMANDS = ("command",)
"""Fields that are changed, by the kind of what they hold; any other says nothing of where the run was."""

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>]+")
_PATH = re.compile(r"(?<![\w.~<-])(?!/dev/)(?:~[\w.-]*|\.{1,2})?/[^\s\"',;:()\[\]<>]+")
"""Absolute, or from the home folder or the current one."""
_RELATIVE = re.compile(r"^[^\s/=<>]+/[^\s=]*$")
"""A word of a command that has a folder in it."""
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]|-\w)|\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b"
)


@overload
def redact_artefact(artefact: Profile) -> Profile: ...
@overload
def redact_artefact(artefact: Probe) -> Probe: ...
def redact_artefact(artefact: Profile | Probe) -> Profile | Probe:
    """``artefact`` with ``host0``, ``host1`` … for its machines and neither paths nor addresses."""
    hostnames = dict.fromkeys(host.hostname for host in artefact.hosts)
    names = {name: f"host{number}" for number, name in enumerate(hostnames)}
    known = {
        short: alias
        for name, alias in reversed(names.items())
        for short in (name.split(".")[0], name)
        if short
    }
    longest = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    # a name is left out with the domain behind it
    named = re.compile(rf"(?<![\w-])({longest})(?:\.[\w-]+)*(?![\w-])") if known else None

    def text(sentence: str) -> str:
        sentence = _ADDRESS.sub(ADDRESS, _PATH.sub(PATH, _URL.sub(URL, sentence)))
        return sentence if named is None else named.sub(lambda match: known[match[1]], sentence)

    fields = _redact_fields(artefact.model_dump(exclude={"blocks"}), text)
    for host in fields["hosts"]:
        host["programs"] = [
            {**each, "name": f"program{at}"} for at, each in enumerate(host["programs"])
        ]
        for state in host["links"]["states"] if host["links"] else ():
            state["users"] = [f"process{at}" for at, _ in enumerate(state["users"])]
    if isinstance(artefact, Profile):
        fields["workload"]["name"] = text(PurePath(artefact.workload.name).name)
        fields["blocks"] = artefact.blocks
        machines = list(dict.fromkeys(rank.machine for rank in artefact.ranks))
        for rank in fields["ranks"]:
            rank["machine"] = rank["machine"] and f"machine{machines.index(rank['machine'])}"
        fields["others"] = [
            {**each, "name": f"program{at}"} for at, each in enumerate(fields["others"])
        ]
    return type(artefact).model_validate(fields)


def _redact_fields(fields: Any, text: Callable[[str], str]) -> Any:
    """A dumped record with its fields changed, at any depth."""
    if isinstance(fields, (list, tuple)):
        return [_redact_fields(each, text) for each in fields]
    if not isinstance(fields, dict):
        return fields
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if name in PATHS and isinstance(value, str):
            changed[name] = PATH
        elif name in PATHS and isinstance(value, (list, tuple)):
            changed[name] = [PATH for _ in value]
        elif name in CODE and isinstance(value, str):
            changed[name] = text(PurePath(value).name)
        elif name in SOURCES and isinstance(value, str):
            changed[name] = SOURCE
        elif name in COMMANDS and value:  # of the program itself its name stays
            changed[name] = [text(PurePath(value[0]).name)]
            for option, sign, argument in (word.rpartition("=") for word in value[1:]):
                changed[name].append(
                    f"{option}{sign}{PATH if _RELATIVE.match(argument) else text(argument)}"
                )
        elif name in (*HOSTNAMES, *SENTENCES) and isinstance(value, str):
            changed[name] = text(value)
        elif name in SENTENCES and isinstance(value, dict):
            changed[name] = {key: text(each) for key, each in value.items()}
        elif name in SENTENCES and value is not None:
            changed[name] = [text(each) for each in value]
        else:
            changed[name] = _redact_fields(value, text)
    return changed
