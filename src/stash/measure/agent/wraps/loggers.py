"""Experiment trackers: switched off in a profile, or writing where it is thrown away, unless ``--keep-logging``.

What is logged then is meaningless, and what was uploaded cannot be taken back. Variables do where a tracker has one;
the calls that could overrule those are wrapped. Others than the five named here are not known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.run.orders import current


def variables(discarded: Path) -> Mapping[str, str]:
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
    module.init = _forced(module.init, "W&B", mode="disabled")  # type: ignore[attr-defined]


def wrap_neptune(module: ModuleType) -> None:
    """Neptune: runs keep what they are told to themselves."""
    module.Run.__init__ = _forced(module.Run.__init__, "Neptune", mode="debug")


def wrap_comet(module: ModuleType) -> None:
    """Comet: the base of all its experiments."""
    module.CometExperiment.__init__ = _forced(module.CometExperiment.__init__, "Comet", disabled=True)


def wrap_mlflow(module: ModuleType) -> None:
    """MLflow: clients of any server talk to the folder that the variable names."""
    client = module.MlflowClient
    client.__init__ = _forced(client.__init__, "MLflow", tracking_uri=None, registry_uri=None)


def wrap_mlflow_address(module: ModuleType) -> None:
    """MLflow: the folder that the variable names stays the address."""
    orders = current()
    if orders is not None:
        uri = variables(orders.files.discarded)["MLFLOW_TRACKING_URI"]
        module.set_tracking_uri = _forced(module.set_tracking_uri, "MLflow", uri=uri)  # type: ignore[attr-defined]


def wrap_tensorboard(module: ModuleType) -> None:
    """TensorBoard: event files go to a folder that is removed with the launch's."""
    orders = current()
    if orders is None:
        return
    import inspect

    writer = module.SummaryWriter
    # tensorboardX knows both names, and prefers this one.
    name = "logdir" if "logdir" in inspect.signature(writer.__init__).parameters else "log_dir"
    folder = str(orders.files.discarded / "tensorboard")
    writer.__init__ = _forced(writer.__init__, "TensorBoard", **{name: folder})


def _forced(function: Callable[..., Any], service: str, **values: Any) -> Callable[..., Any]:
    """``function`` with these arguments, whatever its caller says."""
    orders = current()
    if orders is None or orders.keep_logging:
        return function
    import inspect  # takes longer than the rest of the agent's start

    signature = inspect.signature(function)

    @functools.wraps(function)
    def forced(*args: Any, **kwargs: Any) -> Any:
        script.note(f"{service} was switched off for the profile (--keep-logging keeps it): steps lack its own time")
        call = signature.bind(*args, **kwargs)
        call.arguments.update(values)
        return function(*call.args, **call.kwargs)

    return forced
