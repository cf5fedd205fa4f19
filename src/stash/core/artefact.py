"""Loads and saves profiles and probes: whole documents, documents that grow round by round, links put into hosts.

Knows which of these a file is, or another that a store keeps (a record of a fix, an account of traces), the versions
of their schema and how old ones become new. Knows nothing of what the numbers mean; what all files share is the
business of ``documents``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from stash.core import documents
from stash.core.columns import pack_blocks, pack_rows, unpack_blocks
from stash.core.documents import (
    FIX,
    PROBE,
    PROFILE,
    TRACE,
    Document,
    DocumentFile,
    DocumentKind,
    json_object,
    json_text,
)
from stash.core.errors import UserError
from stash.core.files import parse_json
from stash.core.records.base import SCHEMA
from stash.core.records.host import Links, Probe
from stash.core.records.profile import Profile

if TYPE_CHECKING:
    from stash.core.fix_records import Fix
    from stash.core.trace_records import Trace

PROBE_SUFFIX = PROBE.suffix
Artefact = Union[Profile, Probe, "Fix", "Trace"]
"""What a store keeps."""


def _blocks_in_columns(document: Document) -> Document:
    """Schema 1 held each block as an object of its own."""
    rows = document.get("blocks")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return document
    return {**document, "blocks": pack_rows(rows)}


# Schema 2 had none of the facts that prediction needs; all of them may be missing.
MIGRATIONS: dict[int, Callable[[Document], Document]] = {
    1: _blocks_in_columns,
    2: lambda document: document,
}


def document_of(profile: Profile) -> Document:
    """What is saved of a profile, as JSON has it."""
    dumped = profile.model_dump(mode="json", exclude={"blocks"})
    columns = pack_blocks(profile.blocks)
    return {name: columns if name == "blocks" else dumped[name] for name in Profile.model_fields}


def _format_profile(profile: Profile) -> str:
    """A line for each field, and for each column of the blocks: large jobs have very many numbers."""
    fields = document_of(profile)
    lines = {name: json_text(value) for name, value in fields.items()}
    columns = {name: json_text(column) for name, column in fields["blocks"].items()}
    lines["blocks"] = json_object(columns, indent=2)
    return json_object(lines, indent=1) + "\n"


def _unpack_blocks(document: Document) -> Document:
    columns = document.get("blocks")
    parts = columns if isinstance(columns, list) else [columns]
    if not all(isinstance(part, dict) for part in parts):
        return document
    return {**document, "blocks": (*itertools.chain.from_iterable(map(unpack_blocks, parts)),)}


def _parse_rounds(text: str) -> Any:
    """The document of a file, with the rounds of lines after it, as older files have; the last may be cut short."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        document = parse_json(text[: error.pos])
        lines = text[error.pos :].split("\n")[:-1]
    parts = [document, *map(parse_json, lines)]
    if not all(isinstance(part, dict) and isinstance(part.get("blocks"), dict) for part in parts):
        raise json.JSONDecodeError("not the rounds of a profile", text, len(text))
    blocks = [part["blocks"] for part in parts]
    return {name: value for part in parts for name, value in part.items()} | {"blocks": blocks}


PROFILES = DocumentFile(
    PROFILE,
    Profile,
    SCHEMA,
    migrations=MIGRATIONS,
    write=_format_profile,
    parse=_parse_rounds,
    unpack=_unpack_blocks,
)
PROBES = DocumentFile(PROBE, Probe, SCHEMA, migrations=MIGRATIONS)
load_probe = PROBES.load


def load(path: str | os.PathLike[str]) -> Profile:
    """The profile saved at ``path``, of this or any older schema; raises ArtefactError."""
    return PROFILES.load(path)


def _file_of(kind: DocumentKind | None) -> DocumentFile[Any]:
    """How documents of a kind that a store keeps are saved and loaded."""
    if kind is FIX:
        from stash.core.fix_records import FILE as FIXES

        return FIXES
    if kind is TRACE:
        from stash.core.trace_records import FILE as TRACES

        return TRACES
    return PROBES if kind is PROBE else PROFILES


def file_of(artefact: Artefact) -> DocumentFile[Any]:
    """How such an artefact is saved and loaded."""
    marks = (kind for kind in (FIX, TRACE, PROFILE, PROBE) if hasattr(artefact, kind.mark))
    return _file_of(next(marks))


def save(artefact: Profile | Probe, path: str | os.PathLike[str]) -> None:
    """Write ``artefact`` to ``path``, replacing it in one step; raises ArtefactError."""
    file_of(artefact).save(artefact, path)


def save_new(artefact: Profile | Probe, path: str | os.PathLike[str]) -> Path:
    """The same under a name that nothing has: ``path``, else with the first free number; raises ArtefactError."""
    return file_of(artefact).save_new(artefact, path)


def encode_artefact(artefact: Artefact) -> bytes:
    """What a file of ``artefact`` holds."""
    return file_of(artefact).format_record(artefact).encode()


def load_any(path: str | os.PathLike[str]) -> Artefact:
    """The artefact saved at ``path``, of whichever kind; raises ArtefactError.

    What cannot be read is taken for what it is called like.
    """
    source = Path(path)
    return decode_artefact(read_content(source), source)


def read_content(source: Path) -> bytes:
    """The bytes of a file that is to be an artefact; raises ArtefactError."""
    return documents.read_content(source, _expected_kind(source))


def decode_artefact(content: bytes, source: str | os.PathLike[str]) -> Artefact:
    """The same of what is saved at ``source``, as bytes: for what comes from elsewhere than a file."""
    source = Path(source)
    document = documents.parse_document(content, source, _expected_kind(source), _parse_rounds)
    found: Artefact = _file_of(documents.kind_of(document)).make_record(document, source)
    return found


def _expected_kind(source: Path) -> DocumentKind:
    kinds = (kind for kind in (PROBE, FIX, TRACE) if source.name.endswith(kind.suffix))
    return next(kinds, PROFILE)


# Hosts are matched by hostname, and by order where several nodes have the same one (a testbed's). What the probe
# found of a machine's identity is not taken: the profile looked at it itself, and later.


def links_by_hostname(probe: Probe) -> dict[str, list[Links]]:
    """The measured links of each hostname, in the order of the nodes."""
    found: dict[str, list[Links]] = defaultdict(list)
    for host in probe.hosts:
        if host.links is not None:
            found[host.hostname].append(host.links)
    return dict(found)


def check_probed(probe: Probe, path: str, hosts: Collection[str], what: str) -> None:
    """Raise UserError when the probe saved at ``path`` measured no link of these hosts; ``what`` says which they are."""
    measured = links_by_hostname(probe)
    if not measured:
        raise UserError(f"--probe {path} holds no measured link; probe again without --no-measure")
    if not measured.keys() & set(hosts):
        raise UserError(f"--probe {path} is of {', '.join(sorted(measured))}, {what}")


def add_links(profile: Profile, probe: Probe) -> Profile:
    """``profile`` with the probe's links in those hosts that it knows, and a note naming those that it does not."""
    left = {name: list(links) for name, links in links_by_hostname(probe).items()}
    hosts = []
    unknown = []
    for host in profile.hosts:
        if left.get(host.hostname):
            hosts.append(host.model_copy(update={"links": left[host.hostname].pop(0)}))
        else:
            hosts.append(host)
            unknown.append(host.hostname)
    notes = profile.notes
    if unknown:
        notes = (
            *notes,
            f"the links of {', '.join(unknown)} are unknown: the probe of {probe.created} did not measure them",
        )
    return profile.model_copy(update={"hosts": tuple(hosts), "notes": notes})
