"""Waiting for Python's interpreter: told by a thread that computes in Python, and by none that sleeps."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stash.measure.agent.runner.interpreter_wait import InterpreterClock, InterpreterWait

_over = threading.Event()


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in a thread until the test is over."""
    _over.clear()
    threads = list[threading.Thread]()

    def begin(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    yield begin
    _over.set()
    for thread in threads:
        thread.join()


def compute() -> None:
    state = 1
    while not _over.is_set():
        state = state * 48271 % 2147483647


def give_up_often() -> InterpreterWait | None:
    clock, began = InterpreterClock(), time.perf_counter()
    for _ in range(40):
        time.sleep(1e-6)  # as each call into a library does
    return clock.find_wait(time.perf_counter() - began)


def test_a_thread_that_computes_in_python_is_waited_for_and_its_line_is_known(
    beside: Callable[[Callable[[], None]], None],
) -> None:
    beside(compute)
    found, until = None, time.monotonic() + 60
    while (
        found is None and time.monotonic() < until
    ):  # on a busy machine the other thread has no core now and then
        found = give_up_often()
    assert found is not None
    assert found.seconds > 0
    assert found.place["file"].endswith("test_interpreter_wait.py")


def test_a_thread_that_sleeps_holds_nothing(beside: Callable[[Callable[[], object]], None]) -> None:
    beside(_over.wait)
    assert give_up_often() is None


def test_a_thread_in_a_library_that_lets_others_have_the_interpreter_holds_nothing(
    beside: Callable[[Callable[[], None]], None],
) -> None:
    data = bytes(10**8)

    def digest() -> None:
        while not _over.is_set():
            hashlib.sha256(data).digest()

    beside(digest)
    assert give_up_often() is None
