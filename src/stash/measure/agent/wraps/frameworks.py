"""Training frameworks that count their own steps, kept training; experiment trackers, switched off in a profile.

A plain loop goes on as long as its loader delivers. HF ``Trainer`` and Lightning know their own limits, and evaluate,
save and stop early in between: they get to know that there is always another epoch, and to do little but train. What
is logged of that is meaningless, and what was uploaded cannot be taken back, so trackers are quiet unless
``--keep-logging``, by a variable where one has it; calls that could overrule it are wrapped. Others are not known.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.script import Function
from stash.measure.protocol.orders import current_orders

PLENTY = 1_000_000
"""Steps or epochs: more than any profile takes."""

_UNSEEN = "{} while Stash measures: what evaluation and checkpoints take of a run is not in this"


def _keeps_logging() -> bool:
    orders = current_orders()
    return orders is not None and orders.keep_logging


def wrap_transformers(module: ModuleType) -> None:
    """HF ``Trainer`` and what inherits from it (trl): no step limit, no evaluation, no checkpoints, no services."""
    only_training = _only_training(module.TrainerCallback)
    script.surround(module.Trainer, "train", functools.partial(_train_only, only_training))


def _train_only(only_training: Any, train: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    if script.active():
        plans = (getattr(self.args, name, "no") for name in ("eval_strategy", "save_strategy"))
        if any(plan != "no" for plan in plans):
            script.note(_UNSEEN.format("Transformers' Trainer neither evaluates nor saves"))
        script.put(self.args, max_steps=PLENTY, eval_on_start=False)
        for callback in list(self.callback_handler.callbacks):
            is_service = type(callback).__module__.startswith("transformers.integrations")
            if is_service and not _keeps_logging():
                self.callback_handler.remove_callback(callback)
        self.add_callback(only_training())
    return train(self, *args, **kwargs)


def _only_training(base: Any) -> Any:
    """A callback that comes last and undoes what the others decided; their strategies, which some check, remain."""

    class OnlyTraining(base):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            script.put(
                control, should_evaluate=False, should_save=False, should_training_stop=False
            )
            return control

        on_epoch_end = on_step_end

    return OnlyTraining


def wrap_lightning(module: ModuleType) -> None:
    """Lightning ``Trainer``: no limits, a batch of validation, no checkpoints, loggers that log nowhere."""
    loggers = module.__name__.replace("trainer.trainer", "loggers.logger")
    script.surround(module.Trainer, "fit", functools.partial(_fit_only, loggers))


def _fit_only(loggers: str, fit: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    if script.active():
        script.put(self.fit_loop, max_epochs=PLENTY)
        script.put(self.fit_loop.epoch_loop, max_steps=-1)
        # read just before the first step, it would pass for training
        self.num_sanity_val_steps = 0
        script.note(
            _UNSEEN.format("Lightning's Trainer validates on one batch, and does not save,")
        )
        self.limit_val_batches = 1  # what schedules and callbacks monitor must exist
        if self.loggers and not _keeps_logging():
            # some callbacks refuse to work without any
            self.loggers = [import_module(loggers).DummyLogger()]
        self.callbacks = [
            callback
            for callback in self.callbacks  # but those that save, and that stop early
            if not hasattr(callback, "best_model_path") and not hasattr(callback, "stopped_epoch")
        ]
    return fit(self, *args, **kwargs)


def quiet_variables(discarded: Path) -> Mapping[str, str]:
    """What keeps trackers quiet in all processes of a job; what must be written goes to the folder ``discarded``."""
    return {
        "WANDB_MODE": "disabled",
        "NEPTUNE_MODE": "debug",
        "COMET_AUTO_LOG_DISABLE": "true",
        "MLFLOW_TRACKING_URI": (discarded / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }


def wrap_wandb(module: ModuleType) -> None:
    """W&B: ``wandb.init`` makes runs that do nothing."""
    _force_arguments(module, "init", "W&B", mode="disabled")


def wrap_neptune(module: ModuleType) -> None:
    """Neptune: runs keep to themselves what is logged."""
    _force_arguments(module.Run, "__init__", "Neptune", mode="debug")


def wrap_comet(module: ModuleType) -> None:
    """Comet: the base of all its experiments."""
    _force_arguments(module.CometExperiment, "__init__", "Comet", disabled=True)


def wrap_mlflow(module: ModuleType) -> None:
    """MLflow: clients of any server talk to the folder that the variable names."""
    _force_arguments(
        module.MlflowClient, "__init__", "MLflow", tracking_uri=None, registry_uri=None
    )


def wrap_mlflow_address(module: ModuleType) -> None:
    """MLflow: the folder that the variable names stays the address."""
    if (orders := current_orders()) is not None:
        uri = quiet_variables(orders.files.discarded)["MLFLOW_TRACKING_URI"]
        _force_arguments(module, "set_tracking_uri", "MLflow", uri=uri)


def wrap_tensorboard(module: ModuleType) -> None:
    """TensorBoard: event files go to a folder that is removed with the launch's."""
    if (orders := current_orders()) is not None:
        import inspect

        # tensorboardX knows both names, and prefers this one.
        known = inspect.signature(module.SummaryWriter.__init__).parameters
        name = "logdir" if "logdir" in known else "log_dir"
        folder = {name: str(orders.files.discarded / "tensorboard")}
        _force_arguments(module.SummaryWriter, "__init__", "TensorBoard", **folder)


def _force_arguments(owner: Any, name: str, service: str, **values: Any) -> None:
    """Have a function called with these arguments, whatever its caller says."""
    if current_orders() is None or _keeps_logging():
        return
    import inspect  # takes longer than the rest of the agent's start

    signature = inspect.signature(getattr(owner, name))

    def force(function: Function, *args: Any, **kwargs: Any) -> Any:
        script.note(
            f"{service} was switched off for the profile (--keep-logging keeps it): steps lack its own time"
        )
        call = signature.bind(*args, **kwargs)
        call.arguments.update(values)
        return function(*call.args, **call.kwargs)

    script.surround(owner, name, force)
