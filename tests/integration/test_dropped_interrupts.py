"""A request to end that comes where Python drops the exception of its handler ends a profile all the same."""

import signal
import sys

import pytest

from stash.core.interrupts import REQUESTS

WINDOW = """
import signal, sys, time, weakref
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)  # as in a terminal
signal.signal(signal.SIGINT, signal.default_int_handler)
from stash.measure.launcher import measurement
commit_of = measurement.commit_of
class Module: ...
def window(gone):
    print("in the window", file=sys.stderr, flush=True)
    time.sleep(60)
def as_while_it_imports(job):
    module = Module()
    callback = weakref.ref(module, window)
    del module
    return commit_of(job)
measurement.commit_of = as_while_it_imports
from stash.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(each, marks=[] if each == signal.SIGTERM else [pytest.mark.slow])
        for each in REQUESTS
    ],
)
def test_a_request_in_a_weak_references_callback_ends_the_profile(start, tmp_path, number):
    run = start(
        program=(
            sys.executable,
            "-c",
            WINDOW,
            "profile",
            "--budget",
            "1",
            "-o",
            tmp_path / "run.stash.json",
            "ddp.py",
        )
    )
    run.wait_for("in the window")
    run.popen.send_signal(number)
    ended = run.end()
    assert (ended.code, ended.survivors) == (130, [])
    assert "KeyboardInterrupt" in ended.stderr  # Python says that it dropped it
    assert ended.error == "interrupted before the first round was measured: nothing to save"
