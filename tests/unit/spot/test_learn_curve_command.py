"""``stash spot learn`` and ``stash spot plan PROFILE --curve``: from a job and a profile to a fleet."""

import json
import stat
from pathlib import Path

import pytest
from commands import run
from forecast_profiles import gpu_job
from loss_courses import learned_curve

from stash.core.artefact import save
from stash.spot.spot_files import load_curve, save_curve

JOB = """
import torch
import stash.spot

def data():
    random = torch.Generator().manual_seed(7)
    x = torch.randn(64, 3, generator=random)
    return torch.utils.data.TensorDataset(x, x @ torch.tensor([[1.0], [2.0], [-1.0]]))

def loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()

def model():
    return torch.nn.Linear(3, 1)

def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.02)

job = stash.spot.Job(model, loss, optimizer, data, batch=4)
"""
TUTORIAL = Path(__file__).parents[3] / "docs" / "how-to" / "spot.md"
LEARN = "learn job_of_this_test.py:job --fleet-sizes 1,2"
WISH = "--deadline 10h --loss 0.8"
PLAN = f"plan train.stash.json --curve big.curve.json {WISH}"
BOUGHT = "--cloud aws --quota g4dn.4xlarge=3 --quota p3.2xlarge=1 --start 2min"


@pytest.fixture(autouse=True)
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "job_of_this_test.py").write_text(JOB)
    save(gpu_job(), tmp_path / "train.stash.json")
    save_curve(learned_curve(), tmp_path / "big.curve.json")
    monkeypatch.setattr("stash.spot.learn_curve.MAX_UPDATES", 200)

    def type_words(line):
        exits = run(monkeypatch, "spot", *line.split())
        printed = capsys.readouterr()
        if exits:
            assert (exits, len(printed.err.strip().splitlines())) == (2, 1)
            return printed.err
        return json.loads(printed.out) if "--json" in line else printed.out

    return type_words


def test_a_job_is_learned_and_its_curve_saved(typed):
    text = typed(f"{LEARN} -o job.curve.json")
    assert "Loss of job_of_this_test.py:job" in text
    assert "4 parameters, 16.0 B one way" in text
    assert "the mean over the last 50 updates" in text
    assert "Plan with it: stash spot plan PROFILE --curve job.curve.json" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("Plan")) <= 80
    file = Path("job.curve.json")
    curve = load_curve(file)
    assert len(curve.replays) == 7
    assert curve.fitted.curve.levels
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_fleet_is_planned_from_a_profile_and_a_curve(typed):
    words = f"{PLAN} {BOUGHT} --confidence 0.8 -o job.plan.json"
    text = typed(words)
    assert "Loss 0.8 within 36,000 s (10.0 h) | from train.stash.json of 2023-01" in text
    assert "server   1 x " in text
    assert "- spot prices of" in text
    assert max(map(len, text.splitlines())) <= 80
    found = typed(f"{words} --json")
    assert set(found["workers"]) <= {"g4dn.4xlarge", "p3.2xlarge"}
    assert found["p_deadline_without_revocations"] >= 0.8
    saved = json.loads(Path("job.plan.json").read_text())
    assert saved["pool"]["cloud"] == "aws"
    assert saved["pool"]["learned"]["most_workers"] == 6


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("learn none.py:job", "there is no file none.py"),
        (f"{LEARN} --updates 20", "no such option: --updates"),
        (f"{LEARN} --fleet-sizes 1,two", "--fleet-sizes 1,two: write numbers from 1 to 256"),
        (f"{LEARN} --budget 0s", "--budget 0s: it must be more than 0"),
        (f"plan train.stash.json {WISH} {BOUGHT}", "--curve is missing"),
        (f"{PLAN} --quota g4dn.4xlarge=3", "--cloud is missing"),
        (f"{PLAN} --cloud awz --quota g4dn.4xlarge=3", "--cloud awz: no such cloud in the catalog"),
        (f"{PLAN} {BOUGHT} --region mars-1", "--region mars-1: no such region in the catalog"),
        (f"{PLAN} {BOUGHT} --quota g4dn.4xlage=3", "did you mean g4dn.4xlarge"),
        (f"{PLAN} {BOUGHT} --pool pool.yaml", "PROFILE and --pool: a pool says that itself"),
        (
            f"plan train.stash.json --curve train.stash.json {WISH} {BOUGHT}",
            "is a profile of",
        ),
    ],
)
def test_mistakes_are_one_sentence_that_says_what_to_type(typed, words, sentence):
    assert sentence in typed(words)


def test_a_pool_may_have_its_loss_and_its_exchange_from_a_curve(typed):
    tutorial = TUTORIAL.read_text().split("```yaml\n# pool.yaml\n")[1].split("```")[0]
    text = tutorial.replace("12.5MB/s", "12.5GB/s")  # this curve is of a large model
    Path("pool.yaml").write_text(text)
    words = f"plan --pool pool.yaml --curve big.curve.json {WISH}"
    typed(f"{words} -o p.json")
    pool = json.loads(Path("p.json").read_text())["pool"]
    curve = learned_curve()
    assert pool["exchange_bytes"] == curve.parameter_bytes
    assert pool["server"]["apply_seconds"] == curve.apply_seconds
    assert pool["learned"]["most_workers"] == curve.learned_range.most_workers
    Path("pool.yaml").write_text(f"{text}loss: {{gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}}\n")
    assert "loss: --curve says that; leave one of them out" in typed(words)


def test_the_facade_plans():
    import stash.spot
    from stash.spot import planning

    assert stash.spot.plan is planning.plan
    assert {"Job", "load_curve", "plan"} <= set(dir(stash.spot))
