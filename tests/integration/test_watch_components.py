"""What a watch exports, read by the programs that it is for: Prometheus and promtool, MLflow, TensorBoard, W&B.

Needs Debian's ``prometheus`` (``apt-get install prometheus``, or a folder in STASH_PROMETHEUS), and for trackers a
throw-away environment, which is made with pip.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from stash.monitor.records import Header, LateRank, Window
from stash.monitor.watch_metrics import FAMILIES, Metrics, MetricsServer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"


def program(name: str) -> str:
    folder = os.environ.get("STASH_PROMETHEUS")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here; install Debian's prometheus, or name its folder in STASH_PROMETHEUS")
    return found


def window(first: int) -> Window:
    return Window(
        began=time.time() - 10, seconds=10, first_step=first, last_step=first + 99, steps=100, step_seconds=0.1,
        stalls={"compute": 0.06, "transfer": None, "input": 0.04}, ranks={0: {"forward": 0.06}},
        stragglers=(LateRank(rank=0, stage="input", seconds=0.01),),
    )  # fmt: skip


def header() -> Header:
    return Header(id="x", stash_version="1", began=1e9, job="train.py", ranks=2, baseline_stalls={"step": 0.05})


def test_promtool_accepts_the_metrics_and_the_alert_rules() -> None:
    promtool = program("promtool")
    metrics = Metrics(header())
    metrics.take(window(1))
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=metrics.text(openmetrics=False),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    rules = subprocess.run(
        [promtool, "check", "rules", str(HOW_TO / "watch-rules.yml")], capture_output=True, text=True, check=False
    )
    assert "4 rules found" in rules.stdout, rules.stderr


def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    promtool = program("promtool")
    dashboard = json.loads((HOW_TO / "watch-grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) == 8
    rules = [{"record": f"query:{at}", "expr": expr.replace("$instance", ".*")} for at, expr in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, text=True, check=False
    )
    assert "8 rules found" in checked.stdout, checked.stderr
    exported = {
        f"{name}{ {'counter': '_total', 'info': '_info'}.get(kind, '') }" for name, (kind, _) in FAMILIES.items()
    }
    for query in queries:
        assert set(re.findall(r"\bstash_\w+", query)) <= exported


def test_prometheus_scrapes_a_watch(tmp_path: Path, free_port: int) -> None:
    prometheus = program("prometheus")
    server = MetricsServer(0, header())
    server.take(window(1))
    target = f"127.0.0.1:{server._server.server_address[1]}"
    scraped = {"job_name": "watch", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    rules = [str(HOW_TO / "watch-rules.yml")]
    (tmp_path / "p.yml").write_text(yaml.safe_dump({"rule_files": rules, "scrape_configs": [scraped]}))
    own = f"127.0.0.1:{free_port}"
    words = (f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/db", f"--web.listen-address={own}")
    process = subprocess.Popen([prometheus, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found, deadline = [], time.monotonic() + 30
        while not found and time.monotonic() < deadline:
            time.sleep(0.5)
            try:
                question = f"http://{own}/api/v1/query?query=stash_exposed_seconds_total"
                with urllib.request.urlopen(question) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                continue
        values = {each["metric"]["stall"]: float(each["value"][1]) for each in found}
        assert values == pytest.approx({"compute": 6.0, "input": 4.0})
    finally:
        process.terminate()
        process.wait(10)
        server.close()


@pytest.fixture(scope="module")
def trackers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has MLflow and W&B, over the packages of this one."""
    given = os.environ.get("STASH_TRACKERS_PYTHON")
    if given:
        return given
    folder = tmp_path_factory.mktemp("trackers")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (next(folder.glob("lib/python*/site-packages")) / "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made = subprocess.run(
        [str(folder / "bin" / "pip"), "install", "-q", "mlflow", "wandb"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"pip cannot install mlflow and wandb here: {made.stderr[-300:]}")
    return str(folder / "bin" / "python")


LOGS = """
import sys
from stash.monitor.records import Header, Window
from stash.monitor.trackers import tracker
one = tracker(sys.argv[1], Header(id="x1", stash_version="1", began=1e9, job="train.py"))
for first in (1, 101):
    one.take(Window(
        began=1e9, seconds=10, first_step=first, last_step=first + 99, steps=100, step_seconds=0.1,
        stalls={"compute": 0.06, "input": 0.04},
    ))
one.close()
"""


def logged(python: str, folder: Path, where: str, **variables: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    subprocess.run([python, "-c", LOGS, where], cwd=folder, env=environment, check=True, timeout=200)


def test_mlflow_on_sqlite_has_the_windows(trackers: str, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/mlflow.db"
    logged(trackers, tmp_path, "mlflow:watched", MLFLOW_TRACKING_URI=address)
    ask = (
        "import mlflow; c = mlflow.MlflowClient(); e = c.get_experiment_by_name('watched')\n"
        "r, = c.search_runs([e.experiment_id])\n"
        "h = c.get_metric_history(r.info.run_id, 'stash/input_seconds')\n"
        "print(r.info.status, [(m.step, m.value) for m in h])"
    )
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address}
    found = subprocess.run([trackers, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "FINISHED [(100, 0.04), (200, 0.04)]"


READS_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
content, at, data, rows = open(sys.argv[1], "rb").read(), 7, b"", []
while at + 7 <= len(content):  # LevelDB's log: blocks of 32 KiB, records that are whole or cut at a block's end
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    length, kind = struct.unpack("<HB", content[at + 4 : at + 7])
    data, at = data + content[at + 7 : at + 7 + length], at + 7 + length
    if kind in (1, 4):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        data = b""
        if record.WhichOneof("record_type") == "history":
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
print(json.dumps([[row["stash/step"], row["stash/input_seconds"]] for row in rows]))
"""


def test_offline_files_of_wandb_have_the_windows_on_an_axis_of_their_own(trackers: str, tmp_path: Path) -> None:
    logged(trackers, tmp_path, "wandb:watched", WANDB_MODE="offline", WANDB_SILENT="true")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found = subprocess.run([trackers, "-c", READS_WANDB, str(file)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[-1]) == [[100, 0.04], [200, 0.04]]


def test_event_files_of_tensorboard_have_the_windows(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged(sys.executable, tmp_path, f"tensorboard:{tmp_path / 'events'}")
    events = accumulator.EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    shown = [(event.step, event.value) for event in events.Scalars("stash/input_seconds")]
    assert shown == [(100, pytest.approx(0.04)), (200, pytest.approx(0.04))]
