"""The jobs of ``bench.fix``: scripts that parse, faults that differ from their repairs, half of them sealed."""

from __future__ import annotations

import ast
import struct
from pathlib import Path

import pytest

from bench.fix import examples
from bench.fix.__main__ import summary
from bench.fix.jobs import JOBS, OPENED, Job
from bench.fix.rows import Outcome, keep, read, signed
from bench.fix.simulated import SETTINGS, case
from bench.fix.stopwatch import Twice


def test_forty_faults_and_five_sound_jobs_with_names_of_their_own_about_half_of_them_sealed():
    assert len({job.name for job in JOBS}) == len(JOBS) == 45
    assert sum(bool(job.knobs) for job in JOBS) == 40
    assert 15 <= sum(job.sealed for job in JOBS) <= 25
    assert {job.name for job in JOBS} >= set(OPENED)


def test_every_job_is_a_script_and_its_repair_another_one():
    for job in JOBS:
        ast.parse(job.script)
        ast.parse(job.repaired)
        assert (job.script != job.repaired) == bool(job.repair), job.name


def test_goals_are_counted_by_hand():
    sound = next(job for job in JOBS if not job.knobs)
    faulty = next(job for job in JOBS if job.repair)
    found = [
        Outcome(
            faulty, 0.100, 0.060, 0.001, 0.057, 0.041, ("workers=4",), 200
        ),  # 1 % off, 95 % of the repair's speed
        Outcome(faulty, 0.100, 0.110, 0.001, 0.057, 0.010, ("workers=4",), 250),  # slower
        Outcome(sound, 0.100, None, 0.0, None, 0.0, (), 40),
    ]
    reached = {goal: value for goal, value, _ in summary(found)}
    assert reached["promised against realised, median"] == "10.5%"  # of 1 % and 20 %
    assert reached["kept and faster in later runs"] == "1 of 2"
    assert reached["kept and slower"] == "1"
    assert reached["nothing to fix: kept something"] == "0 of 1"
    assert reached["time of stash fix, longest"] == "250 s"


def test_two_stopwatches_of_one_repair_are_apart_by_a_share_of_the_step():
    assert Twice(JOBS[0], typed=0.1, first=0.04, second=0.03).apart == pytest.approx(-0.1)


def test_rows_are_kept_with_their_day_and_commit_as_long_as_the_script_is_the_same(tmp_path: Path):
    path = tmp_path / "jobs.csv"
    first, second = JOBS[0], JOBS[-1]
    sound = signed(Outcome(second, 0.04, None, 0.0, None, 0.0, (), 40.0, None, 60.0))
    keep(sound, JOBS, path)
    keep(Outcome(first, 0.1, 0.06, 0.001, 0.057, 0.041, ("workers=4", "fused"), 200.0), JOBS, path)
    found = read(JOBS, path)
    assert list(found) == [first.name, second.name]
    assert found[second.name] == sound
    assert sound.day
    assert sound.machine
    assert found[first.name].kept == ("workers=4", "fused")
    changed = Job(first.name, {**first.fault, "width": 32})
    assert list(read([changed, second], path)) == [second.name]


def test_of_simulated_jobs_sound_ones_are_left_alone_and_a_large_fault_is_found():
    place = SETTINGS[0]
    sound = [case(place, 0.0, 0.02, seed).searched() for seed in range(40)]
    assert not any(search.final.kept for search, _ in sound)
    assert sorted(seconds for _, seconds in sound)[20] < 60
    faulty = [case(place, 0.2, 0.02, seed) for seed in range(10)]
    kept = [(each, each.searched()[0].final.kept) for each in faulty]
    assert sum(each.share(names) >= 0.1 for each, names in kept) >= 9


def test_examples_find_digits_in_the_format_of_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(examples, "_DIGITS", {"train": 3})
    monkeypatch.setattr(examples, "_PICTURES", {"train": 2})
    examples.made_up(tmp_path)
    images, labels = (
        (tmp_path / "data/MNIST/raw" / f"train-{kind}-ubyte").read_bytes() for kind in ("images-idx3", "labels-idx1")
    )
    assert struct.unpack(">4I", images[:16]) == (0x803, 3, 28, 28)
    assert struct.unpack(">2I", labels[:8]) == (0x801, 3)
    assert (len(images), len(labels)) == (16 + 3 * 28 * 28, 8 + 3)
    assert len(list((tmp_path / "super_resolution/dataset/BSDS300/images/train").iterdir())) == 2
