"""Runs on every rented worker next to Ray: watches for notices that the machine will be taken away, for the head.

``python -m stash.spot.rented.worker_agent NAME TYPE SAMPLES PID``. It introduces the worker once its machine is up.
From a notice on the head gives it no lease that it could not finish. Ends with process PID, the machine's Ray.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from stash.measure.host.notices import Notice, NoticeWatch, services, sigterm_as_notice
from stash.spot.rented.job_tasks import PORT
from stash.spot.rented.tasks import HERE

_LOOK_SECONDS = 1.0


def wished(notice: Notice, name: str, now: float) -> dict[str, Any] | None:
    """What to ask of the head; ``None`` if nothing is to be done: a machine at risk trains as long as it lasts."""
    if notice.kind == "at risk":
        return None
    if notice.kind == "withdrawn":
        return {"do": "withdrawn", "who": name}
    # Of a notice that names no time: the worker takes no further lease.
    left = 0.0 if notice.deadline is None else max(0.0, notice.deadline - now)
    return {"do": "notice", "who": name, "seconds": left}


def append_wish(line: str) -> None:
    """Append a wish, on the head, to the file that it reads."""
    with (Path.home() / HERE / "wishes.jsonl").open("a") as file:
        file.write(line + "\n")


class _HeadLine:
    """The way to the head: this machine's Ray, which the head's belongs to. Nothing else leads there."""

    def __init__(self, address: str) -> None:
        self._ray, self._address = import_module("ray"), address

    def connect(self, going_on: Callable[[], bool]) -> bool:
        """Wait for this machine's Ray to be up, so that a notice finds it so; whether it is."""
        while going_on() and not self._ray.is_initialized():
            try:
                self._ray.init(address=self._address, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError):
                time.sleep(_LOOK_SECONDS)
        return bool(self._ray.is_initialized())

    def ask(self, wish: dict[str, Any]) -> None:
        there = self._ray.remote(num_cpus=0)(append_wish).options(resources={"head": 0.001})
        self._ray.get(there.remote(json.dumps(wish)))


def main(name: str, kind: str, samples: int, ray: int, address: str) -> int:
    """Watch until Ray ends; the exit status."""
    print(f"{name}: watching for notices", flush=True)
    with NoticeWatch(services(Path("/"))) as watch:
        threading.Thread(target=_stop_with, args=(ray, watch), daemon=True).start()
        head = _HeadLine(address)
        if head.connect(lambda: _is_there(ray)):
            head.ask({"do": "worker", "who": name, "type": kind, "samples": samples})
        with sigterm_as_notice(watch.receive):  # not earlier: connecting, Ray takes SIGTERM for itself
            for notice in watch:
                print(f"{name}: {notice.kind} by {notice.source}, deadline {notice.deadline}", flush=True)
                wish = wished(notice, name, time.time())
                if wish is not None:
                    head.ask(wish)
    return 0


def _stop_with(process: int, watch: NoticeWatch) -> None:
    while _is_there(process):
        time.sleep(_LOOK_SECONDS)
    watch.stop()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    own, kind, samples, process = sys.argv[1:]
    sys.exit(main(own, kind, int(samples), int(process), f"{os.environ['STASH_HEAD']}:{PORT}"))
