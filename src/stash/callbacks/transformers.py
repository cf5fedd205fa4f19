"""``StashCallback`` for Transformers: ``Trainer(..., callbacks=[StashCallback()])`` watches the run."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from stash.callbacks import WatchedTraining


class StashCallback(TrainerCallback):
    """Watch ``Trainer.train`` and leave a record for ``stash show``: the same arguments as ``WatchedTraining``."""

    def __init__(self, *words: Any) -> None:
        self._watch = WatchedTraining(*words)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._watch.begin()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._watch.end()
