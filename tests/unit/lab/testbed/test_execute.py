"""Steps that are run and undone, and what is said of those that fail."""

import os
import threading
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.lab.testbed.execute import Executor, _explain
from stash.lab.testbed.topology import Step


def test_steps_done_are_undone_in_reverse_when_a_later_one_fails(tmp_path):
    outer = tmp_path / "outer"
    inner = tmp_path / "outer" / "inner"
    executor = Executor()
    steps = [Step(("mkdir", str(f)), ("rmdir", str(f))) for f in (outer, inner)]
    with pytest.raises(UserError, match="failed"):
        executor.do([*steps, Step(("false",), ("rmdir", str(tmp_path)))])
    assert inner.exists()
    executor.undo()
    assert not outer.exists()
    assert tmp_path.exists()  # what failed is not undone


def test_a_clash_of_names_is_explained():
    sentence = _explain(
        Step(("ip", "netns", "add", "stash-tb-x")), 'Cannot create namespace file "x": File exists'
    )
    assert "stash-tb-x exists already" in sentence


def test_ctrl_c_waits_for_the_removal_whatever_threads_run(tmp_path):
    executor = Executor()
    ended = threading.Event()
    folder = str(tmp_path / "made")
    executor.do(
        [
            Step(("mkdir", folder), ("rmdir", folder)),
            Step(("true",), ("sh", "-c", f"kill -INT {os.getpid()}")),
        ]
    )
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.undo()
    finally:
        ended.set()
        other.join()
    assert not Path(folder).exists()
