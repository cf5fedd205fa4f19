"""A script that exits by itself while it is measured: when that is an end, and when a failure."""

import os

import pytest
from launching import run

from stash.measure.protocol.messages import LadderEnded

pytestmark = pytest.mark.usefixtures("temporary")


def exits(code, together=True):
    """Agents that measure three rounds, and then come to the script's own end."""

    def agents(orders, process):
        process.ladder(*orders.rungs)
        for number in range(3):
            process.clock.now += 1.0
            process.step(10 * (number + 1))
            process.round(number, 1.0, 1.5)
            yield
        if not together:
            process.step(30, rank=1, pid=2)
        else:
            process.tell(LadderEnded("script ended"))
        process.exit_codes = {1: code}
        (process.folder.path / "exiting.1").touch()
        os.utime(process.folder.path / "exiting.1", (process.clock.now, process.clock.now))
        while True:
            yield

    return agents


def test_a_script_that_exits_by_itself_and_not_well_has_failed_and_its_rounds_are_kept():
    result, (process,) = run(exits(3), budget=3.0)
    assert process.stopped
    assert result.profile is not None
    assert result.failure.sentence == "train.py ended with exit code 3 after 30 training steps"


def test_a_script_that_exits_well_has_ended_and_nothing_of_its_launch_goes_on():
    result, (process, *_) = run(exits(0), budget=3.0)
    assert process.stopped
    assert result.failure is None
    assert result.profile is not None


def test_a_rank_that_leaves_the_others_behind_is_named_whatever_its_exit_code():
    result, (process,) = run(exits(0, together=False), budget=60.0, start_timeout=600.0)
    assert process.stopped
    assert (
        result.failure.sentence
        == "rank 0 of train.py ended with exit code 0 after 30 training steps"
    )
