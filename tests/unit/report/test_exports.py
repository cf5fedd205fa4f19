"""What other tools get: valid for their parsers, the same twice, and nothing where a package is missing.

MLflow and W&B are no part of the development environment; with them installed, their tests run too.
"""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from breakdowns import CALM
from probe_builder import copy, host, links, probe
from profile_builder import build

from stash.catalog.layers import merge
from stash.core.artefact import encode_artefact, load, save
from stash.core.records.host import Exchange, PartState, Timing
from stash.monitor.records import Header
from stash.monitor.watch_metrics import Metrics
from stash.report.exports import make_export, openmetrics, probe_families

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden"
HOSTILE = 'a"b\\c\nd{e="f"} # EOF\x1b[2J<b>é'


@pytest.fixture
def profiles():
    hostile = build(CALM, workload={"name": HOSTILE, "command": (HOSTILE, "x" * 10_000)})
    return [load(GOLDEN / "one-node.stash.json"), load(GOLDEN / "two-nodes.stash.json"), hostile]


@pytest.fixture
def files(profiles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, profile in enumerate(profiles):
        save(profile, tmp_path / f"{number}.stash.json")
    return [f"{number}.stash.json" for number in range(len(profiles))]


def test_what_is_handed_over_adds_up_and_leaves_out_what_is_unknown(
    profiles,
):
    run = make_export(profiles[0])
    stalls = [
        value
        for name, value in run.figures.items()
        if name.startswith("stall/") and "_low" not in name
    ]
    seconds = [
        run.figures[name]
        for name in run.figures
        if name.startswith("stall/") and name.endswith("y_seconds")
    ]
    assert len(stalls) > len(seconds)
    parts = ("compute", "contention", "interconnect", "prep", "fetch")
    assert sum(run.figures[f"stall/{name}_seconds"] for name in parts) == pytest.approx(
        run.figures["step_seconds"]
    )
    assert "stall/network_seconds" not in run.figures
    assert run.facts["ranks"] == "2"
    assert run.artefact == encode_artefact(profiles[0])
    assert make_export(profiles[0]) == run


def test_openmetrics_text_is_valid_and_keeps_every_value(profiles):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    text = openmetrics([*map(make_export, profiles)])
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert {
        "stash_run_info",
        "stash_step_seconds",
        "stash_stall_seconds",
        "stash_stall_share",
    } <= set(families)
    assert families["stash_step_seconds"].unit == "seconds"
    steps = {
        sample.labels["workload"]: sample.value for sample in families["stash_step_seconds"].samples
    }
    assert steps["resnet18"] == pytest.approx(0.176)
    assert len(steps) == 3
    stalls = [
        s for s in families["stash_stall_seconds"].samples if s.labels["workload"] == "resnet18"
    ]
    assert sum(sample.value for sample in stalls) == pytest.approx(0.176)
    assert {s.labels["fact_precision"] for s in families["stash_run_info"].samples} == {
        "float32",
        "unknown",
    }


def test_every_query_of_the_grafana_dashboard_is_about_what_is_exported(
    profiles,
):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    exported_families = parser.text_string_to_metric_families(
        openmetrics([*map(make_export, profiles)])
    )
    labels = {family.name: set(family.samples[0].labels) for family in exported_families}
    dashboard = json.loads((ROOT / "docs/how-to/grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [v["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    assert len(queries) == 5
    for query in queries:
        found = re.fullmatch(
            r'(?:label_values\()?(stash_\w+)(?:\{(\w+)="\$\w+"\}|, (\w+)\))', query
        )
        assert found is not None, query
        assert (found[2] or found[3]) in labels[found[1]], query
    legends = {
        target["legendFormat"] for panel in dashboard["panels"] for target in panel["targets"]
    }
    assert {name for each in legends for name in re.findall(r"{{(\w+)}}", each)} <= labels[
        "stash_stall_seconds"
    ]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_labels_are_lower_case_and_without_the_jobs_arguments():
    secret = ("train.py", "--data", "/home/me/Secret", "--run-name", "plan-b")
    profile = build(CALM, workload={"name": "train.py", "command": secret})
    assert "Secret" in str(make_export(profile).facts)
    text = openmetrics([make_export(profile)])
    assert "Secret" not in text
    assert "plan-b" not in text
    watched = Metrics(
        Header(id="1" * 16, stash_version="1", began=0.0, job="/home/me/train.py", command=secret)
    ).text()
    for shown in (text, watched):
        assert "plan-b" not in shown
        assert "/home/me" not in shown
        labels = re.findall(r'([A-Za-z_][A-Za-z0-9_]*)="', shown)
        assert labels
        assert [label for label in labels if label != label.lower()] == []


def test_a_probes_figures_exchanges_and_verdict_are_metrics():
    swept = Exchange(
        backend="gloo", nodes=1, ranks=2, timings=(Timing(bytes=1 << 20, seconds=(0.001,) * 6),)
    )
    state = PartState(device="cpu", others_cores=2.0)
    measured = links(copies=(copy("host", "cuda:0", 9e9),), exchanges=(swept,), states=(state,))
    text = openmetrics([], probe_families([probe(host("a", measured))], merge(None, None)))
    assert (
        'stash_probe_rate{hostname="a",part="copies",group="host to GPU",member="GPU 0",unit="bytes/s"} '
        in text
    )
    assert re.search(
        r'stash_probe_rate\{.*group="all-reduce, gloo, 2 ranks on 1, 1048576 bytes".*\} 1048576000',
        text,
    )
    assert 'stash_probe_finding{hostname="a",finding="busy-cores"} 1.0' in text
    assert 'stash_probe_verdict{hostname="a",answer="probe again"} 1.0' in text


def test_tensorboard_reads_figures_and_text(files, run_stash):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # the second time replaces the first
        printed = run_stash("export", *files, "--to", "tensorboard", "-o", "tb")
    assert "show them with `tensorboard --logdir tb`" in printed.out
    (folder,) = (
        path
        for path in Path("tb").iterdir()
        if make_export(load(files[0])).id.startswith(path.name)
    )
    read = accumulator.EventAccumulator(str(folder)).Reload()
    (step,) = read.Scalars("stash/step_seconds")
    assert step.value == pytest.approx(0.176)
    (text,) = read.Tensors("stash/verdict")
    assert b"The largest stall is interconnect" in text.tensor_proto.string_val[0]


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        (("--to", "excel"), "--to excel: it must be mlflow, wandb, tensorboard or openmetrics"),
        (("--to", "tensorboard"), "--to tensorboard needs a folder: --output tb/"),
        (("--to", "mlflow", "-o", "x"), "MLflow has a place of its own"),
        (("--to", "openmetrics", "-o", "/dev/null"), "--output /dev/null is not a regular file"),
        (("--to", "openmetrics", "-o", "1.stash.json"), "what was measured or planned ends so"),
        (("--to", "openmetrics", "-o", "link"), "is what the answer is made of"),
        (("--to", "openmetrics", "-o", "no/where"), "--output no/where: there is no folder no"),
    ],
)
def test_what_does_not_fit_is_refused(files, words, notes, run_stash):
    Path("link").hardlink_to(files[0])
    assert notes in run_stash("export", files[0], *words, code=2).err
    assert load("link") == load(files[0])


@pytest.mark.parametrize("tool", ["mlflow", "wandb", "tensorboard"])
def test_a_package_that_is_missing_is_named(files, monkeypatch, tool, run_stash):
    monkeypatch.setitem(sys.modules, tool, None)
    words = ("-o", "tb") if tool == "tensorboard" else ()
    assert (
        f"needs {tool}, which is not installed: type `pip install {tool}`"
        in run_stash("export", files[0], "--to", tool, *words, code=2).err
    )


def test_what_a_tool_raises_is_a_sentence(files, monkeypatch, run_stash):
    def refuses(*arguments):
        raise RuntimeError("401: who are you?\nmore")

    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setattr("stash.report.exports.log_to_mlflow", refuses)
    assert (
        run_stash("export", files[0], "--to", "mlflow", code=1).err
        == "error: MLflow did not take the profiles: 401: who are you?\n"
    )


def test_names_are_left_out_if_asked(tmp_path, run_stash):
    save(build(CALM, host={"cpu": "EPYC"}), tmp_path / "a.stash.json")
    printed = run_stash(
        "export", str(tmp_path / "a.stash.json"), "--to", "openmetrics", "--redact"
    ).out
    assert 'fact_host="host0"' in printed
    assert 'fact_cpu="EPYC"' in printed


def test_mlflow_keeps_facts_figures_and_the_profile(files, tmp_path, monkeypatch, run_stash):
    mlflow = pytest.importorskip("mlflow")
    url = f"sqlite:///{tmp_path}/ml.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    for _ in range(2):  # the second time finds them there
        run_stash("export", *files, "--to", "mlflow", "--project", "speed")
    client = mlflow.MlflowClient(url)
    found = client.search_runs([client.get_experiment_by_name("speed").experiment_id])
    assert len(found) == len(files)
    (one,) = (each for each in found if each.data.params["workload"] == "resnet18")
    assert one.data.metrics["stash/step_seconds"] == pytest.approx(0.176)
    assert one.data.params["ranks"] == "2"
    kept = client.download_artifacts(
        one.info.run_id, client.list_artifacts(one.info.run_id)[0].path
    )
    assert load(kept) == load(files[0])


def test_wandb_keeps_them_offline(files, monkeypatch, tmp_path, run_stash):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run_stash("export", *files, "--to", "wandb", "--project", "speed")
    kept = [path.read_bytes() for path in tmp_path.rglob("run-*.wandb")]
    assert len(kept) == len(files)
    (one,) = (content for content in kept if make_export(load(files[0])).id.encode() in content)
    for word in (
        b"stall/prep_seconds",
        b"batch_per_device",
        b"The largest stall is",
    ):
        assert word in one
