"""Start the agent: watch the launcher, pin the process, quieten trackers, guard files, and wait for torch.

Wrapping happens through an import hook that runs a callback right after a named module was executed, so
that all who import from it later get the wrapped functions. Costs a few milliseconds at start-up
and leaves a job that never imports torch alone.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from stash.measure.agent import guard, script
from stash.measure.agent.last_words import end_with_launcher, report_crashes
from stash.measure.agent.wraps import frameworks
from stash.measure.linux.processes import pin_rank
from stash.measure.protocol.orders import current_orders

WRAPS: Mapping[str, str] = {
    "torch.distributed.distributed_c10d": "wraps.scope:wrap_collectives",
    "torch.distributed._functional_collectives": "wraps.scope:wrap_functional",
    "torch.distributed.pipelining.stage": "wraps.waits:wrap_stages",
    "torch.nn.parallel.distributed": "wraps.replicas:wrap_ddp",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "wraps.sharding:watch_fsdp",
    "torch.distributed.fsdp._fully_shard._fully_shard": "wraps.sharding:watch_fully_shard",
    "torch.distributed.fsdp._fully_shard._fsdp_param_group": "wraps.waits:wrap_param_group",
    "torch.distributed._composable.fsdp.fully_shard": "wraps.sharding:watch_fully_shard",
    "deepspeed.runtime.engine": "wraps.sharding:watch_deepspeed",
    "torch.distributed.checkpoint.state_dict_saver": "wraps.opened_files:guard_distributed_checkpoint",
    "torch.utils.data.dataloader": "wraps.loader:wrap",
    "torch.utils.data._utils.fetch": "wraps.loader:wrap_fetchers",
    "torch._dynamo.callback": "wraps.stages:wrap_compilation",
    "torch.nn.modules.module": "wraps.steps:wrap_module",
    "torch.autograd": "wraps.steps:wrap_backward",
    "torch._functorch.eager_transforms": "wraps.steps:wrap_functorch",
    "torch.optim.optimizer": "runner.ladder_runner:start",
    "torch.optim.lr_scheduler": "wraps.steps:wrap_schedulers",
    "torch.amp.grad_scaler": "wraps.steps:wrap_scaler",
    "torch.serialization": "wraps.opened_files:guard_torch_save",
    "multiprocessing.process": "wraps.steps:wrap_processes",
    "multiprocessing.util": "wraps.steps:keep_sockets_in_run",
    "torch.multiprocessing.spawn": "wraps.steps:wrap_spawn",
    "h5py._hl.files": "wraps.opened_files:wrap_h5py",
    "cv2": "wraps.opened_files:wrap_cv2",
    "torchvision.io.image": "wraps.opened_files:wrap_torchvision_io",
    "pyarrow.parquet.core": "wraps.opened_files:wrap_parquet",
    "safetensors.torch": "wraps.opened_files:guard_safetensors",
    "wandb.sdk.wandb_init": "wraps.frameworks:wrap_wandb",
    "neptune.metadata_containers.run": "wraps.frameworks:wrap_neptune",
    "comet_ml.experiment": "wraps.frameworks:wrap_comet",
    "mlflow.tracking.client": "wraps.frameworks:wrap_mlflow",
    "mlflow.tracking._tracking_service.utils": "wraps.frameworks:wrap_mlflow_address",
    "torch.utils.tensorboard.writer": "wraps.frameworks:wrap_tensorboard",
    "tensorboardX.writer": "wraps.frameworks:wrap_tensorboard",
    "transformers.trainer": "wraps.frameworks:wrap_transformers",
    "lightning.pytorch.trainer.trainer": "wraps.frameworks:wrap_lightning",
    "pytorch_lightning.trainer.trainer": "wraps.frameworks:wrap_lightning",
}
"""What to call with which module, once it was imported, one after the other; each lives with the thing it wraps."""

TRIAL: Mapping[str, str] = {
    "torch.distributed.distributed_c10d": "wraps.scope:wrap_collectives wraps.trial_settings:wrap_barriers",
    "torch.nn.parallel.distributed": "wraps.replicas:wrap_ddp wraps.trial_changes:wrap_ddp",
    "torch.utils.data.dataloader": "wraps.loader:wrap wraps.trial_changes:wrap_loaders",
    "torch.utils.data._utils.fetch": "wraps.loader:wrap_fetchers wraps.trial_changes:wrap_fetchers",
    "torch.nn.modules.module": "wraps.steps:wrap_module wraps.trial_changes:wrap_modules",
    "torch.autograd": "wraps.steps:wrap_backward wraps.trial_changes:wrap_backward",
    "torch.optim.optimizer": "wraps.trial_changes:seed runner.ladder_runner:start",
}
"""What differs from that in a trial of ``stash fix``."""

WATCHED: Mapping[str, str] = {
    "torch.distributed.distributed_c10d": "wraps.stages:wrap_collectives",
    "torch.nn.parallel.distributed": "wraps.replicas:remember_ddp",
    "torch.utils.data.dataloader": "wraps.stages:wrap_loaders",
    "torch.serialization": "wraps.stages:wrap_saves",
    "torch.distributed.checkpoint.state_dict_saver": "wraps.stages:wrap_saves",
    "safetensors.torch": "wraps.stages:wrap_saves",
    "torch._dynamo.callback": "wraps.stages:wrap_compilation",
    "torch.nn.modules.module": "wraps.steps:wrap_module",
    "torch.autograd": "wraps.steps:wrap_backward",
    "torch.optim.optimizer": "runner.watched_run:start",
    "torch.amp.grad_scaler": "wraps.steps:wrap_scaler",
}
"""The same of a run that is only listened to."""


_PINNED = "STASH_PINNED"
"""By which rank of which launch this process's cores were chosen."""


def start() -> None:
    """Install the import hook of this process; called once, from ``sitecustomize``."""
    orders = current_orders()
    if orders is None:
        return
    if orders.watched:
        atexit.register(script.exits)
        script.report_hard_exits()
        sys.meta_path.insert(0, PostImport(dict(WATCHED)))
        return
    end_with_launcher(orders)  # first of all: the launcher may be gone already
    if orders.pin:
        local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        _pin_once(orders.launch, local)
    if not orders.keep_logging:
        os.environ.update(frameworks.quiet_variables(orders.files.discarded))
    guard.protect_files(orders)
    report_crashes(orders)
    of_trial = {} if orders.trial is None else TRIAL
    sys.meta_path.insert(0, PostImport({**WRAPS, **of_trial}))


def _pin_once(launch: int, place: tuple[int, int]) -> None:
    """Keep a rank to its cores; what it starts, loaders' workers too, inherits them and does not share them again."""
    mark = f"{launch} {place}"
    if os.environ.get(_PINNED) != mark:
        os.environ[_PINNED] = mark
        pin_rank(*place)


def wait_for_watcher() -> None:
    """Let a watcher listen to this process later (``stash watch --attach``), and until then do nothing."""
    atexit.register(script.exits)
    sys.meta_path.insert(
        0, PostImport({**WATCHED, "torch.optim.optimizer": "runner.watched_run:wait_for_watcher"})
    )


class PostImport(importlib.abc.MetaPathFinder):
    """Call a function of the agent right after a named module was imported for the first time."""

    def __init__(self, wraps: dict[str, str]) -> None:
        self._wraps = wraps

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision" and "torchvision.io.image" in self._wraps:
            from stash.core.imports import prepare_torchvision

            prepare_torchvision()
        if name not in self._wraps:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._wrap_once_executed(spec.loader)
                return spec
        return None

    def _wrap_once_executed(self, loader: Any) -> None:
        """Have the loader's next module wrapped; a look whether there is such a module is no import."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            for name in self._wraps.pop(module.__name__, "").split():
                home, _, function = name.partition(":")
                getattr(import_module(f"stash.measure.agent.{home}"), function)(module)

        script.put(loader, exec_module=exec_module)
