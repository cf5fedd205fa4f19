"""A store: put, list, find, read; concurrent writers, files that fail, and what of the index can be trusted."""

import json
import multiprocessing
import os
import stat

import pytest
from stores import calm_profile, made

from stash.core.artefact import encode_artefact
from stash.core.errors import ArtefactError, StoreError, UserError
from stash.store.schema import VERSION
from stash.store.store import Store, path_of
from stash.store.storing import open_store

pytestmark = pytest.mark.usefixtures("home")


def test_what_is_put_is_read_back_byte_for_byte(tmp_path):
    store = made(tmp_path / "runs", days=0, probes=False)
    profile = calm_profile(1)
    name = store.put(encode_artefact(profile), "run.stash.json")
    assert (tmp_path / "runs" / name).read_bytes() == encode_artefact(profile)
    assert store.load(name) == profile


def test_a_file_is_kept_as_it_is_even_with_what_this_stash_does_not_know(tmp_path):
    document = json.loads(encode_artefact(calm_profile(1))) | {"of_a_later_stash": [1]}
    store = open_store(str(tmp_path))
    name = store.put(json.dumps(document).encode(), "run.stash.json")
    assert json.loads((tmp_path / name).read_bytes())["of_a_later_stash"] == [1]


def test_what_is_no_artefact_is_not_put(tmp_path):
    with pytest.raises(ArtefactError, match="is not a profile"):
        open_store(str(tmp_path / "runs")).put(b"{}", "x.stash.json")
    assert not (tmp_path / "runs").exists()


def test_a_store_that_stash_makes_is_its_owners_alone(tmp_path):
    made(tmp_path / "a" / "runs")
    assert stat.S_IMODE((tmp_path / "a" / "runs").stat().st_mode) == 0o700


def test_the_newest_come_first_and_other_files_are_no_artefacts(tmp_path):
    store = made(tmp_path)
    (tmp_path / "mine.stash.json").write_bytes(encode_artefact(calm_profile(9)))
    (tmp_path / "notes.txt").write_text("x")
    contents = store.contents()
    assert [name[:8] for name in contents.stored] == [
        "20261120",
        "20261103",
        "20261102",
        "20261101",
    ]
    assert contents.loose == ["mine.stash.json"]
    assert contents.others == ["notes.txt"]


def _put_many(folder, days):
    store = open_store(folder)
    for day in days:
        store.put(encode_artefact(calm_profile(day)), "run.stash.json")


def test_many_writers_at_once_need_no_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    ranges = [range(1, 9), range(1, 9), range(5, 13), range(5, 13)]
    writers = [context.Process(target=_put_many, args=(str(tmp_path), days)) for days in ranges]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    store = open_store(str(tmp_path))
    assert len(store.contents().stored) == 12
    assert store.contents().others == []
    assert len(list(store.heads(store.contents().stored))) == 12
    assert store.unreadable == {}


def test_a_changed_artefact_is_refused(tmp_path):
    store = made(tmp_path, days=1, probes=False)
    (name,) = store.contents().stored
    (tmp_path / name).write_bytes(encode_artefact(calm_profile(2)))
    with pytest.raises(ArtefactError, match="its content is not what its name says"):
        store.load(name)


def test_a_list_reads_digests_and_no_artefact(tmp_path, monkeypatch):
    store = made(tmp_path)

    def never(self, name):
        raise AssertionError("the artefact was read")

    monkeypatch.setattr(Store, "load", never)
    assert len(list(store.heads(store.contents().stored))) == 4
    assert len(list(store.rows(store.contents().stored))) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:50],
        lambda text: text.replace(f'"version":{VERSION}', '"version":0'),
        lambda text: text.replace('"profile"', "7"),
        lambda text: text.replace("[", "{", 1),
        lambda text: text.replace('"file":"2026', '"file":"2027'),
        lambda text: "[" * 5000,
        lambda text: "\x00\xff",
    ],
)
def test_a_digest_that_is_none_is_made_again(tmp_path, damage):
    store = made(tmp_path, days=1, probes=False)
    (name,) = store.contents().stored
    digest = tmp_path / path_of(name)
    good = list(store.rows([name]))
    digest.write_text(damage(digest.read_text()))
    assert list(store.rows([name])) == good
    assert store.unreadable == {}
    assert list(open_store(str(tmp_path)).rows([name])) == good  # which was written back


def test_a_digest_cannot_speak_of_another_artefact(tmp_path):
    store = made(tmp_path, days=2, probes=False)
    first, second = store.contents().stored
    forged = (tmp_path / path_of(first)).read_text()
    (tmp_path / path_of(second)).write_text(forged)
    assert [row[1] for row in store.heads([second])] == [second]


def test_there_is_no_such_store(tmp_path):
    with pytest.raises(UserError, match="there is no store"):
        open_store(str(tmp_path / "none")).contents()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; a store is a folder or a URL"):
        open_store(str(tmp_path / "file")).contents()


@pytest.mark.parametrize(
    ("error", "words"),
    [(28, "no space left"), (13, "no permission"), (2, "it is gone"), (30, "for reading only")],
)
def test_a_store_that_takes_no_more_says_so_and_leaves_nothing_half_written(
    tmp_path, monkeypatch, error, words
):
    store = made(tmp_path, days=1, probes=False)

    def fails(handle):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(StoreError, match=rf"cannot write the store .*{words}"):
        store.put(encode_artefact(calm_profile(2)), "run.stash.json")
    assert len(store.contents().stored) == 1
    assert store.contents().others == []


@pytest.mark.parametrize("dangling", [False, True])
def test_a_store_that_is_no_folder_takes_nothing_and_says_so(tmp_path, dangling):
    place = tmp_path / "runs"
    place.symlink_to("nowhere") if dangling else place.write_text("mine")
    with pytest.raises(UserError, match="runs is no folder; a store is a folder or a URL"):
        open_store(str(place)).put(encode_artefact(calm_profile(1)), "run.stash.json")


def test_a_damaged_artefact_is_repaired_by_putting_it_again(tmp_path):
    store = made(tmp_path, days=1, probes=False)
    (name,) = store.contents().stored
    (tmp_path / name).write_bytes(encode_artefact(calm_profile(1))[:500])
    store.put(encode_artefact(calm_profile(1)), "run.stash.json")
    assert store.load(name) == calm_profile(1)


def test_a_digest_that_cannot_be_kept_loses_nothing(tmp_path):
    (tmp_path / "index").write_text("in the way")
    store = made(tmp_path, days=1, probes=False)
    assert [row[4] for row in store.heads(store.contents().stored)] == ["train.py"]


@pytest.mark.parametrize(
    ("url", "words"),
    [("", "a store is a folder or a URL"), ("nothing://x", "is no store that can be reached")],
)
def test_what_is_no_store_is_refused(url, words):
    with pytest.raises(UserError, match=words):
        open_store(url)
