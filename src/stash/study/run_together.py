"""Commands that are one cell's: started together, and ended together as soon as one of them fails.

``python -m stash.study.run_together COMMAND…``, each a line of shell. Each has an open input, whose end tells it to
end; what does not end then is ended. The exit code is that of the first to fail.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from stash.core.interrupts import REQUESTS, follow_requests, interrupted_by

_TICK = 0.1
NOTICE = 20.0
"""Seconds that the others have to find out by themselves that one has failed, and to say so."""
_GRACE = 20.0
"""Seconds to end in order: less than a controller gives to the whole cell."""


def main(lines: Sequence[str]) -> int:
    """Run them all; returns the exit code for the whole."""
    started: list[subprocess.Popen[bytes]] = []
    with interrupted_by(*REQUESTS):
        try:
            for line in lines:
                # In sessions of their own, so that whoever ends this program ends them through it.
                started.append(subprocess.Popen(shlex.split(line), stdin=subprocess.PIPE, start_new_session=True))
            return _first_failure(started)
        except OSError as error:
            print(f"error: {error.filename or lines[len(started)]}: {error.strerror}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            _end(started)


def _first_failure(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all of them, or for a while after one of them has failed."""
    failed, deadline = 0, float("inf")
    while time.monotonic() < deadline:
        follow_requests()
        codes = [each.poll() for each in started]
        if not failed and any(codes):
            failed = next(code for code in codes if code)
            deadline = time.monotonic() + NOTICE
        if None not in codes:
            break
        time.sleep(_TICK)
    return failed


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in started:
        with suppress(OSError):
            if each.stdin is not None:
                each.stdin.close()
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline and None in [each.poll() for each in started]:
        time.sleep(_TICK)
    for each in started:
        with suppress(OSError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
