"""What a process that dies of an exception leaves in the run's folder, for the launcher to show.

One that is killed leaves nothing, and that tells it from those that notice its end.
"""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType, TracebackType
from typing import Any

from stash.base.printable import shortened
from stash.measure.agent import script
from stash.measure.run.orders import Orders, current
from stash.measure.run.tracebacks import without_wraps

_TORCHRUNS_OWN = "ChildFailedError"
"""The rank that failed has left its error already."""
_MOST = 100_000
"""Characters of an exception; its begin says where and what it is, its end what the first cause was."""


def report_crashes(orders: Orders) -> None:
    """Leave word of an exception that nobody catches."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        script.abandoned()
        try:
            _leave(orders, error)
        finally:
            previous(kind, error, trace)

    sys.excepthook = hook


def report_crashes_of_ranks(module: ModuleType) -> None:
    """The same in ranks that a script starts as ``multiprocessing.Process``, which prints exceptions by itself."""
    run = module.BaseProcess.run

    @functools.wraps(run)
    def reported(self: Any) -> None:
        try:
            run(self)
        except Exception as error:
            orders = current()
            if orders is not None and orders.files.has_beaten():
                _leave(orders, error)
            raise

    module.BaseProcess.run = reported


def _leave(orders: Orders, error: BaseException) -> None:
    if type(error).__name__ == _TORCHRUNS_OWN:
        return
    import traceback

    try:
        rank = os.environ.get("RANK", "")
        path = orders.files.crash(rank if rank.isdecimal() else "0")
        words = shortened(without_wraps("".join(traceback.format_exception(error))), _MOST)
        path.write_text(words, encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        print(f"stash: could not record the crash: {problem}", file=sys.stderr)
