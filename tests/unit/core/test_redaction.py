"""What is passed on names no machine, no path and no address, and keeps every number."""

import types
import typing
from dataclasses import is_dataclass, replace

import pytest
from breakdowns import CALM
from probe_builder import p3_8xlarge, probe
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.cli.main import main
from stash.core import redaction
from stash.core.artefact import encode_artefact, load, save
from stash.core.measured import Block, Skipped
from stash.core.records.base import Record
from stash.core.records.circumstances import OtherProgram
from stash.core.records.host import Host, Links, PartState, Probe
from stash.core.records.profile import Profile
from stash.core.redaction import redact_artefact

pytestmark = pytest.mark.usefixtures("home")

KEPT = {
    "a",
    "backend",
    "bus",
    "cloud",
    "collective_bytes_per_step",
    "collectives_per_step",
    "cpu",
    "created",
    "device",
    "disk",
    "driver",
    "dtype",
    "ended",
    "exchange_hook",
    "feed",
    "float32_products",
    "gradients",
    "operator",
    "orders",
    "passes",
    "shapes",
    "filesystem",
    "git_commit",
    "instance",
    "instance_source",
    "kernel",
    "kind",
    "link",
    "machine",
    "model",
    "name",
    "pattern",
    "row",
    "inside",
    "start_method",
    "pcie",
    "pcie_max",
    "precision",
    "rdma",
    "reader",
    "rung",
    "rungs",
    "scope",
    "software",
    "source",
    "stash_version",
    "target",
    "topology",
    "unknown",
    "virtualization",
    "vector",
    "huge_pages",
    "users",  # numbered
}
"""Fields with text that say nothing of where a run was: a new field must be put here, or be redacted."""


def texts(record, seen):
    """The names of all fields with text, at any depth; blocks, of which no name says where, are left as they are."""
    seen.add(record)
    fields = getattr(record, "model_fields", None)
    plain = typing.get_type_hints(record) if fields is None else {}
    for name, annotation in plain.items() or ((n, f.annotation) for n, f in fields.items()):
        for kind in parts(annotation):
            is_record = isinstance(kind, type) and (issubclass(kind, Record) or is_dataclass(kind))
            if kind is str:
                yield name
            elif is_record and kind not in {*seen, Block}:
                yield from texts(kind, seen)


def parts(kind):
    arguments = typing.get_args(kind)
    if not arguments or (isinstance(kind, types.GenericAlias) and typing.get_origin(kind) is type):
        yield kind
    for each in arguments:
        yield from parts(each)


def test_every_text_of_an_artefact_is_redacted_or_known_to_be_harmless():
    found = {*texts(Profile, set()), *texts(Probe, set())}
    places = {*redaction.PATHS, *redaction.CODE, *redaction.SOURCES}
    changed = {*places, *redaction.HOSTNAMES, *redaction.SENTENCES, *redaction.COMMANDS}
    assert found - changed - KEPT == set()
    assert changed <= found


SENTENCES = {
    "the file /home/bob/data/x.jpg of gpu-7.corp.example is gone": "the file <path> of host0 is gone",
    "gpu-7 and gpu-8 take 3 GB/s, 90 samples/s": "host0 and host1 take 3 GB/s, 90 samples/s",
    "see s3://bucket/secret and 10.0.0.12:29500": "see <url> and <address>:29500",
    "ext4 on /dev/nvme0n1p1": "ext4 on /dev/nvme0n1p1",
    "~/runs, ../x and ./y": "<path>, <path> and <path>",
    "torch 2.13.0 and CUDA 12.4": "torch 2.13.0 and CUDA 12.4",
    "gpu-77 is another": "gpu-77 is another",
}
HOSTS = (Host(hostname="gpu-7.corp.example"), Host(hostname="gpu-8.corp.example"))


@pytest.mark.parametrize(("sentence", "left"), SENTENCES.items())
def test_sentences(sentence, left):
    profile = build(CALM, hosts=HOSTS, notes=(sentence,))
    assert redact_artefact(profile).notes == (left,)


def test_programs_beside_the_job_and_machines_are_numbered():
    profile = build(CALM, hosts=HOSTS, others=(OtherProgram(name="acme-miner", cores=0.5),))
    ranks = tuple(replace(rank, machine="2f9d01aa") for rank in profile.ranks)
    left = redact_artefact(profile.model_copy(update={"ranks": ranks}))
    assert [each.name for each in left.others] == ["program0"]
    assert {rank.machine for rank in left.ranks} == {"machine0"}


def test_programs_and_users_of_a_probed_machine_are_numbered():
    state = PartState(device="cuda:0", users=("acme.py (7)",))
    links = Links(created="2026-11-29T00:00:00", elapsed_seconds=1.0, states=(state,))
    host = Host(
        hostname="gpu-7", links=links, programs=(OtherProgram(name="acme-miner", cores=0.5),)
    )
    (left,) = redact_artefact(build(CALM, hosts=(host,))).hosts
    assert [each.name for each in left.programs] == ["program0"]
    assert left.links.states[0].users == ("process0",)


def test_names_paths_and_addresses_are_gone_and_numbers_stay():
    words = (
        "/home/bob/train.py",
        "--data",
        "/mnt/acme/imagenet",
        "--out=runs/secret/x",
        "--lr",
        "0.1",
        "--master=gpu-8",
    )
    profile = build(
        CALM, hosts=HOSTS, workload={"command": words, "name": "/home/bob/train.py"}
    ).model_copy(update={"skipped": (Skipped(rung="cold", why="/mnt/acme is on tmpfs"),)})
    left = redact_artefact(profile)
    text = encode_artefact(left).decode()
    assert not [
        word for word in ("bob", "acme", "secret", "gpu-7", "gpu-8", "corp") if word in text
    ]
    assert left.workload.command == (
        "train.py",
        "--data",
        "<path>",
        "--out=<path>",
        "--lr",
        "0.1",
        "--master=host1",
    )
    assert left.workload.name == "train.py"
    assert attribute(left).stalls == attribute(profile).stalls
    assert redact_artefact(left) == left


def test_a_probe_is_redacted_too():
    found = probe(p3_8xlarge())
    left = redact_artefact(found)
    assert left.hosts[0].hostname == "host0"
    assert left.hosts[0].links is not None
    assert found.hosts[0].hostname not in encode_artefact(left).decode()


def test_what_is_shown_and_saved_is_redacted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(build(CALM, hosts=HOSTS, notes=("gpu-7 was hot",)), "run.stash.json")

    def run(*words):
        monkeypatch.setattr("sys.argv", ["stash", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert run("show", "run.stash.json", "--redact", "-o", "shared.stash.json") == 0
    printed = capsys.readouterr()
    assert "gpu-7" not in printed.out
    assert "host0 was hot" in printed.out
    assert printed.out.startswith(
        "Wrote shared.stash.json, without names of machines, paths and addresses.\n"
    )
    assert load("shared.stash.json").notes == ("host0 was hot",)
    assert run("show", "run.stash.json", "--redact", "-o", "./run.stash.json") == 2
    assert "is the profile itself" in capsys.readouterr().err
    assert run("show", "run.stash.json", "-o", "x.stash.json") == 2
    assert "belongs to --redact" in capsys.readouterr().err
    assert load("run.stash.json").notes == ("gpu-7 was hot",)
