"""``stash spot run``: what it refuses before anything is started."""

import sys

import pytest
from commands import run
from fleet_pools import PUBLISHED

JOB = """
import torch, stash.spot
def loss(model, batch): return model(batch).square().mean()
data = lambda: torch.ones(64, 4)
job = stash.spot.Job(lambda: torch.nn.Linear(4, 32768), loss, lambda p: torch.optim.SGD(p, 0.1), data, batch=4)
def broken(): raise RuntimeError("no such weights")
bad = stash.spot.Job(broken, loss, lambda p: torch.optim.SGD(p, 0.1), data, batch=4)
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    pytest.importorskip("ray")
    made = tmp_path_factory.mktemp("run")
    (made / "a_rehearsed_job.py").write_text(JOB)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(made)
        words = ("plan", "--pool", str(PUBLISHED), "--loss", "0.8", "-o", "job.plan.json")
        assert run(patched, "spot", *words, "--deadline", "2400s") == 0
        words = (*words[:-1], "none.plan.json", "--deadline", "100s")
        assert run(patched, "spot", *words) == 1  # no fleet keeps it
    return made


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--on", "mars"),
            2,
            "--on mars: it must be cloud or local",
        ),
        (("job.plan.json", "a_rehearsed_job.py:none"), 2, "has no name none"),
        (
            ("job.plan.json", "a_rehearsed_job.py:bad"),
            1,
            "the job failed before it trained: RuntimeError: no such",
        ),
        (
            ("none.plan.json", "a_rehearsed_job.py:job"),
            2,
            "the plan chose no fleet; plan again with a looser",
        ),
        (
            ("nowhere.json", "a_rehearsed_job.py:job"),
            2,
            "there is no file nowhere.json; plans of a fleet there",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--revoke", "worker2"),
            2,
            "write it like worker2@40s,notice=20s",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--revoke", "worker77@3s"),
            2,
            "has no such one; it has worker1",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--revoke", "server1@3s,notice=2s"),
            2,
            "servers are on-demand and get no notice",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--revoke", "worker1@60s"),
            2,
            "training ends after 60 s",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--infra", "aws/us-east-1"),
            2,
            "--infra is of machines to rent, and --on local",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--on", "cloud", "--loss", "1"),
            2,
            "--loss is of training",
        ),
        (
            ("job.plan.json", "a_rehearsed_job.py:job", "--seconds", "0s"),
            2,
            "--seconds 0s: it must be more than 0",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_in_a_sentence(
    words,
    code,
    sentence,
    folder,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(folder)
    ground = () if "--on" in words else ("--on", "local")
    assert run(monkeypatch, "spot", "run", *words, *ground) == code
    printed = " ".join(capsys.readouterr().err.split())
    assert sentence in printed
    assert "Traceback" not in printed


def test_without_ray_one_sentence_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (
        run(monkeypatch, "spot", "run", "job.plan.json", "a_rehearsed_job.py:job", "--on", "local")
        == 2
    )
    assert "type `pip install ray`" in " ".join(capsys.readouterr().err.split())
