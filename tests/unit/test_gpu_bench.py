"""The GPU bench without a GPU: every check by itself, a missed truth is not overlooked, what it says without one."""

import json

import pytest
import torch
from breakdowns import CALM
from profile_builder import build

from bench import gpu, gpu_checks, gpu_job
from bench.gpu_checks import Ground, NotHereError, Row, Truth, stall_row
from stash.analysis.attribution import attribute

GOOD, MISSED, SHOWN = (
    Row("a", "ms", 10.0, 10.4, 0.5),
    Row("b", "ms", 10.0, 10.6, 0.5),
    Row("c", "ms", None, 3.0),
)


def broken(ground):
    raise RuntimeError("the kernel did not launch")


def elsewhere(ground):
    raise NotHereError("there is one GPU")


@pytest.fixture
def made():
    return []


@pytest.fixture
def ground(tmp_path):
    return Ground("cpu", tmp_path, 4.0)


def test_a_figure_holds_if_it_is_there_and_near_its_truth():
    assert GOOD.holds
    assert SHOWN.holds
    assert not MISSED.holds
    assert not Row("unknown", "ms", 10.0, None, 100.0).holds
    assert not Row("nan", "ms", 10.0, float("nan"), 100.0).holds


def test_checks_go_on_after_one_that_failed_and_each_is_told(ground, made):
    checks = {"broken": broken, "elsewhere": elsewhere, "good": lambda ground: [GOOD]}
    outcomes = gpu.run(checks, ground, 60.0, made.append)
    assert outcomes == made
    assert [outcome.holds for outcome in outcomes] == [False, True, True]
    text = gpu.report(outcomes, "a machine")
    assert "- broken failed: RuntimeError: the kernel did not launch" in text
    assert "- elsewhere was not run: there is one GPU" in text
    assert "1 of 1 figures hold; 1 of 3 checks failed." in text


@pytest.mark.parametrize(
    ("check", "code"), [(lambda _: [GOOD], 0), (lambda _: [MISSED], 1), (broken, 1)]
)
def test_the_exit_code_tells_of_a_truth_that_was_missed(monkeypatch, tmp_path, check, code):
    monkeypatch.setattr(gpu_checks, "CHECKS", {"one": check, "other": lambda _: [GOOD]})
    out = tmp_path / "gpu.md"
    assert (
        gpu.main(["--device", "cpu", "--minutes", "1", "--only", "one,other", "--out", str(out)])
        == code
    )
    assert "other | a" in out.read_text()
    assert "Rehearsed on a CPU" in out.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_in_one_sentence_what_is_missing(
    capsys,
):
    assert gpu.main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("PyTorch sees no CUDA device")


def test_a_stall_may_be_off_by_its_noise_the_truths_spread_and_a_share_of_the_step():
    found = attribute(build(CALM))  # 176 ms, no noise; interconnect 36
    row = stall_row(found, "interconnect", 0.030, 0.001, "exchange")
    assert (row.truth, round(row.found or 0, 6), round(row.within, 6)) == (30.0, 36.0, 4.52)
    assert not row.holds
    assert not stall_row(found, "network", 0.0, 0.0, "exchange").holds  # unknown is not zero


def test_a_truth_is_the_mean_of_the_runs_around_the_profile():
    truth = Truth({"step": 0.010}, {"step": 0.014})
    assert truth.mean_of("step") == pytest.approx(0.012)
    assert truth.spread("step") == pytest.approx(0.002)


def test_the_job_tells_what_its_parts_take(capsys, monkeypatch):
    words = ["job", "--device", "cpu", "--compute", "0.004", "--prep", "0.008", "--plain", "3"]
    monkeypatch.setattr("sys.argv", words)
    assert gpu_job.main() == 0
    document = json.loads(capsys.readouterr().out)
    assert document["resident"] >= 0.004
    assert document["step"] >= 0.012
    assert "copy" not in document  # a CPU has none
