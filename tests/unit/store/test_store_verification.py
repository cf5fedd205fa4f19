"""Every file of a store that is not what it should be is named, with what is wrong; none is touched."""

import json

import pytest
from stores import calm_profile, made

from stash.core.artefact import encode_artefact
from stash.store.store import verify_store

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def store(tmp_path):
    return made(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("mine.stash.json", encode_artefact(calm_profile(9))[:500], "damaged or cut short"),
        ("mine.stash.json", b"", "not JSON"),
        ("mine.stash.json", b"hello", ""),
        ("mine.stash.json", b"{}", ""),
        ("mine.stash.json", b"[1]", ""),
        (
            "mine.stash.json",
            json.dumps(
                {**json.loads(encode_artefact(calm_profile(9))), "schema_version": 99}
            ).encode(),
            "newer",
        ),
        (
            "mine.stash.json",
            json.dumps({**json.loads(encode_artefact(calm_profile(9))), "ranks": 7}).encode(),
            "ranks",
        ),
        ("mine.host.json", encode_artefact(calm_profile(9)), ""),
        ("mine.fix.json", b'{"fix_schema": 99, "tried": []}', "newer"),
        ("mine.fix.json", b'{"fix_schema": 1, "tried": 7}', ""),
        ("mine.fix.json", b'{"plan_schema": 1, "goal": {}}', ""),
        ("notes.txt", b"", "called like no artefact"),
        (".20261101T120000Z-x.stash.json.0123abcd.tmp", b"{", "before it was whole"),
        (
            "20261101T120000Z-0123456789abcdef01234567.stash.json",
            encode_artefact(calm_profile(9)),
            "changed after it was put here",
        ),
    ],
)
def test_what_is_wrong_is_named(store, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    whole, (suspect,) = verify_store(store)
    assert (whole, suspect.name) == (4, name)
    assert suspect.why
    assert words in suspect.why
    assert (tmp_path / name).read_bytes() == content
