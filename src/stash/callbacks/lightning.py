"""``StashCallback`` for Lightning: ``Trainer(callbacks=[StashCallback()])`` watches the run."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from stash.callbacks import WatchedTraining


class StashCallback(Callback):
    """Watch ``Trainer.fit`` and leave a record for ``stash show``: the same arguments as ``WatchedTraining``."""

    def __init__(self, *words: Any) -> None:
        self._watch = WatchedTraining(*words)

    def on_train_start(self, *_: Any) -> None:
        self._watch.begin()

    def on_train_end(self, *_: Any) -> None:
        self._watch.end()

    def on_exception(self, *_: Any) -> None:
        self._watch.end()
