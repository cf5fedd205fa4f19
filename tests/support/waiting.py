"""Waiting for something that another thread or process does."""

import time


def until(condition, seconds=60.0):
    """Until it holds; fails the test where it does not in so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
