"""``stash watch --attach``: a job that runs already is listened to from its next step on.

Python 3.14 lets a process of the same user have another one run a file (``sys.remote_exec``). Older ones are entered
only if the job was started with a hook in its environment, which looks for a watcher once a second.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.core.files import write_whole
from stash.core.interrupts import REQUESTS, interrupted_by
from stash.measure.protocol.orders import ATTACHABLE, Orders
from stash.measure.protocol.watch_folder import attach_file, own_folder, watch_folder
from stash.monitor.watch_options import WatchCommandOptions

_TRAINS = b"libtorch"
_PYTHON = re.compile(r"python3\.(\d+)")
_FIRST_ENTERED = 14
_ENTERS = """\
import importlib.util, sys
if "stash" not in sys.modules:
    spec = importlib.util.spec_from_file_location("stash", {file!r}, submodule_search_locations=[{package!r}])
    sys.modules["stash"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["stash"])
from stash.monitor.entry import enter_process
enter_process({folder!r})
"""
"""What a process runs that is entered."""


def find_training(process: int) -> list[int]:
    """The process and those below it that have PyTorch in memory; raises UserError if there are none."""
    from stash.measure.linux.processes import list_descendants

    if not os.path.exists(f"/proc/{process}"):
        raise UserError(f"--attach {process}: there is no such process; `ps` lists them")
    found = []
    for number in (process, *list_descendants(process)):
        with suppress(OSError):
            if _TRAINS in Path(f"/proc/{number}/maps").read_bytes():
                found.append(number)
    if not found:
        raise UserError(
            f"--attach {process}: neither it nor a process below it has PyTorch in memory, or is yours"
        )
    return found


def enter_job(process: int, folder: Path, remote_exec: Callable[[int, str], Any] | None) -> bool:
    """Have one process listened to from now on; whether there is a way to."""
    with suppress(OSError):
        environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        if _asks_itself(process) or any(
            each.startswith(f"{ATTACHABLE}=".encode()) for each in environment
        ):
            file = attach_file(process)
            own_folder(str(file.parent.parent))
            write_whole(file, str(folder / "orders.json"), mode=0o600, lasting=False)
            return True
    with suppress(OSError):
        version = _PYTHON.search(os.path.realpath(f"/proc/{process}/exe"))
        if remote_exec is not None and version is not None and int(version[1]) >= _FIRST_ENTERED:
            remote_exec(process, str(write_entry_script(folder)))
            return True
    return False


def _asks_itself(process: int) -> bool:
    """Whether that process started this one (``stash.callbacks``): it looks for the orders, and ends the watch."""
    return os.environ.get(ATTACHABLE) == str(process)


def write_entry_script(folder: Path) -> Path:
    """The file that a process is to run; it is made."""
    from stash.measure.launcher.process import SITE

    script = folder / "enter.py"
    package = Path(SITE).parents[2]
    script.write_text(
        _ENTERS.format(file=str(package / "__init__.py"), package=str(package), folder=str(folder))
    )
    return script


def attach(process: int, options: WatchCommandOptions) -> None:
    """Watch the job of that process to its end; raises UserError where there is no way."""
    from stash.measure.launcher.process import SITE
    from stash.measure.linux.processes import status_of
    from stash.monitor.watch_start import begin_watch, say_summary
    from stash.monitor.watcher import POLL_SECONDS

    targets = find_training(process)
    # before any process is entered, whose first step may end before the watcher is ready
    began = time.time()
    with watch_folder() as folder, interrupted_by(*REQUESTS):
        Orders(str(folder), (), 0.0, began=began, watched=True).write()
        entered = [
            target
            for target in targets
            if enter_job(target, folder, getattr(sys, "remote_exec", None))
        ]
        if not entered:
            raise UserError(
                f"--attach {process}: only Python 3.14 lets Stash in, itself run with 3.14; older ones do if it was "
                f"started with {ATTACHABLE}=1 PYTHONPATH={SITE}; or start it with `stash watch`"
            )
        watcher, target = begin_watch(folder, f"process {process}", (), 1, options, began)
        try:
            while any((now := status_of(each)) is not None and not now.ended for each in entered):
                if _asks_itself(process) and not attach_file(process).exists():
                    break
                watcher.poll()
                time.sleep(POLL_SECONDS)
        finally:  # an interrupt ends the watch, and not the job
            for each in entered:
                attach_file(each).unlink(missing_ok=True)
            watcher.finish(None)
    say_summary(target, options)
