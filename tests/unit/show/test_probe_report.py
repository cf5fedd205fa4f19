"""What ``stash probe`` prints and saves: the report, the JSON, the file, and the command's refusals."""

from __future__ import annotations

import json
import re

import pytest
from probe_builder import GBIT, gpus, host, links, p3_8xlarge, probe, ring, stream
from profile_builder import build
from typer.testing import CliRunner

from stash.base.errors import ArtefactError, UserError
from stash.base.records import Links, Nic, Timing, Unmeasured
from stash.cli.main import app
from stash.derive.findings import read
from stash.keep import catalog
from stash.keep.artefact import is_probe, load, load_probe, save
from stash.keep.probed import check_probed, with_links
from stash.measure.launch import probe as probing
from stash.show.probe.contract import document
from stash.show.probe.terminal import render
from stash.show.probe.view import view

CATALOG = catalog.load()
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def report(*hosts, width=80, colour=False, saved=None) -> str:
    measured = probe(*hosts)
    return render(view(measured, read(measured, CATALOG), saved), width, colour)


def stash(*words: str):
    """The command as a shell would run it, its errors included."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words))
    return result


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_longer_than_the_terminal(width, colour):
    long_nic = Nic(name="enp135s0f1np1", bytes_per_second=25 * GBIT, driver="mlx5_core", rdma="mlx5_3")
    text = report(p3_8xlarge(nics=(long_nic,) * 4), width=width, colour=colour, saved="a.host.json")
    assert max(map(len, ESCAPE.sub("", text).splitlines())) <= width


def test_without_colour_the_report_is_plain_ascii():
    text = report(p3_8xlarge())
    assert text.isascii()
    assert "?" not in text
    assert "\x1b[" in report(p3_8xlarge(), colour=True)


def test_the_report_names_the_machine_its_links_with_intervals_and_its_findings():
    text = report(p3_8xlarge())
    assert re.search(r"^  type +aws p3\.8xlarge \(from dmi\)$", text, re.MULTILINE)
    assert re.search(r"^  GPUs +4 x Tesla V100-SXM2-16GB, 17\.2 GB each", text, re.MULTILINE)
    assert re.search(r"^  GPU to GPU +9\.8\d GB/s  \+(/- )?0\.\d+.* \d to \d, slowest of 12", text, re.MULTILINE)
    assert re.search(r"^  GPU pair, slowest +9\.8\d GB/s \+(/- )?0\.\d+.* unknown +unknown", text, re.MULTILINE)
    assert re.search(r"^  ! 2 of 6 pairs of GPUs", text, re.MULTILINE)
    assert re.search(r"^  1\. ", text, re.MULTILINE)
    assert "latency 3.9" in text


def test_what_was_not_measured_is_said_with_its_reason_and_shown_as_no_number():
    skipped = links(skipped=(Unmeasured(link="streams", why="there is one node"),))
    text = report(host(measured=skipped))
    assert "unknown  streams: there is one node" in text
    assert "TCP" not in text
    assert "no link was measured" in report(host())
    assert "No findings." in report(host())


def test_a_single_repetition_is_shown_without_an_interval():
    once = links(reads=()).model_copy(update={"streams": (stream(0, 1, 1, GBIT, repetitions=1),)})
    assert "+/- unknown" in report(host(measured=once))


def test_a_curve_that_two_parameters_do_not_describe_is_not_given_two():
    clean = ring(2, 1e-5, 1e9, noise=0.0)
    bumpy = tuple(
        Timing(bytes=t.bytes, seconds=tuple(s * (6 if 10**4 < t.bytes < 10**6 else 1) for s in t.seconds))
        for t in clean.timings
    )
    text = report(host(measured=links(exchanges=(clean.model_copy(update={"timings": bumpy}),))))
    assert "do not describe this curve" in text
    assert "per hop" not in text
    assert "per hop" in report(host(measured=links(exchanges=(clean,))))


def test_of_alike_nodes_the_slowest_exchange_is_shown_once():
    nodes = [host(f"n{i}", links(exchanges=(ring(2, 1e-5, 1e9 / (1 + i)),))) for i in range(3)]
    text = report(*nodes)
    assert text.count("all-reduce, gloo, 2 ranks inside") == 1
    assert "inside n2 (slowest of 3)" in text
    assert "n0, n1 and n2 most like" in text


# The document ------------------------------------------------------------------------------------------


def test_the_json_holds_the_probe_as_saved_and_what_is_derived_beside_it():
    measured = probe(p3_8xlarge())
    made = json.loads(json.dumps(document(measured, read(measured, CATALOG))))
    assert list(made) == [
        *("schema", "probe", "links", "exchanges", "findings", "comparisons", "nearest", "notes", "next_steps")
    ]
    assert made["probe"] == measured.model_dump(mode="json")
    pair = next(row for row in made["comparisons"][0]["rows"] if row["name"] == "GPU pair, slowest")
    assert pair["catalog"] is None
    assert pair["ratio"] is None
    assert made["links"][0]["rate"]["low"] < made["links"][0]["rate"]["value"] < made["links"][0]["rate"]["high"]


# The file ----------------------------------------------------------------------------------------------


def test_a_saved_probe_is_loaded_and_shown_again(tmp_path, capsys, monkeypatch):
    file = tmp_path / "a.host.json"
    save(probe(p3_8xlarge()), file)
    assert load_probe(file) == probe(p3_8xlarge())
    assert is_probe(file)
    shown = stash("show", str(file))
    assert shown.exit_code == 0
    assert "2 of 6 pairs of GPUs" in shown.output
    assert json.loads(stash("show", str(file), "--json").output)["schema"] == 1


def test_a_profile_is_no_probe_and_a_probe_is_no_profile(tmp_path):
    save(build({"solo": [0.1, 0.2]}), tmp_path / "a.stash.json")
    save(probe(host()), tmp_path / "a.host.json")
    assert not is_probe(tmp_path / "a.stash.json")
    assert not is_probe(tmp_path / "missing.stash.json")
    assert is_probe(tmp_path / "missing.host.json")
    with pytest.raises(ArtefactError, match=r"is a profile, not a probe; .*\*\.host\.json.*`stash probe`"):
        load_probe(tmp_path / "a.stash.json")
    with pytest.raises(ArtefactError, match=r"is a probe, not a profile; .*\*\.stash\.json.*`stash profile`"):
        load(tmp_path / "a.host.json")
    with pytest.raises(ArtefactError, match=r"there is no file .*; probes there, newest first: .*a\.host\.json"):
        load_probe(tmp_path / "b.host.json")
    (tmp_path / "c.host.json").write_text('{"schema_version": 1, "hosts": [')
    with pytest.raises(ArtefactError, match=r"damaged or cut short"):
        load_probe(tmp_path / "c.host.json")


# Into a profile ----------------------------------------------------------------------------------------


def measured_links(seconds: float) -> Links:
    return links().model_copy(update={"elapsed_seconds": seconds})


def test_links_go_to_the_hosts_of_the_same_name_and_the_others_are_said_to_be_unknown():
    profile = build({"solo": [0.1, 0.2]}, ranks=4, nodes=2)
    filled = with_links(profile, probe(host("node1", measured_links(3.0), gpus=gpus(8))))
    assert [item.links for item in filled.hosts] == [None, measured_links(3.0)]
    assert filled.hosts[1].gpus == profile.hosts[1].gpus
    assert "the links of node0 are unknown" in filled.notes[-1]


def test_nodes_that_share_a_name_are_matched_in_order():
    profile = build({"solo": [0.1, 0.2]}, ranks=2, nodes=2, host={})
    same = profile.model_copy(update={"hosts": tuple(h.model_copy(update={"hostname": "vm"}) for h in profile.hosts)})
    filled = with_links(same, probe(host("vm", measured_links(1.0)), host("vm", measured_links(2.0))))
    assert [item.links.elapsed_seconds for item in filled.hosts] == [1.0, 2.0]


def test_a_probe_of_other_machines_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(
        UserError, match=r"is of node0, not of this machine \(here\); probe this one with `stash probe"
    ):
        check_probed(probe(host("node0", links())), "x.host.json", "here")
    with pytest.raises(UserError, match="holds no measured link"):
        check_probed(probe(host("here")), "x.host.json", "here")
    check_probed(probe(host("here", links())), "x.host.json", "here")
    save(probe(host("somewhere-else", links())), tmp_path / "x.host.json")
    result = stash("profile", "--workload", "resnet18", "--probe", str(tmp_path / "x.host.json"))
    assert isinstance(result.exception, UserError)
    assert "not of this machine" in str(result.exception)


# The command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--against", "p3.9xlarge"], r"unknown instance 'p3\.9xlarge'; did you mean"),
        (["--instance", "nope"], r"unknown instance 'nope'"),
        (["/no/such/folder"], r"there is no data folder /no/such/folder"),
        (["old.host.json"], r"shown with `stash show old\.host\.json`"),
        (["--only", "disks"], r"'disks'.*choose from .*reads"),
        (["--only", "copies", "--no-measure"], r"exclude each other"),
        (["--budget", "0"], r"--budget"),
        (["--budget", "nan"], r"--budget"),
        (["--kind", "videos"], r"videos"),
        (["-o", "/no/such/folder/x.host.json"], r"there is no folder /no/such/folder"),
        (["--nnodes", "2"], r"needs --rdzv-endpoint"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence_before_anything_is_measured(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = stash("probe", *words)
    assert isinstance(result.exception, UserError), result.output
    assert result.exception.exit_code == 2
    assert re.search(says, str(result.exception))
    assert "\n" not in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_no_measure_says_what_the_machine_is_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = stash("probe", "--no-measure")
    assert result.exit_code == 0, result.exception
    assert "no link was measured" in result.output
    assert list(tmp_path.iterdir()) == []
    made = json.loads(stash("probe", "--no-measure", "--json", "--instance", "p3.8xlarge").stdout)
    assert made["probe"]["hosts"][0]["instance"] == "p3.8xlarge"
    assert made["comparisons"][0]["instance"] == "p3.8xlarge"


def test_what_is_measured_is_shown_and_saved_under_the_machines_name(tmp_path, monkeypatch):
    asked = {}

    def measured(where, **wishes):
        asked.update(wishes)
        wishes["say"]("copies")
        return probe(p3_8xlarge())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "probe", measured)
    monkeypatch.setattr("socket.gethostname", lambda: "box.example.org")
    result = stash("probe", str(tmp_path), "--only", "copies, reads", "--budget", "20")
    assert result.exit_code == 0, result.exception
    assert (asked["data"], asked["what"], asked["budget"]) == (tmp_path, frozenset({"copies", "reads"}), 20.0)
    assert load_probe(tmp_path / "box.host.json") == probe(p3_8xlarge())
    assert "`stash profile --probe box.host.json train.py`" in " ".join(result.stdout.split())
    assert "copying in memory" in result.stderr
    stash("probe")
    assert (tmp_path / "box-2.host.json").exists()  # never over an earlier one
