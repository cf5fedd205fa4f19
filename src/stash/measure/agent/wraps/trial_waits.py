"""Where a script waits for a GPU or for other ranks without need, in trials of ``stash fix``, and doing without it.

Of ``torch.cuda.synchronize()`` and ``barrier()`` a call that the orders name is left out; of ``.item()`` it gives the
value of the step before, which is there already, so that what a script prints comes one step late; copies of pinned
batches do not wait if asked. Whether losses stay the same shows if that was without need; it is not known here.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent.wraps.call_sites import HERE, SITES, site_of
from stash.measure.agent.wraps.trial_settings import ever, settings


def wrap(torch: Any) -> None:
    """Wrap what waits for a GPU; ``torch`` is imported as far as its optimizers."""
    if not torch.backends.cuda.is_built():
        return
    torch.cuda.synchronize = _left_out("synchronize", torch.cuda.synchronize)
    _wrap_item(torch)
    _wrap_copies(torch)


def wrap_barriers(module: ModuleType) -> None:
    """Wrap barriers, of ``torch.distributed.distributed_c10d``."""
    if settings() is None:
        return
    module.barrier = _left_out("barrier", module.barrier)  # type: ignore[attr-defined]


def _left_out(name: str, wait: Any) -> Any:
    skips = ever("skip")

    @functools.wraps(wait)
    def waited(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(HERE):
            return wait(*args, **kwargs)
        key = site_of("wait")
        values = SITES[key]["values"] = SITES[key]["values"] or {"name": name, "seconds": 0.0}
        if skips and key in ((settings() or {}).get("skip") or ()):
            return None
        began = time.perf_counter()
        try:
            return wait(*args, **kwargs)
        finally:
            values["seconds"] += time.perf_counter() - began

    return waited


def _wrap_item(torch: Any) -> None:
    """``.item()`` of a tensor on a GPU."""
    cls, late = torch.Tensor, ever("late")
    item, before = cls.item, Late(torch.cuda.Event)

    @functools.wraps(item)
    def asked(self: Any) -> Any:
        if not self.is_cuda or sys._getframe(1).f_code.co_filename.startswith(HERE):
            return item(self)
        key = site_of("item")
        return before.of(self, item) if late and key == (settings() or {}).get("late") else item(self)

    cls.item = asked


class Late:
    """A number on a device, one call late: a copy is under way while the one before is given."""

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._copy: tuple[Any, Any] | None = None

    def of(self, tensor: Any, item: Callable[[Any], Any]) -> Any:
        """The number that was asked for last time; at first this one."""
        before, done = self._copy, self._event()
        self._copy = tensor.detach().to("cpu", non_blocking=True), done
        done.record()
        if before is None:
            return item(tensor)
        before[1].synchronize()  # of a step ago: it hardly ever waits
        return item(before[0])


def _wrap_copies(torch: Any) -> None:
    """Copies of pinned tensors to a GPU: where the script makes them, and without waiting if asked."""
    cls, asked = torch.Tensor, ever("non_blocking")
    move = cls.to

    @functools.wraps(move)
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cuda or not torch.cuda.is_initialized() or not self.is_pinned():
            return move(self, *args, **kwargs)
        key = site_of("copy")
        SITES[key]["values"] = {"non_blocking": kwargs.get("non_blocking", False)}
        if asked and "non_blocking" not in kwargs and len(args) < 3:
            kwargs["non_blocking"] = bool((settings() or {}).get("non_blocking"))
        return move(self, *args, **kwargs)

    cls.to = moved
