"""What a watch exports is what Prometheus' own promtool understands.

Needs Debian's ``prometheus`` (``apt-get install prometheus``, or a folder in STASH_PROMETHEUS).
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from stash.monitor.records import Header, LateRank, Window
from stash.monitor.watch_metrics import FAMILIES, Metrics

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"


def program(name):
    folder = os.environ.get("STASH_PROMETHEUS")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not here; install Debian's prometheus, or name its folder in STASH_PROMETHEUS"
        )
    return found


def window(first):
    return Window(
        began=time.time() - 10,
        seconds=10,
        first_step=first,
        last_step=first + 99,
        steps=100,
        step_seconds=0.1,
        stalls={"compute": 0.06, "transfer": None, "input": 0.04},
        ranks={0: {"forward": 0.06}},
        stragglers=(LateRank(rank=0, stage="input", seconds=0.01),),
    )


def header():
    return Header(
        id="x",
        stash_version="1",
        began=1e9,
        job="train.py",
        ranks=2,
        baseline_stalls={"step": 0.05},
    )


def test_promtool_accepts_the_metrics_and_the_alert_rules():
    promtool = program("promtool")
    metrics = Metrics(header())
    metrics.receive_line(window(1))
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=metrics.text(openmetrics=False),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    rules = subprocess.run(
        [promtool, "check", "rules", str(HOW_TO / "watch-rules.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "4 rules found" in rules.stdout, rules.stderr


def test_prometheus_understands_every_query_of_the_dashboard(tmp_path):
    promtool = program("promtool")
    dashboard = json.loads((HOW_TO / "watch-grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) == 8
    rules = [
        {"record": f"query:{at}", "expr": expr.replace("$instance", ".*")}
        for at, expr in enumerate(queries)
    ]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    checked = subprocess.run(
        [promtool, "check", "rules", str(tmp_path / "rules.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 rules found" in checked.stdout, checked.stderr
    exported = {
        f"{name}{ {'counter': '_total', 'info': '_info'}.get(kind, '') }"
        for name, (kind, _) in FAMILIES.items()
    }
    for query in queries:
        assert set(re.findall(r"\bstash_\w+", query)) <= exported
