"""``stash spot run --sync`` on rented machines: what it prints, what it refuses, and its ends."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest
from commands import run
from gang_fleets import BUCKET, gang_plan
from spot_fleets import JOB

from stash.spot.rented.rent_controller import FleetOutcome

PLACE = ("--infra", "aws/us-east-1", "--checkpoint-url", BUCKET)
SCRIPT = ("--sync", "train.py", "--epochs", "3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    plan = gang_plan(dearer=3.0)
    pool = plan.pool.model_copy(update={"as_of": date.today().isoformat()})
    (tmp_path / "job.plan.json").write_text(plan.model_copy(update={"pool": pool}).model_dump_json())
    return tmp_path


def test_without_yes_every_task_its_price_and_what_to_type_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--min-nodes", "2", "--checkpoint-every", "7s", "--max-dollars", "25")
    assert run(monkeypatch, "spot", "run", "job.plan.json", *PLACE, *words, *SCRIPT) == 0
    out = capsys.readouterr().out
    assert out.startswith("# A checkpoint every 7.00 s, as --checkpoint-every says; one more at a notice")
    # 0.22 + 1.0098 + 2 * 0.3974
    assert "1 server and 3 spot workers, $2.02 an hour by prices of" in out
    assert out.count("$ sky jobs launch") == 3
    assert out.count("$ sky launch") == 1
    assert out.count("mode: MOUNT") == 3
    assert "holds STASH_RUN_TOKEN, renewed" in out
    assert "--name worker3 -- torchrun" in out
    assert out.splitlines()[-1] == (
        "Nothing was rented. To rent it: stash spot run job.plan.json --infra aws/us-east-1 "
        "--checkpoint-url s3://mine/run1 --checkpoint-every 7s --min-nodes 2 --max-dollars 25 --yes "
        "--sync train.py --epochs 3"
    )
    assert not (folder / "job.run").exists()


def test_what_to_type_to_rent_for_a_job_names_its_bucket(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.py").write_text(JOB)
    monkeypatch.setattr("stash.spot.rented.rent_request.version", lambda package: "2.40.0")
    assert run(monkeypatch, "spot", "run", "job.plan.json", "job.py:job", *PLACE) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Nothing was rented. To rent it: stash spot run job.plan.json job.py:job --infra aws/us-east-1 "
        "--checkpoint-url s3://mine/run1 --max-dollars DOLLARS --yes"
    )


def test_what_will_not_go_on_from_earlier_checkpoints_says_so_before_it_costs_money(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.py").write_text(JOB)
    monkeypatch.setattr("stash.spot.rented.rent_request.version", lambda package: "2.40.0")
    words = ("spot", "run", "job.plan.json", "job.py:job")
    kept = folder / "job.run/trained/checkpoints"
    kept.mkdir(parents=True)
    assert run(monkeypatch, *words, *PLACE[:2]) == 0
    assert "starts from nothing" not in capsys.readouterr().out
    (kept / "shard0-00000003.ckpt").touch()
    assert run(monkeypatch, *words, *PLACE[:2]) == 0
    assert capsys.readouterr().out.startswith("# A new server starts from nothing, without ")
    assert run(monkeypatch, *words, *PLACE) == 0  # in the bucket are others
    assert "starts from nothing" not in capsys.readouterr().out


def test_money_behind_the_script_is_told_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "spot", "run", "job.plan.json", *PLACE, *SCRIPT, "--max-dollars", "25") == 0
    assert capsys.readouterr().err == (
        "note: `--max-dollars` stands after train.py, so it goes to the script; if it is meant for Stash, put it "
        "before\n"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*PLACE[2:], *SCRIPT), "name the cloud and its region with --infra"),
        ((*PLACE[:2], *SCRIPT), "name a bucket for them, like --checkpoint-url s3://my-bucket/run1"),
        ((*PLACE, "--min-nodes", "4", *SCRIPT), "--min-nodes 4: the plan has 3 workers"),
        ((*PLACE, "--revoke", "worker1@3s", *SCRIPT), "--revoke is of a rehearsal, and rented machines train until"),
        ((*PLACE, "--seconds", "3s", *SCRIPT), "--seconds is of a rehearsal"),
        ((*PLACE, "--checkpoint-dir", "kept", *SCRIPT), "--checkpoint-dir is of a rehearsal"),
        ((*PLACE, "--json", *SCRIPT), "--json is of a rehearsal"),
        ((*PLACE, "--loss", "1", *SCRIPT), "--loss means nothing with --sync"),
        ((*PLACE, "--output", "x", *SCRIPT), "--output means nothing with --sync"),
        ((*PLACE, "--max-dollars", "0.5", *SCRIPT), "--max-dollars 0.5 does not last for the"),
        ((*PLACE, "--yes", *SCRIPT), "say what it may cost at most with --max-dollars DOLLARS"),
        ((*PLACE, "--max-dollars", "25", "--yes", *SCRIPT), "there is no program 'sky' on PATH"),
        ((*PLACE, "--sync", "gone.py"), "there is no script gone.py"),
        ((*PLACE, "--sync"), "missing argument"),
    ],
)
def test_what_cannot_be_rented_is_refused_in_a_sentence(
    words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert run(monkeypatch, "spot", "run", "job.plan.json", *words) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert sentence in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("outcome", "code", "sentence"),
    [
        (
            ("the script ended", True, 1.5, (), "trained"),
            0,
            "the script ended, $1.50 at most. The checkpoints are in",
        ),
        (("--max-dollars 25 is nearly spent", False, 24.0, (), None), 1, "The script has not ended by itself"),
        (("the script ended", True, 1.5, ("x may still be running",), None), 1, "x may still be running"),
    ],
)
def test_how_it_ended_is_said_and_is_the_exit_code(
    outcome: tuple[str, bool, float, tuple[str, ...], str | None], code: int, sentence: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found = FleetOutcome(*outcome)
    monkeypatch.setattr("stash.spot.commands.rented_fleet.run_controller", lambda *_: found)
    assert run(monkeypatch, "spot", "run", "job.plan.json", *PLACE, "--max-dollars", "25", "--yes", *SCRIPT) == code
    printed = capsys.readouterr()
    assert sentence in " ".join((printed.out + printed.err).split())
