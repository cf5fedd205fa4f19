"""Ctrl-C at any line of a study's run, whatever its cloud does wrong: nothing is left running, nothing is lost."""

import signal
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from studies import SKY, Ending, FakeWorld, reading_of, run, study

from stash.core.interrupts import REQUESTS, interrupted_by
from stash.study import controller, study_folder
from stash.study.backend import open_leases
from stash.study.study_folder import folder_of_study

ROOM = str(Path(controller.__file__).parent)


def _first(ending):
    """A world in which the first cell ends like this, and all others well."""

    def made():
        number = count()
        return FakeWorld(lambda _: ending if next(number) == 0 else Ending())

    return made


FATES = {
    "all goes well": FakeWorld,
    "the launch fails": _first(
        Ending(1, "sky.exceptions.ClusterSetUpError: pip: no matching distribution")
    ),
    "machines are taken away": _first(
        Ending(255, "Connection closed: connection reset by peer", preempts=True)
    ),
    "the profile never comes": lambda: FakeWorld(fetch_fails=99),
    "clusters go at the third try": lambda: FakeWorld(down_fails=2),
}


BY_DAY = ("all goes well", "machines are taken away", "clusters go at the third try")
"""Of every kind one: of what else a cloud does wrong, ``test_study_clouds`` has what becomes of a study."""


@contextmanager
def interrupted_at(line):
    """SIGINT at the so-manieth line of the room that is executed; yields how many there were."""
    lines = [0]

    def trace(frame, event, _):
        where = frame.f_code.co_filename
        if not where.startswith(ROOM) or where.endswith(
            "folder.py"
        ):  # whose lock ends with a real process
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    with interrupted_by(*REQUESTS):
        sys.settrace(trace)
        try:
            yield lines
        finally:
            sys.settrace(before)


def interrupted_run(file, world, line):
    """Whether the interruption came, and how many lines there were."""
    with interrupted_at(line) as lines:
        try:
            run(file, world, dollars=100)
        except KeyboardInterrupt:
            return True, lines[0]
    return False, lines[0]


def nothing_left(world):
    assert world.running == {}
    assert world.clusters == set()


@cache
def lines_of(fate):
    """How many lines an uninterrupted run has, once the first has imported and cached what later ones find."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            interrupted, lines = interrupted_run(study(SKY, Path(folder)), FATES[fate](), 0)
    assert not interrupted
    assert lines > 100
    return lines


@pytest.mark.parametrize(
    "fate", [pytest.param(f, marks=[] if f in BY_DAY else [pytest.mark.slow]) for f in FATES]
)
@hypothesis_settings(max_examples=5, deadline=None)
@given(where=some.floats(0, 1))
def test_ctrl_c_anywhere_leaves_nothing_running_and_loses_nothing(fate, where):
    line = 1 + int(where * (lines_of(fate) - 1))
    with tempfile.TemporaryDirectory() as folder:
        file = study(SKY, Path(folder))
        world = FATES[fate]()
        interrupted, _ = interrupted_run(file, world, line)
        assert interrupted
        nothing_left(world)
        done = {id for id, each in reading_of(file).standings.items() if each.state == "done"}
        run(file, after := FakeWorld(clock=world.clock), dollars=100, retry=True)
        nothing_left(after)
        assert open_leases(study_folder.read_events(folder_of_study(file.path).journal)) == ()
        assert {each.state for each in reading_of(file).standings.values()} == {"done"}
        assert len(after.started) == 2 - len(done)  # what was finished is not run again
