"""An exception that ends a process is left for the launcher, by a rank that a script starts itself too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import VARIABLE, Orders

FAILS = """
import multiprocessing.process
import sys
import traceback
from stash.measure.agent.last_words import report_crashes, report_crashes_of_ranks
from stash.measure.protocol.journal import Heart
from stash.measure.protocol.orders import current_orders
report_crashes(current_orders())
report_crashes_of_ranks(multiprocessing.process)
class ChildFailedError(Exception):
    pass
def train(beats):
    if beats:
        Heart(current_orders().files).beat(3, 1)
    raise ValueError("no such layer")
def caught(beats):  # as mp.spawn runs what it is given
    try:
        train(beats)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
def start(beats, train=train):
    rank = multiprocessing.get_context("fork").Process(target=train, args=(beats,))
    rank.start()
    rank.join()
"""


@pytest.mark.parametrize(
    ("program", "left"),
    [
        ("train(False)", 1),
        ("start(True)", 1),
        ("start(True, caught)", 1),
        ("start(False, caught)", 0),
        ("start(False)", 0),  # a helper, whose failure may be none of the job
        ("raise ChildFailedError", 0),  # torchrun's own
    ],
)
def test_word_is_left_by_the_process_that_failed(tmp_path, program, left):
    environment = {
        **os.environ,
        VARIABLE: str(Orders(str(tmp_path), ("solo",), 1.0).write()),
        "RANK": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", FAILS + program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    crashes = RunFolder(tmp_path).list_crash_files()
    assert [path.name.split(".")[2] for path in crashes] == ["3"] * left, done.stderr
    assert all(path.read_text().endswith("ValueError: no such layer\n") for path in crashes)
    assert "Traceback" in done.stderr
