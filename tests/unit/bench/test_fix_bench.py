"""The jobs of ``bench.fix``: scripts that parse, faults that differ from their repairs."""

from __future__ import annotations

import ast

from bench.fix.__main__ import summary
from bench.fix.jobs import JOBS
from bench.fix.rows import Outcome


def test_forty_faults_and_five_sound_jobs_with_names_of_their_own():
    assert len({job.name for job in JOBS}) == len(JOBS) == 45
    assert sum(bool(job.knobs) for job in JOBS) == 40


def test_every_job_is_a_script_and_its_repair_another_one():
    for job in JOBS:
        ast.parse(job.script)
        ast.parse(job.repaired_script)
        assert (job.script != job.repaired_script) == bool(job.repair), job.name


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
