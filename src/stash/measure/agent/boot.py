"""Start the agent: pin the process, watch over the launcher, and wait for torch to be imported.

Wrapping happens through an import hook that runs a callback right after a named module was executed, so
that everybody who imports from it later gets the wrapped functions. Costs a few milliseconds at start-up
and leaves a job that never imports torch alone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType

from stash.measure.run import orders as plans

Callback = Callable[[ModuleType], None]


def start() -> None:
    """Install the import hook of this process; called once, from ``sitecustomize``."""
    plan = plans.current()
    if plan is None:
        return
    if plan.pin:
        _pin(int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1")), plan.gang)
    _report_crashes(plan)
    sys.meta_path.insert(0, PostImport(_callbacks()))


def _callbacks() -> dict[str, Callback]:
    """What to do after which module; each wrapper lives with the thing it wraps."""

    def lazily(module: str, function: str) -> Callback:
        def call(imported: ModuleType) -> None:
            getattr(__import__(f"stash.measure.agent.{module}", fromlist=[function]), function)(imported)

        return call

    return {
        "torch.distributed.distributed_c10d": lazily("wraps.collectives", "wrap"),
        "torch.nn.parallel.distributed": lazily("wraps.replicas", "wrap_ddp"),
        "torch.distributed.fsdp.fully_sharded_data_parallel": lazily("wraps.replicas", "watch_fsdp"),
        "torch.distributed.fsdp._fully_shard._fully_shard": lazily("wraps.replicas", "watch_fully_shard"),
        "torch.distributed._composable.fsdp.fully_shard": lazily("wraps.replicas", "watch_fully_shard"),
        "torch.distributed.checkpoint.state_dict_saver": lazily("wraps.checkpoints", "guard_distributed_checkpoint"),
        "torch.utils.data.dataloader": lazily("wraps.loader", "wrap"),
        "torch.utils.data._utils.fetch": lazily("data.reading", "wrap_fetchers"),
        "torch.optim.optimizer": lazily("wraps.steps", "wrap_optimizer"),
        "torch.optim.lr_scheduler": lazily("wraps.steps", "wrap_schedulers"),
        "torch.amp.grad_scaler": lazily("wraps.steps", "wrap_scaler"),
        "torch.serialization": lazily("wraps.checkpoints", "guard_torch_save"),
        "torch.multiprocessing.spawn": lazily("wraps.steps", "wrap_spawn"),
        "safetensors.torch": lazily("wraps.checkpoints", "guard_safetensors"),
        "transformers.trainer": lazily("wraps.frameworks", "wrap_transformers"),
        "lightning.pytorch.trainer.trainer": lazily("wraps.frameworks", "wrap_lightning"),
        "pytorch_lightning.trainer.trainer": lazily("wraps.frameworks", "wrap_lightning"),
    }


class PostImport(importlib.abc.MetaPathFinder):
    """Run a callback right after a named module was imported for the first time."""

    def __init__(self, callbacks: dict[str, Callback]) -> None:
        self._callbacks = callbacks

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision":
            from stash.base.compat import prepare_torchvision

            prepare_torchvision()
            return None
        callback = self._callbacks.pop(name, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Calling(spec.loader, callback)
                return spec
        return None


class _Calling(importlib.abc.Loader):
    """A loader that delegates, then calls back with the finished module."""

    def __init__(self, loader: importlib.abc.Loader, callback: Callback) -> None:
        self._loader, self._callback = loader, callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._callback(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


def _pin(local_rank: int, local_world: int, gang: tuple[int, int] | None) -> None:
    """Give this rank its own share of the cores, in order; its loader's workers inherit it."""
    if gang is not None:
        local_rank, local_world = gang
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // local_world
    if share >= 1:
        os.sched_setaffinity(0, cores[local_rank * share : (local_rank + 1) * share])


def _report_crashes(plan: plans.Plan) -> None:
    """Leave an uncaught exception's text in the run's folder, for the launcher to show."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        import traceback

        steps = sys.modules.get("stash.measure.agent.wraps.steps")
        if steps is not None:
            steps.abandon()
        try:
            text = "".join(traceback.format_exception(kind, error, trace))
            rank = os.environ.get("RANK", "0")
            if kind.__name__ == "ChildFailedError":
                return  # torchrun's own; the rank that failed has left its error already
            path = os.path.join(plan.folder, f"crash.{time.time_ns()}.{rank}")
            with open(path, "w") as file:
                file.write(text)
        except OSError as problem:
            print(f"stash: could not record the crash: {problem}", file=sys.stderr)
        finally:
            previous(kind, error, trace)

    sys.excepthook = hook


def _end_children() -> None:
    """End this process's own children: a loader's workers would notice only seconds later."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


def outlive_not(launcher_pid: int) -> None:
    """End this process when the launcher is gone, however it died; checked every second."""

    def gone() -> bool:
        try:
            os.kill(launcher_pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def watch() -> None:
        while not gone():
            time.sleep(1.0)
        _end_children()
        os._exit(1)

    if gone():  # a launcher of another PID namespace (a container) cannot be watched
        return
    threading.Thread(target=watch, name="stash-launcher-watch", daemon=True).start()
