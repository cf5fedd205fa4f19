"""A stopwatch for untouched jobs: when each step ended, written by rank 0 to the file that ``COMPAT_MOMENTS`` names.

Stands on ``PYTHONPATH`` in place of Stash's agent and runs none of its code. Steps are those of torch.optim; where it
never steps, calls of ``backward``; where there is none, of ``torch.func.grad``. After ``COMPAT_SECONDS`` of steps all
ranks are ended. With ``COMPAT_REPLAY`` every loader of PyTorch gives its first batch over and over, and has no
workers: the step that is left is the truth about what its input costs.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time

_moments = {"step": [], "backward": [], "gradients": []}


def _ticked(kind):
    now = time.perf_counter()
    taken = _moments[kind]
    taken.append(now)
    first = min(times[0] for times in _moments.values() if times)
    if now - first > float(os.environ["COMPAT_SECONDS"]) and len(taken) >= 8:
        with open(os.environ["COMPAT_MOMENTS"], "w") as file:
            json.dump(next(times for times in _moments.values() if times), file)
        sys.stdout.flush()
        os._exit(0)


def _watch_optimizers(module):
    module.register_optimizer_step_post_hook(lambda *_: _ticked("step"))


def _watch_backward(module):
    backward = module.backward

    def timed(*args, **kwargs):
        backward(*args, **kwargs)
        _ticked("backward")

    module.backward = timed


def _watch_gradients(module):
    gradients = module.grad_and_value_impl

    def timed(*args, **kwargs):
        found = gradients(*args, **kwargs)
        _ticked("gradients")
        return found

    module.grad_and_value_impl = timed


def _replay_loaders(module):
    original = module.DataLoader.__iter__

    def first_again(self):
        # a batch learned by heart has tiny gradients, which are slow
        sys.modules["torch"].set_flush_denormal(True)
        batches = original(self)
        first = next(batches)
        del batches  # its workers end
        count = self.__len__() if hasattr(self.dataset, "__len__") else 10**9
        for _ in range(count):
            yield first

    module.DataLoader.__iter__ = first_again


class _Watching(importlib.abc.Loader):
    def __init__(self, loader, watch):
        self._loader, self._watch = loader, watch

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._watch(module)


_WATCHES = {
    "torch.optim.optimizer": _watch_optimizers,
    "torch.autograd": _watch_backward,
    "torch._functorch.eager_transforms": _watch_gradients,
}
_REPLAYS = {"torch.utils.data.dataloader": _replay_loaders} if "COMPAT_REPLAY" in os.environ else {}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if (
            name == "torchvision"
        ):  # whose compiled half does not fit the CPU's torch, in plain runs neither
            from stash.core.imports import prepare_torchvision

            prepare_torchvision()
        watch = _WATCHES.pop(name, None) or _REPLAYS.pop(name, None)
        if watch is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = _Watching(spec.loader, watch)
        return spec


def _end_with_rank_0():
    """What a rank does that lost its peer in a collective is not always to end."""
    while not os.path.exists(os.environ["COMPAT_MOMENTS"]):
        time.sleep(0.2)
    os._exit(0)


if "COMPAT_MOMENTS" in os.environ:
    if os.environ.get("RANK", "0") != "0":
        _WATCHES.clear()
        threading.Thread(target=_end_with_rank_0, daemon=True).start()
    sys.meta_path.insert(0, _Finder())
