"""How a process of the job ends: with an exception left for the launcher, or with the launcher that is gone.

One that is killed leaves nothing, and that tells it from those that notice its end. Nothing of a profile outlives its
launcher, however that died: a thread looks once a second, which costs some microseconds. Code that holds Python's
lock for long delays it for so long; a forked process has no such thread, and is ended with its parent.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any

from stash.core.printable import shorten_text
from stash.measure.agent import script
from stash.measure.linux.processes import find_by_variable
from stash.measure.protocol.folder import has_owner
from stash.measure.protocol.orders import VARIABLE, Orders, current_orders, strip_wraps

_TORCHRUNS_OWN = "ChildFailedError"
"""The rank that failed has left its error already."""
_PERIOD, _SWEEPS = 1.0, 3
_MAX = 100_000
"""Characters of an exception; its begin says where and what it is, its end what the first cause was."""


def report_crashes(orders: Orders) -> None:
    """Leave an exception that is not caught in the run's folder."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        script.listener().abandoned()
        try:
            _write_crash(orders, error)
        finally:
            previous(kind, error, trace)

    script.put(sys, excepthook=hook)


def report_crashes_of_ranks(module: ModuleType) -> None:
    """The same in ranks that a script starts as ``multiprocessing.Process``, which prints exceptions by itself.

    ``mp.spawn`` catches them, keeps them for the parent and exits.
    """
    run = module.BaseProcess.run

    @functools.wraps(run)
    def wrapper(self: Any) -> None:
        try:
            run(self)
        except BaseException as error:
            failed = isinstance(error, SystemExit) and error.code not in (None, 0)
            cause, orders = error.__context__ if failed else error, current_orders()
            if isinstance(cause, Exception) and orders is not None and orders.files.has_beaten():
                script.listener().abandoned()
                _write_crash(orders, cause)
            raise

    script.put(module.BaseProcess, run=wrapper)


def _write_crash(orders: Orders, error: BaseException) -> None:
    if type(error).__name__ == _TORCHRUNS_OWN:
        return
    import traceback

    try:
        rank = os.environ.get("RANK", "")
        path = orders.files.crash(rank if rank.isdecimal() else "0")
        words = shorten_text(strip_wraps("".join(traceback.format_exception(error))), _MAX)
        path.write_text(words, encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        print(f"stash: could not record the crash: {problem}", file=sys.stderr)


def end_with_launcher(orders: Orders) -> None:
    """Watch the launcher from now on; not where it is out of sight (another machine's, on a shared file system)."""
    run = orders.files.run_path
    if has_owner(run) is None:
        return

    def watch() -> None:
        while has_owner(run) is not False:
            time.sleep(_PERIOD)
        try:
            _end_the_others()
        finally:
            script.hard_exit(1)

    threading.Thread(target=watch, name="stash-launcher-watch", daemon=True).start()


def _end_the_others() -> None:
    """End all that was started under the same orders: forks, shells, what lost its parent."""
    orders = os.environ.get(VARIABLE, "")
    for _ in range(_SWEEPS):  # one that is ended may just have started another
        for process in find_by_variable(VARIABLE, orders):
            if process != os.getpid():
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
