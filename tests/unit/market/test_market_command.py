"""``stash market`` as it is typed: what it prints, in JSON too, and the sentences about what was typed wrong."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from stash.core.artefact import save
from stash.market.market_table import read_market, written
from tests.support.commands import run
from tests.support.forecast_profiles import gpu_job
from tests.support.small_markets import offer, trace

HOUR = 3600.0
JOB = """name: small
samples: 36000
rates:
  p3: {samples_per_second: 1, gpus: 1, stalls: {interconnect: 0.25}}
boot: 10m
checkpoint_every: 30m
save: 1m
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    a, b, fixed = offer("p3@us-east-1a"), offer("p3@us-east-1b"), offer("p3@us-east-1z", "on-demand")
    pieces = {
        a: [(0, 1.0, 1), (30 * HOUR, 2.0, 1)],
        b: [(0, 2.0, 1), (30 * HOUR, 0.5, 1), (40 * HOUR, 0.5, 0)],
        fixed: [(0, 3.0, 9)],
    }
    found = trace(pieces, 120 * HOUR)
    (tmp_path / "a.market.csv.gz").write_bytes(written(found, tmp_path / "a.market.csv.gz"))
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STASH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_a_market_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "market", "show", "a.market.csv.gz") == 0
    shown = capsys.readouterr().out
    assert "3 offers of aws from 2020-09-13 to 2020-09-18" in shown
    assert run(monkeypatch, "market", "show", "a.market.csv.gz", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (second,) = (each for each in document["offers"] if each["zone"] == "us-east-1b")
    assert (second["lowest"], second["highest"], second["available"]) == (0.5, 2.0, pytest.approx(40 / 120))


def test_a_backtest_prints_a_line_for_each_policy_and_the_same_as_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["market", "backtest", "a.market.csv.gz", "--job", "job.yaml", "--deadline", "24h"]
    words += ["--policy", "stay,daily,look-ahead,uniform-progress"]
    assert run(monkeypatch, *words) == 0
    shown = capsys.readouterr().out
    for line in ("stay:p3", "daily", "look-ahead:24h", "uniform-progress", "hindsight"):
        assert f"\n  {line}" in shown
    assert "4 starts, 2020-09-14 to 2020-09-17" not in shown  # one subtitle is enough on a terminal
    assert run(monkeypatch, *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["policies"]) == {"stay:p3", "daily", "look-ahead:24h", "uniform-progress"}
    for runs in document["policies"].values():
        for each in runs:
            assert sum(each["parts"].values()) == pytest.approx(each["dollars"])
            assert each["above_hindsight"] is None or each["above_hindsight"] >= -1e-9
            assert each["parts"]["interconnect"] == pytest.approx(each["parts"]["compute"] / 3)
    assert len(document["hindsight"]) == len(document["policies"]["daily"]) > 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "nothere.market.csv"), "cannot read the market nothere.market.csv"),
        (("import", "aws", ".", "-o", "a.parquet"), "a market's name ends in .market.csv or .market.csv.gz"),
        (("import", "aws"), "what is to be imported?"),
        (("backtest", "a.market.csv.gz", "--job", "job.yaml", "--policy", "look-a-head"), "did you mean look-ahead"),
        (("backtest", "a.market.csv.gz", "--job", "job.yaml", "--deadline", "3h"), "the job would take 10.2 h"),
        (
            ("backtest", "a.market.csv.gz", "--job", "job.yaml", "--epochs", "3"),
            "states its own samples; leave out --epochs",
        ),
        (("backtest", "a.market.csv.gz", "--job", "job.yaml", "--cloud", "mars"), "leave no offer"),
        (
            ("advise", "--job", "job.yaml", "a.market.csv.gz", "--policy", "uniform-progress"),
            "policy uniform-progress works towards a deadline",
        ),
    ],
)
def test_what_is_typed_wrong_is_said_in_a_sentence(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    assert run(monkeypatch, "market", *words) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert "Traceback" not in printed


def test_a_price_of_more_than_ten_times_on_demand_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = trace({offer("p3.2xlarge@us-east-1a"): [(0, 0.9, 1), (100, 918.0, 1)]}, 120 * HOUR)
    (folder / "b.market.csv").write_bytes(written(found, folder / "b.market.csv"))
    assert run(monkeypatch, "market", "show", "b.market.csv") == 2
    says = "p3.2xlarge@us-east-1a costs $918/h at 2020-09-13T12:28:20Z, more than ten times its on-demand price"
    assert says in capsys.readouterr().err


def test_a_job_s_mistake_is_named_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.yaml").write_text(JOB.replace("boot: 10m", "boot: soon"))
    assert run(monkeypatch, "market", "backtest", "a.market.csv.gz", "--job", "bad.yaml") == 2
    assert "bad.yaml:5: boot:" in capsys.readouterr().err


def test_a_record_grows_and_advice_is_given_on_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "market", "record", "mine.market.csv.gz") == 2
    assert "the catalog has no price of these days" in capsys.readouterr().err  # those that it comes with are older
    (folder / "home").mkdir()
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    own = f"{{name: p3.2xlarge, region: us-east-1, spot_price: $0.92/h, as_of: {today}}}"
    (folder / "home" / "instances.yaml").write_text(f"instances: [{own}]\n")
    for _ in range(2):
        assert run(monkeypatch, "market", "record", "mine.market.csv.gz") == 0
    printed = capsys.readouterr().out
    assert "1 offer added to mine.market.csv.gz" in printed
    assert "older prices; `stash catalog refresh` gets today's" in printed
    assert [each.kind for each in read_market("mine.market.csv.gz").offers] == ["spot"]
    (folder / "gpu.yaml").write_text("samples: 100M\nrates:\n  p3.2xlarge: 360\n  p2.xlarge: 52\nboot: 3m\n")
    words = ("market", "advise", "--job", "gpu.yaml", "--on", "p2.xlarge@us-east-1a", "--policy", "daily", "--json")
    assert run(monkeypatch, *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["answer"], document["to"].partition("@")[0]) == ("move", "p3.2xlarge")
    assert document["saves_dollars"] > 0
    assert any("may be 90 days old and more" in each for each in document["warnings"])
    assert "instance_type: p3.2xlarge" in document["task"]
    assert document["command"][:3] == ["sky", "jobs", "launch"]


PROFILED = ("market", "advise", "--job", "gpu.stash.json", "--epochs", "40", "--on", "p2.xlarge@us-east-1a")


@pytest.fixture
def profiled(folder: Path) -> Path:
    job = gpu_job()
    work = job.workload.model_copy(update={"command": ("train.py", "--lr", "0.1")})
    save(job.model_copy(update={"workload": work}), folder / "gpu.stash.json")
    return folder


def test_a_move_s_task_starts_the_profiled_command(
    profiled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *PROFILED, "--policy", "daily", "-o", "move.sky.yaml") == 0
    assert "sky jobs launch --yes --detach-run move.sky.yaml" in " ".join(capsys.readouterr().out.split())
    assert "train.py --lr 0.1" in (profiled / "move.sky.yaml").read_text()


def test_a_cluster_on_demand_takes_itself_down(
    profiled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*PROFILED, "--policy", "uniform-progress", "--deadline", "1d", "--json")
    assert run(monkeypatch, *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"][:2] == ["sky", "launch"]
    assert yaml.safe_load(document["task"])["resources"]["autostop"] == {"idle_minutes": 10, "down": True}


@pytest.mark.parametrize(
    ("place", "exits", "says"),
    [
        ("US-East-1", 0, ""),
        ("westus2", 0, ""),  # the catalog knows whose it is, the market has no offer there
        ("aws/eu-west-1", 0, ""),
        ("AWS", 0, ""),
        ("us-east-11", 2, "--data-in us-east-11: no offer is of that region or cloud; name another region with"),
    ],
)
def test_where_the_data_lie_is_a_region_or_a_cloud(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    exits: int,
    says: str,
) -> None:
    words = ("market", "backtest", "a.market.csv.gz", "--job", "job.yaml", "--policy", "stay")
    assert run(monkeypatch, *words, "--data-size", "100GB", "--data-in", place, "--json") == exits
    printed = capsys.readouterr()
    assert says in printed.err
    if not exits:
        paid = {each["parts"].get("egress", 0.0) > 0 for each in json.loads(printed.out)["policies"]["stay:p3"]}
        assert paid == {place in ("westus2", "aws/eu-west-1")}
