"""Names that a store gives: the same for the same artefact, sorted by time, found by their beginning."""

import pytest
from hypothesis import given
from hypothesis import strategies as any_of

from stash.core.errors import UserError
from stash.store.storage import id_of, is_artefact, match_name, name_of, stored_id

pytestmark = pytest.mark.usefixtures("home")

NAMES = [
    name_of(bytes([number]), f"2026-11-{number:02}T12:00:00+00:00", ".stash.json")
    for number in (1, 2, 3)
]


def test_a_name_says_when_and_what():
    name = name_of(b"x", "2026-11-22T12:43:37+02:00", ".host.json")
    assert name == "20261122T104337Z-2d711642b726b04401627ca9.host.json"
    assert stored_id(name) == "2d711642b726b04401627ca9"


@given(any_of.text(max_size=40), any_of.binary(max_size=20))
def test_a_name_is_one_whatever_an_artefact_says_of_its_date(created, content):
    name = name_of(content, created, ".stash.json")
    assert stored_id(name) is not None
    assert "/" not in name


def test_an_artefact_is_found_by_name_id_stem_or_beginning():
    names = [*NAMES, "train.stash.json", "train-2.stash.json"]
    ids = [id_of(name) for name in NAMES]
    assert match_name(ids[1], names, "runs") == NAMES[1]
    assert match_name(ids[1][:6], names, "runs") == NAMES[1]
    assert match_name(NAMES[2], names, "runs") == NAMES[2]
    assert match_name("20261103", names, "runs") == NAMES[2]
    # its whole name, though another begins with it
    assert match_name("train", names, "runs") == "train.stash.json"
    assert match_name("train-", names, "runs") == "train-2.stash.json"


def test_what_may_be_several_is_refused_with_their_ids():
    with pytest.raises(UserError, match=rf"2026 may be {id_of(NAMES[0])}.* of runs; type more"):
        match_name("2026", NAMES, "runs")


@pytest.mark.parametrize("word", ["", "zz", "../x", "\x1b[2J"])
def test_what_is_none_is_refused(word):
    with pytest.raises(UserError, match="runs has no artefact") as refused:
        match_name(word, NAMES, "runs")
    assert "\x1b" not in str(refused.value)


def test_hidden_files_and_other_endings_are_no_artefacts():
    assert [
        name
        for name in ("a.stash.json", ".a.stash.json", "a.json", "a.host.json")
        if is_artefact(name)
    ] == [
        "a.stash.json",
        "a.host.json",
    ]
