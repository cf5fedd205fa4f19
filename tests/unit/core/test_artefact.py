"""The life of the profile's file: whole or not at all, and a sentence for everything that can be wrong."""

import errno
import json
import os

import pytest
from probe_builder import host, probe
from profile_builder import build

from stash.core import artefact
from stash.core.artefact import load, load_any, load_probe, save
from stash.core.errors import ArtefactError
from stash.core.records.base import SCHEMA
from stash.core.records.profile import Workload

pytestmark = pytest.mark.usefixtures("home")

PROFILE = build({"solo": [0.1, 0.2], "crowd": [0.11, 0.19]})


def test_what_is_saved_is_loaded(tmp_path):
    save(PROFILE, tmp_path / "a.stash.json")
    assert load(tmp_path / "a.stash.json") == PROFILE
    assert load(str(tmp_path / "a.stash.json")) == PROFILE


def test_bytes_that_are_no_text_are_saved_as_words_that_say_them(tmp_path):
    latin = os.fsencode("caf") + b"\xe9"
    utf8 = "café".encode()
    command = (*(word.decode("ascii", "surrogateescape") for word in (latin, utf8)), "C:\\x \ud800")
    workload = Workload(**{**PROFILE.workload.model_dump(), "command": command})
    save(PROFILE.model_copy(update={"workload": workload}), tmp_path / "a.stash.json")
    assert load(tmp_path / "a.stash.json").workload.command == ("caf\\xe9", "café", "C:\\x \\ud800")


def test_a_write_that_fails_keeps_the_old_profile_and_cleans_up(tmp_path, monkeypatch):
    path = tmp_path / "a.stash.json"
    save(PROFILE, path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtefactError, match=r"no space left.*--output"):
        save(PROFILE.model_copy(update={"ended": "budget"}), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.stash.json"]


def test_a_missing_folder_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(ArtefactError, match=r"does not exist; create it with `mkdir -p .*runs`"):
        save(PROFILE, tmp_path / "runs" / "a.stash.json")


@pytest.mark.parametrize(
    ("name", "says"),
    [("rasnet.stash.json", r"there is no file .*rasnet.*"), (".", r"is a folder.*")],
)
def test_what_is_no_file_suggests_the_profiles_there(name, says, tmp_path):
    save(PROFILE, tmp_path / "resnet.stash.json")
    with pytest.raises(ArtefactError, match=rf"{says}resnet\.stash\.json"):
        load(tmp_path / name)


def test_a_missing_file_in_an_empty_folder_says_who_writes_profiles(tmp_path):
    with pytest.raises(ArtefactError, match="`stash profile` writes one"):
        load(tmp_path / "a.stash.json")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("hello", "it is not JSON"),
        ("", "it is not JSON"),
        ("[1, 2]", "no schema_version"),
        ('{"a": 1}', "no schema_version"),
        ('{"schema_version": 1, "workload": {"comm', "damaged or cut short"),
        ('{"schema_version": 1}', "is not a profile: stash_version: field required"),
        ('{"schema_version": 0}', "which no Stash ever wrote"),
        ('{"schema_version": true}', "no schema_version"),
        ('{"schema_version": 1, "a": ' + "[" * 100_000, "its brackets are nested too deep"),
        ('{"schema_version": 1, "a": ' + "9" * 5000 + "}", "a number is too long"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_sentence(tmp_path, content, complaint):
    path = tmp_path / "a.stash.json"
    path.write_text(content)
    with pytest.raises(ArtefactError, match=complaint):
        load(path)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("elapsed_seconds", float("inf"), "elapsed_seconds: input should be"),
        ("elapsed_seconds", float("nan"), "elapsed_seconds: input should be a finite number"),
        ("elapsed_seconds", 1e300, "elapsed_seconds: input should be less than or equal to 10{18}"),
        (
            "rates",
            [{"feed": "warm", "rank": 0, "round": 0, "samples": 1, "seconds": 1e-300}],
            r"rates\.0\.seconds",
        ),
        ("ended", "x" * 2**21, "ended: string should have at most 1048576 characters"),
    ],
)
def test_what_cannot_have_been_measured_is_refused_by_the_name_of_its_field(
    tmp_path, field, value, complaint
):
    (tmp_path / "a.stash.json").write_text(
        json.dumps(artefact.document_of(PROFILE) | {field: value})
    )
    with pytest.raises(ArtefactError, match=complaint):
        load(tmp_path / "a.stash.json")


def test_no_secret_of_the_command_or_of_an_exception_is_ever_kept(tmp_path):
    workload = PROFILE.workload.model_dump() | {
        "command": ["train.py", "--api-key", "s3cr3t", "http://u:s3cr3t@h/"]
    }
    notes = ["the script failed (401 for https://h/?token=s3cr3t)", "x" * 3_000_000]
    made = PROFILE.model_validate(PROFILE.model_dump() | {"workload": workload, "notes": notes})
    save(made, tmp_path / "a.stash.json")
    assert "s3cr3t" not in (tmp_path / "a.stash.json").read_text()
    assert (tmp_path / "a.stash.json").stat().st_size < 10_000
    assert load(tmp_path / "a.stash.json").workload.command == (
        "train.py",
        "--api-key",
        "***",
        "http://***@h/",
    )


def test_a_newer_schema_says_how_to_upgrade(tmp_path):
    document = artefact.document_of(PROFILE) | {"schema_version": SCHEMA + 1}
    (tmp_path / "a.stash.json").write_text(json.dumps(document))
    with pytest.raises(ArtefactError, match=r"made by a newer Stash.*upgrade Stash to read it"):
        load(tmp_path / "a.stash.json")


def test_unknown_fields_of_a_later_minor_version_are_ignored(tmp_path):
    document = artefact.document_of(PROFILE) | {"colour": "blue"}
    (tmp_path / "a.stash.json").write_text(json.dumps(document))
    assert load(tmp_path / "a.stash.json") == PROFILE


def test_an_old_schema_is_migrated_step_by_step(tmp_path, monkeypatch):
    document = artefact.document_of(PROFILE) | {"schema_version": SCHEMA - 1}
    document["finish"] = document.pop("ended")
    (tmp_path / "a.stash.json").write_text(json.dumps(document))

    def rename(old):
        return {("ended" if key == "finish" else key): value for key, value in old.items()}

    monkeypatch.setitem(artefact.MIGRATIONS, SCHEMA - 1, rename)
    assert load(tmp_path / "a.stash.json") == PROFILE


def test_a_profile_is_no_probe_and_a_probe_is_no_profile(tmp_path):
    save(build({"solo": [0.1, 0.2]}), tmp_path / "a.stash.json")
    save(probe(host()), tmp_path / "a.host.json")
    assert load_any(tmp_path / "a.stash.json") == build({"solo": [0.1, 0.2]})
    assert load_any(tmp_path / "a.host.json") == probe(host())
    for missing, says in (
        ("missing.stash.json", "profiles there"),
        ("missing.host.json", "probes there"),
    ):
        with pytest.raises(ArtefactError, match=says):
            load_any(tmp_path / missing)
    with pytest.raises(
        ArtefactError,
        match=r"is a profile of `stash profile`, not a probe; .*\*\.host\.json.*`stash probe`",
    ):
        load_probe(tmp_path / "a.stash.json")
    with pytest.raises(
        ArtefactError,
        match=r"is a probe of `stash probe`, not a profile; .*\*\.stash\.json.*`stash profile`",
    ):
        load(tmp_path / "a.host.json")
    with pytest.raises(
        ArtefactError, match=r"there is no file .*; probes there, newest first: .*a\.host\.json"
    ):
        load_probe(tmp_path / "b.host.json")
    (tmp_path / "c.host.json").write_text('{"schema_version": 1, "hosts": [')
    with pytest.raises(ArtefactError, match=r"damaged or cut short"):
        load_probe(tmp_path / "c.host.json")
