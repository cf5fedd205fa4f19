"""What a patch puts into a script beside arguments of its calls: trials of ``stash fix`` run the same code.

Each class stands on its own.
"""

from __future__ import annotations

import gc
import sys


class OneThread:
    """A ``worker_init_fn`` after which PyTorch and OpenCV use one thread; ``init`` is what was called before."""

    def __init__(self, init=None):  # type: ignore[no-untyped-def]
        self._init = init

    def __call__(self, worker):  # type: ignore[no-untyped-def]
        if self._init is not None:
            self._init(worker)
        sys.modules["torch"].set_num_threads(1)
        if "cv2" in sys.modules:
            sys.modules["cv2"].setNumThreads(0)


class SeldomCollected:
    """Called after each step: Python's collector never looks at what is alive after the first one again.

    With ``every`` it looks at the rest only once in so many steps, on all ranks in the same one.
    """

    def __init__(self, every=0):  # type: ignore[no-untyped-def]
        self._every, self._steps = every, 0

    def __call__(self, *_):  # type: ignore[no-untyped-def]
        self._steps += 1
        if self._steps == 1:
            gc.collect()
            gc.freeze()
            if self._every:
                gc.disable()
        elif self._every and self._steps % self._every == 0:
            gc.collect()
