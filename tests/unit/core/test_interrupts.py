"""Signals that end what runs as Ctrl-C does, and only while they are asked to."""

import os
import signal
import subprocess
import sys
import time

import pytest

from stash.core.interrupts import REQUESTS, follow_requests, interrupted_by, postpone_requests


@pytest.fixture(autouse=True)
def unmasked():
    """Signals as in a terminal: whoever starts the tests in the background has them ignored."""
    before = {number: signal.getsignal(number) for number in REQUESTS}
    for number in REQUESTS:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_each_of_the_signals_is_an_interruption_and_the_handlers_come_back():
    def ended_by(number):
        with interrupted_by(signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
            time.sleep(5)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(KeyboardInterrupt):
            ended_by(number)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_only_the_first_signal_interrupts_so_that_what_cleans_up_can_finish():
    cleaned = []

    def work():
        with interrupted_by(*REQUESTS):
            try:
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(5)
            finally:
                for number in (signal.SIGHUP, signal.SIGTERM):
                    os.kill(os.getpid(), number)
                    cleaned.append(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert len(cleaned) == 2


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with interrupted_by(*REQUESTS):
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", REQUESTS)
def test_what_is_done_whole_is_interrupted_at_its_end(number):
    done = []

    def work():
        with interrupted_by(*REQUESTS):
            with postpone_requests():
                os.kill(os.getpid(), number)
                time.sleep(0.01)
                done.append("whole")
            done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", REQUESTS)
def test_a_request_whose_exception_python_drops_is_followed_by_whoever_asks(
    number,
):
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), number)
            time.sleep(0.01)

    def work():
        with interrupted_by(*REQUESTS):
            follow_requests()
            del_now = Finalized()
            del del_now  # the exception is raised in there, printed and dropped
            follow_requests()

    with pytest.raises(KeyboardInterrupt):
        work()
    follow_requests()  # it is done with


def test_a_command_interrupted_inside_of_an_exec_exits_with_130_and_does_not_die_of_the_signal(
    tmp_path,
):
    (tmp_path / "interrupted.py").write_text(
        "from stash.cli import main\ndef app(**_):\n    exec('raise KeyboardInterrupt')\nmain.app = app\nmain.main()"
    )
    words = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
