"""A process that trains already, entered by a watcher: what it has imported is wrapped, and listened to."""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from importlib import import_module

from stash.measure.protocol.orders import VARIABLE, Orders, current_orders

_COPIED = {
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.serialization": "torch",
}
"""Modules whose functions are known under another one's name as well."""


def enter_process(folder: str) -> None:
    """Listen to this process for the watcher of ``folder``; it has taken steps before that nobody counted."""
    from stash.measure.agent import script
    from stash.measure.agent.runner.watched_run import WatchedRun

    os.environ[VARIABLE] = str(Orders(folder, (), 0.0, began=time.time(), watched=True).write())
    current_orders.cache_clear()
    _wrap_modules()
    orders = current_orders()
    assert orders is not None
    script.subscribe(WatchedRun(orders, counted_before=None))


@cache
def _wrap_modules() -> None:
    """Wrap what is imported already, once and for good, and see to what is not."""
    from stash.measure.agent import boot

    left = dict(boot.WATCHED)
    for module in [name for name in left if name in sys.modules]:
        home, _, function = left.pop(module).partition(":")
        wrap = getattr(import_module(f"stash.measure.agent.{home}"), function)
        wrap(sys.modules[module])
        if module in _COPIED:  # its names were copied by then
            wrap(sys.modules[_COPIED[module]])
    if left:
        sys.meta_path.insert(0, boot.PostImport(left))
