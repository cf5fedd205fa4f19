"""Stores elsewhere: the same as a folder, by way of fsspec; what is cut short is put again, errors are sentences."""

import fsspec
import pytest
from stores import calm_profile, made

from stash.core.artefact import encode_artefact
from stash.core.errors import StoreError, UserError
from stash.store.queries import run_query
from stash.store.store import verify_store
from stash.store.storing import open_store

pytestmark = pytest.mark.usefixtures("home")

URL = "memory://runs"


@pytest.fixture
def store():
    yield made(URL)
    fsspec.filesystem("memory").store.clear()


def counted(store):
    with run_query(store, "select count(*) from stalls") as answer:
        return list(answer.rows)


def test_a_url_does_what_a_folder_does(store):
    assert len(store.contents().stored) == 4
    assert len(list(store.heads(store.contents().stored))) == 4
    before = counted(store)
    store.put(encode_artefact(calm_profile(9)), "run.stash.json")
    assert counted(store) > before
    assert verify_store(store) == (5, [])


def test_what_was_cut_short_is_put_again(store):
    name = store.contents().stored[0]
    system = fsspec.filesystem("memory")
    whole = system.cat_file(f"/runs/{name}")
    system.pipe_file(f"/runs/{name}", whole[:100])
    assert "cut short" in verify_store(store)[1][0].why
    store.put(whole, name)
    assert verify_store(store) == (4, [])


def test_what_a_protocol_raises_is_a_sentence(store, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("AccessDenied: not you\nand more")

    for method in ("pipe_file", "ls", "cat_file", "cat"):
        monkeypatch.setattr(type(store.storage.system), method, fails)
    for what, words in (
        (lambda: store.put(encode_artefact(calm_profile(9)), "x"), "write"),
        (store.contents, "read"),
    ):
        with pytest.raises(
            StoreError, match=rf"^cannot {words} the store {URL}: AccessDenied: not you$"
        ):
            what()
    with pytest.raises(StoreError, match="cannot read the store"):
        list(store.heads(["20261101T120000Z-0123456789abcdef01234567.stash.json"]))


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(url):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(UserError, match="pip install s3fs"):
        open_store("s3://bucket/runs")
    with pytest.raises(UserError, match="Install s3fs"):
        open_store("other://bucket/runs")


def test_a_password_in_a_url_is_not_shown():
    url = "memory://me:hunter2@host/runs"
    assert open_store(url).url == "memory://***@host/runs"
