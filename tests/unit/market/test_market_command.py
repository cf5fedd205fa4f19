"""``stash market`` as it is typed: what it prints, in JSON too, and the sentences about what was typed wrong."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from stash.core.artefact import save
from stash.market.market_table import market_bytes, read_market
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
def typed(tmp_path, monkeypatch, capsys):
    pieces = {
        offer("p3@us-east-1a"): [(0, 1.0, 1), (30 * HOUR, 2.0, 1)],
        offer("p3@us-east-1b"): [(0, 2.0, 1), (30 * HOUR, 0.5, 1), (40 * HOUR, 0.5, 0)],
        offer("p3@us-east-1z", "on-demand"): [(0, 3.0, 9)],
    }
    dear = {offer("p3.2xlarge@us-east-1a"): [(0, 0.9, 1), (100, 918.0, 1)]}
    for name, market in (("a.market.csv.gz", pieces), ("dear.market.csv", dear)):
        (tmp_path / name).write_bytes(market_bytes(trace(market, 120 * HOUR), tmp_path / name))
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "bad.yaml").write_text(JOB.replace("boot: 10m", "boot: soon"))
    (tmp_path / "gpu.yaml").write_text(
        "samples: 100M\nrates:\n  p3.2xlarge: 360\n  p2.xlarge: 52\nboot: 3m\n"
    )
    job = gpu_job()
    work = job.workload.model_copy(update={"command": ("train.py", "--lr", "0.1")})
    save(job.model_copy(update={"workload": work}), tmp_path / "gpu.stash.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STASH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")

    def type_words(line):
        exits = run(monkeypatch, "market", *line.split())
        printed = capsys.readouterr()
        if exits:
            assert exits == 2
            assert "Traceback" not in printed.err
            return printed.err
        return json.loads(printed.out) if "--json" in line else printed.out

    return type_words


def test_a_market_is_shown(typed):
    assert "3 offers of aws from 2020-09-13 to 2020-09-18" in typed("show a.market.csv.gz")
    (second,) = (
        each
        for each in typed("show a.market.csv.gz --json")["offers"]
        if each["zone"] == "us-east-1b"
    )
    assert (second["lowest"], second["highest"], second["available"]) == (
        0.5,
        2.0,
        pytest.approx(40 / 120),
    )


def test_a_backtest_prints_a_line_for_each_policy_and_the_same_as_json(typed):
    names = ["stay:p3", "daily", "uniform-progress"]
    words = f"backtest a.market.csv.gz --job job.yaml --deadline 24h --policy {','.join(names)}"
    shown = typed(words)
    for line in (*names, "Mean dollars"):
        assert f"\n  {line}" in shown
    assert "Assumed: fetch of 250 MB/s; a job.yaml can state them" in shown
    document = typed(f"{words} --json")
    assert list(document["policies"]) == names
    for each in (line for lines in document["policies"].values() for line in lines):
        assert sum(each["parts"].values()) == pytest.approx(each["dollars"])
        assert each["parts"]["interconnect"] == pytest.approx(each["parts"]["compute"] / 3)
    assert len(document["policies"]["daily"]) > 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("show nothere.market.csv", "cannot read the market nothere.market.csv"),
        (
            "show dear.market.csv",
            "p3.2xlarge@us-east-1a costs $918/h, more than ten times its on-demand price of $3.06",
        ),
        ("import skypilot . -o a.parquet", "a market's name ends in .market.csv or .market.csv.gz"),
        ("import skypilot home", "home"),
        (
            "record mine.market.csv.gz",
            "the catalog has no price of these days",
        ),  # those it comes with are older
        ("backtest a.market.csv.gz --job bad.yaml", "bad.yaml:5: boot:"),
        (
            "backtest a.market.csv.gz --job job.yaml --policy multi-clouds",
            "did you mean multi-cloud",
        ),
        (
            "backtest a.market.csv.gz --job job.yaml --epochs 3",
            "states its own samples; leave out --epochs",
        ),
        (
            "backtest a.market.csv.gz --job job.yaml --cloud mars",
            "--cloud leaves no offer; the market has aws",
        ),
        (
            "backtest a.market.csv.gz --job job.yaml --data-in us-east-11",
            "--data-in us-east-11: no offer is of that region or cloud; name another region with",
        ),
    ],
)
def test_what_is_typed_wrong_is_said_in_a_sentence(typed, words, says):
    assert says in typed(words)


def test_a_record_grows_and_advice_is_given_on_it(typed, tmp_path):
    (tmp_path / "home").mkdir(exist_ok=True)
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    own = f"{{name: p3.2xlarge, region: us-east-1, spot_price: $0.92/h, as_of: {today}}}"
    (tmp_path / "home" / "instances.yaml").write_text(f"instances: [{own}]\n")
    for _ in range(2):
        printed = typed("record mine.market.csv.gz")
    assert "1 offer added to mine.market.csv.gz" in printed
    assert "older prices; `stash catalog refresh` gets today's" in printed
    assert [each.kind for each in read_market("mine.market.csv.gz").offers] == ["spot"]
    found = typed("advise --job gpu.yaml --on p2.xlarge@us-east-1:on-demand --json")
    assert (found["answer"], found["to"].partition("@")[0]) == ("move", "p3.2xlarge")
    assert found["saves_dollars"] > 0
    assert any("may be 90 days old and more" in each for each in found["warnings"])
    assert "instance_type: p3.2xlarge" in found["task"]
    assert found["command"][:3] == ["sky", "jobs", "launch"]


def test_a_move_s_task_starts_the_profiled_command_and_a_cluster_on_demand_takes_itself_down(
    typed,
):
    words = "advise --job gpu.stash.json --epochs 40 --on p2.xlarge@us-east-1:on-demand"
    shown = typed(f"{words} -o move.sky.yaml")
    assert " --yes --detach-run move.sky.yaml" in " ".join(shown.split())
    assert "`sky launch -c " in " ".join(shown.split())
    assert "on spot of more than 30 days, or undated" in " ".join(shown.split())
    assert "train.py --lr 0.1" in Path("move.sky.yaml").read_text()
    found = typed(f"{words} --json")
    assert found["command"][:2] == ["sky", "launch"]
    assert yaml.safe_load(found["task"])["resources"]["autostop"] == {
        "idle_minutes": 10,
        "down": True,
    }


@pytest.mark.parametrize(
    ("place", "is_away"),
    [
        ("US-East-1", False),
        ("westus2", True),  # the catalog knows whose it is, the market has no offer there
        ("aws/eu-west-1", True),
        ("AWS", False),
    ],
)
def test_where_the_data_lie_is_a_region_or_a_cloud(typed, place, is_away):
    Path("job.yaml").write_text(f"{JOB}data: 100GB\n")
    words = "backtest a.market.csv.gz --job job.yaml --policy stay --json --data-in"
    runs = typed(f"{words} {place}")["policies"]["stay:p3"]
    assert {each["parts"].get("egress", 0.0) > 0 for each in runs} == {is_away}
