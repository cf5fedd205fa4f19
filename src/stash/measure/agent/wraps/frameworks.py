"""Training frameworks that count their own steps: keep them training until the profile is done.

A plain loop goes on as long as its loader delivers. HF ``Trainer`` and Lightning know their own limits, and evaluate,
save and stop early in between. While a profile is taken they are told that there is always another epoch, and to do
little but train.
"""

from __future__ import annotations

import functools
from importlib import import_module
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.run.orders import current

PLENTY = 1_000_000
"""Steps or epochs: more than any profile takes."""


def _keeps_logging() -> bool:
    orders = current()
    return orders is not None and orders.keep_logging


def wrap_transformers(module: ModuleType) -> None:
    """HF ``Trainer`` and what inherits from it (trl): no step limit, no evaluation, no checkpoints, no services."""
    train = module.Trainer.train

    @functools.wraps(train)
    def endless(self: Any, *args: Any, **kwargs: Any) -> Any:
        if script.active():
            self.args.max_steps = PLENTY
            self.args.eval_on_start = False
            if not _keeps_logging():
                _remove_services(self.callback_handler)
            self.add_callback(_only_training(module.TrainerCallback))
        return train(self, *args, **kwargs)

    module.Trainer.train = endless


def _remove_services(handler: Any) -> None:
    services = [c for c in handler.callbacks if type(c).__module__.startswith("transformers.integrations")]
    for callback in services:
        handler.remove_callback(callback)


def _only_training(base: Any) -> Any:
    """A callback that comes last and undoes what the others decided; their strategies, which some check, remain."""

    class OnlyTraining(base):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            control.should_evaluate = control.should_save = control.should_training_stop = False
            return control

        on_epoch_end = on_step_end

    return OnlyTraining()


def wrap_lightning(module: ModuleType) -> None:
    """Lightning ``Trainer``: no limits, a batch of validation, no checkpoints, loggers that log nowhere."""
    fit = module.Trainer.fit

    @functools.wraps(fit)
    def endless(self: Any, *args: Any, **kwargs: Any) -> Any:
        if script.active():
            self.fit_loop.max_epochs = PLENTY
            self.fit_loop.epoch_loop.max_steps = -1
            self.num_sanity_val_steps = 0  # read just before the first step, it would pass for training
            self.limit_val_batches = 1  # what schedules and callbacks monitor must exist
            if self.loggers and not _keeps_logging():
                dummy = import_module(module.__name__.replace("trainer.trainer", "loggers.logger")).DummyLogger
                self.loggers = [dummy()]  # some callbacks refuse to work without any
            self.callbacks = [c for c in self.callbacks if not _saves_or_stops(c)]
        return fit(self, *args, **kwargs)

    module.Trainer.fit = endless


def _saves_or_stops(callback: Any) -> bool:
    """Whether it is one of Lightning's checkpoints, or stops early."""
    return hasattr(callback, "best_model_path") or hasattr(callback, "stopped_epoch")
