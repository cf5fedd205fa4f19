"""A store on an S3-like server, of moto, on this machine's loopback interface: what commands do with it."""

import json

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.cli.main import main
from stash.core.artefact import load, save
from stash.core.errors import StoreError
from stash.report.output import show_then_save
from stash.store.storing import open_store, store_for_copies

server = pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")
fsspec = pytest.importorskip("fsspec")
s3fs = pytest.importorskip("s3fs")

URL = "s3://bucket/team/runs"


@pytest.fixture(scope="module")
def endpoint():
    """The server's address; no credentials but these are looked for, and no metadata service."""
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    s3fs.S3FileSystem.clear_instance_cache()  # of an earlier server, at another port
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield f"http://{host}:{port}"
    started.stop()


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["stash", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_bucket_is_a_store(endpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STASH_STORE", URL)
    assert run(monkeypatch, "list") == 2
    assert f"there is no store {URL}, or nothing in it yet" in capsys.readouterr().err
    for day in (1, 2, 3):
        save(build(CALM, created=f"2026-11-0{day}T12:00:00+00:00"), f"{day}.stash.json")
    assert run(monkeypatch, "store", "add", "1.stash.json", "2.stash.json", "1.stash.json") == 0
    capsys.readouterr()
    assert run(monkeypatch, "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["created"][:10] for row in rows] == ["2026-11-02", "2026-11-01"]
    assert run(monkeypatch, "compare", rows[0]["id"][:6], rows[1]["id"][:6]) == 0
    assert run(monkeypatch, "show", f"{URL}/{rows[0]['file']}", "--json") == 0
    assert run(monkeypatch, "compare", rows[0]["id"], f"{URL}/{rows[0]['file']}") == 2  # itself
    capsys.readouterr()
    sql = "select count(distinct id), count(*) from stalls"
    assert run(monkeypatch, "query", sql, "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[1] == "2,14"
    assert run(monkeypatch, "store", "add", "3.stash.json") == 0
    assert run(monkeypatch, "query", "select count(*) from blocks", "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(3 * len(load("1.stash.json").blocks))
    assert run(monkeypatch, "store", "verify") == 0
    fsspec.filesystem("s3").pipe_file("bucket/team/runs/notes.txt", b"x")
    assert run(monkeypatch, "store", "verify") == 1
    assert "notes.txt: it is called like no artefact" in capsys.readouterr().out


def test_a_bucket_that_is_not_there_loses_nothing(endpoint, tmp_path, capsys):
    target = tmp_path / "a.stash.json"
    show_then_save(build(CALM), target, lambda: None, copies=store_for_copies("s3://nobody-s/runs"))
    assert (
        "note: no copy was kept: cannot write the store s3://nobody-s/runs: "
        in capsys.readouterr().err
    )
    assert load(target) == build(CALM)
    with pytest.raises(StoreError, match="cannot write the store"):
        open_store("s3://nobody-s/runs").put(target.read_bytes(), "a.stash.json")
    assert [each["Name"] for each in boto3.client("s3").list_buckets()["Buckets"]] == ["bucket"]
