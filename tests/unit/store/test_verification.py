"""Every file of a store that is not what it should be is named, with what is wrong; none is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stores import at, made

from stash.core.artefact import to_bytes
from stash.store.store import Store, verify

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path)


def test_a_store_that_is_whole(store: Store) -> None:
    assert verify(store) == (4, [])


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("mine.stash.json", to_bytes(at(9))[:500], "truncated"),
        ("mine.stash.json", b"", "truncated"),
        ("mine.stash.json", b"hello", "foreign"),
        ("mine.stash.json", b"{}", "foreign"),
        ("mine.stash.json", b"[1]", "foreign"),
        ("mine.stash.json", json.dumps({**json.loads(to_bytes(at(9))), "schema_version": 99}).encode(), "newer"),
        ("mine.stash.json", json.dumps({**json.loads(to_bytes(at(9))), "ranks": 7}).encode(), "corrupt"),
        ("mine.host.json", to_bytes(at(9)), "foreign"),
        ("mine.fix.json", b'{"fix_schema": 99, "tried": []}', "newer"),
        ("mine.fix.json", b'{"fix_schema": 1, "tried": 7}', "corrupt"),
        ("mine.fix.json", b'{"plan_schema": 1, "goal": {}}', "foreign"),
        ("notes.txt", b"", "foreign"),
        (".20261101T120000Z-x.stash.json.0123abcd.tmp", b"{", "unfinished"),
        ("20261101T120000Z-0123456789abcdef01234567.stash.json", to_bytes(at(9)), "corrupt"),
    ],
)
def test_what_is_wrong_is_named(store: Store, tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(content)
    whole, (suspect,) = verify(store)
    assert (whole, suspect.name, suspect.kind) == (4, name, kind)
    assert suspect.why
    assert (tmp_path / name).read_bytes() == content


def test_a_stored_artefact_that_was_changed_is_corrupt(store: Store, tmp_path: Path) -> None:
    name = store.contents().stored[0]
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b"aws", b"gcp"))
    _, (suspect,) = verify(store)
    assert (suspect.name, suspect.kind) == (name, "corrupt")
    assert "changed after it was put here" in suspect.why


def test_a_name_that_no_store_gave_to_this_content_is_foreign(store: Store, tmp_path: Path) -> None:
    name = store.contents().stored[0]
    (tmp_path / name).rename(tmp_path / f"20000101T000000Z{name[16:]}")
    _, (suspect,) = verify(store)
    assert suspect.kind == "foreign"
