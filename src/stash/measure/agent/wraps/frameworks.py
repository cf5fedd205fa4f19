"""Training frameworks that count their own steps: keep them training until the profile is done.

A plain loop goes on as long as its loader delivers. HF ``Trainer`` and Lightning ask the loader's length
and their own limits instead, and evaluate and save in between. While a profile is taken they are told that
there is always more, and to do nothing but train.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.wraps.loader import PLENTY


def wrap_transformers(module: ModuleType) -> None:
    """HF ``Trainer``: no step limit, no evaluation, no checkpoints, no logging to services."""
    train = module.Trainer.train

    @functools.wraps(train)
    def endless(self: Any, *args: Any, **kwargs: Any) -> Any:
        if script.active():
            from transformers.trainer_utils import IntervalStrategy, SaveStrategy

            self.args.max_steps = PLENTY
            self.args.eval_strategy = IntervalStrategy.NO
            self.args.save_strategy = SaveStrategy.NO
            handler = self.callback_handler
            services = [c for c in handler.callbacks if type(c).__module__.startswith("transformers.integrations")]
            for callback in services:
                handler.remove_callback(callback)
        return train(self, *args, **kwargs)

    module.Trainer.train = endless


def wrap_lightning(module: ModuleType) -> None:
    """Lightning ``Trainer``: no limits, no validation, no checkpoints, no loggers."""
    fit = module.Trainer.fit

    @functools.wraps(fit)
    def endless(self: Any, *args: Any, **kwargs: Any) -> Any:
        if script.active():
            self.fit_loop.max_epochs = PLENTY
            self.fit_loop.epoch_loop.max_steps = -1
            self.limit_val_batches = 0
            self.loggers = []
            self.callbacks = [c for c in self.callbacks if not hasattr(c, "best_model_path")]
        return fit(self, *args, **kwargs)

    module.Trainer.fit = endless
