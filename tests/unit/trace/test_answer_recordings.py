"""Traces that were recorded: by jobs that stopped their own time, and by others, whose tools say the same."""

from pathlib import Path

import pytest

from bench.trace.truth import RECORDED, check_all
from stash.trace.command import read_job

OTHERS = Path("tests/recorded/traces_of_others")


@pytest.fixture(scope="module")
def jobs():
    return list(check_all(RECORDED))


def test_recorded_jobs_are_told_as_their_stopwatches_tell_them(jobs):
    errors = [abs(error) for job in jobs for error in job.errors.values()]
    assert len(jobs) >= 12
    assert sum(errors) / len(errors) <= 0.02
    assert {job.name: job.largest for job in jobs if job.largest > 0.05} == {}


def test_the_late_rank_is_blamed_always_and_no_other_ever(jobs):
    assert {job.name: (job.late, job.blamed) for job in jobs if job.late != job.blamed} == {}


def test_a_trace_of_others_is_told_as_their_tool_tells_it():
    """HTA 0.5 on ``sampled_rank-0``, the last step included: idle 675191, compute 210320, other 337336 of 1222847
    microseconds, and 14.95 % of communication hidden."""
    trace = read_job([str(OTHERS / "sampled_rank-0.json.gz")], whole=True)
    micros = {part.name: part.seconds * 1e6 for part in trace.traced}
    assert trace.step_seconds * 1e6 == pytest.approx(1222847, abs=0.01)
    assert micros["compute"] == pytest.approx(210320, abs=0.01)
    assert micros["exchange"] + micros["transfer"] == pytest.approx(337336, abs=0.01)
    assert micros["host"] + micros["loop"] == pytest.approx(675191, abs=0.01)
    exchange = trace.part("exchange")
    assert exchange is not None
    assert exchange.hidden_share == pytest.approx(0.1495, abs=5e-5)


def test_two_ranks_of_many_are_matched_and_the_missing_are_named():
    trace = read_job([str(OTHERS / f"sampled_rank-{rank}.json.gz") for rank in (0, 1)])
    assert (len(trace.ranks), trace.world_size, len(trace.steps)) == (2, 128, 2)
    assert any("126 ranks of 128 are missing" in text for text in trace.warnings)


def test_stacks_say_where_the_script_waits():
    trace = read_job([str(RECORDED / "loop-stacks")])
    loop = trace.part("loop")
    assert loop is not None
    assert loop.place.endswith("job.py:67 step")
