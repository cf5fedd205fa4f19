"""Changes that ``stash fix`` tries on a script as it runs, and what proves what they do to training.

A trial's orders name settings. They are put in where the script builds its loader, its DDP wrapper or its optimizer;
the place of that call in the script is recorded, as a patch will have to be written there. Every trial records losses
and prints of batches, under the same seeds: samples are made with a seed of their own, so that it does not matter
which worker makes them. Whether a change pays is not known here. Without a trial's orders nothing is wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import json
import os
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any, NamedTuple

from stash.measure.agent import private, script
from stash.measure.agent.data import batches
from stash.measure.agent.script import Function
from stash.measure.agent.wraps import sample_cache
from stash.measure.agent.wraps.patched_code import OneThread, SeldomCollected
from stash.measure.agent.wraps.random_numbers import RandomStates, seed_all
from stash.measure.agent.wraps.trial_settings import (
    SITES,
    TrialSettings,
    choose_form,
    find_setting,
    has_stopped_recording,
    is_ever_set,
    remember_optimizer,
    set_flags,
    settings,
    site_of,
    wrap_waits,
)
from stash.measure.protocol.orders import current_orders

_SEED = 20_231
_MAX_RECORDED = 2_000
"""Losses and batches of a rank; what is claimed of 200 steps needs no more."""
_PRINTED = 4_096
"""Numbers of a tensor from which its print is made."""
_SITE = "_stash_site"
_OF_LOADERS = (
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "batch_size",
)
_OF_DDP = (
    "bucket_bytes_cap",
    "gradient_as_bucket_view",
    "static_graph",
    "find_unused_parameters",
)
_OF_OPTIMIZERS = ("fused", "foreach", "capturable")
"""What is recorded of each, beside the place where it is made."""


class LoopBegun(NamedTuple):
    """A loop over a loader got its first batch."""

    came: float
    """Seconds on ``time.perf_counter``."""
    trains: bool
    """Gradients were on."""


loops_begun: list[LoopBegun] = []
"""Once nothing else is recorded; whoever reads them clears them."""


class _Evidence:
    """What a rank has recorded."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.batches: list[int | None] = []
        self.epochs: list[tuple[float, int]] = []
        """Of loops with gradients: seconds from asking for an iterator until the first batch, and steps until then."""
        self.evaluations: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        """The same of loops without gradients, by the place that made their loader."""
        self.trains = ""
        """The place that made the latest loader whose batches came with gradients."""
        self.updates: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        """Of each optimizer: when the step under way began, seconds in steps, and steps."""
        self.own = 0.0
        """Seconds that the training thread has spent on recording, and on seeds: no step's."""

    def count_steps(self) -> int:
        """Steps so far, of the optimizer that steps most."""
        return int(max((steps for _, _, steps in self.updates.values()), default=0))

    def update_seconds(self) -> float | None:
        """Of a step, in its optimizers: on GPUs only until the work is queued."""
        steps = self.count_steps()
        return sum(seconds for _, seconds, _ in self.updates.values()) / steps if steps else None


_evidence = _Evidence()
"""Of this process."""


@contextlib.contextmanager
def _own_work() -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        _evidence.own += time.perf_counter() - began


def own_seconds() -> float:
    """What recording has taken of this process's training thread so far."""
    return _evidence.own


def seed(module: ModuleType) -> None:
    """Give this process the seeds of every trial, those of its rank; the script may set others."""
    seed_all(_SEED + int(os.environ.get("RANK") or 0))
    torch = sys.modules["torch"]
    _set_flags(torch)
    _wrap_optimizers(module)
    wrap_waits(torch)


def _set_flags(torch: Any) -> None:
    """What is switched once for the process: threads, cuDNN, TF32."""
    wanted, set_threads = settings().get("threads"), torch.set_num_threads
    library = os.path.join(os.path.dirname(torch.__file__), "")

    @functools.wraps(set_threads)
    def wrapper(number: int) -> None:
        # PyTorch itself gives each worker one
        by_torch = sys._getframe(1).f_code.co_filename.startswith(library)
        if by_torch or batches.is_in_worker():
            set_threads(number)
        else:
            site_of("threads")
            set_threads(int(wanted or number))

    script.put(torch, set_num_threads=wrapper)
    if wanted:  # the script may have set the variable that gives it threads
        set_threads(int(wanted))
    if settings().get("flush_denormal"):
        torch.set_flush_denormal(True)
    set_flags(find_setting("flags"))


# Loaders


def wrap_loaders(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``: its loaders' settings, and what they hand out."""
    script.surround(module.DataLoader, "__init__", _make_loader)
    script.surround(module.DataLoader, "__iter__", _note_asking)
    private.surround_iterators(module, _note_loader)
    private.wrap_handing_out(module, _record_batches)


def _make_loader(init: Function, self: Any, *args: Any, **kwargs: Any) -> None:
    asked, cache, key = find_setting("loader"), find_setting("cache"), site_of("loader")
    call = inspect.signature(init).bind(self, *args, **kwargs)
    if asked.pop("site", key) == key:
        _change_loader(call.arguments, asked)
    _change_loader(call.arguments, find_setting("evaluation").get(key, {}))
    orders = current_orders()
    if orders is not None and cache.get("site") == key:
        call.arguments["dataset"] = sample_cache.cache_samples(
            call.arguments["dataset"], bool(cache["transform"]), orders.files.run_path
        )
    init(*call.args, **call.kwargs)
    self.__dict__[_SITE] = key
    data, context = self.dataset, self.multiprocessing_context
    SITES[key]["values"] = {name: getattr(self, name) for name in _OF_LOADERS} | {
        "multiprocessing_context": None if context is None else context.get_start_method(),
        "dataset": type(data).__qualname__,
        "same_data": id(data),
        "iterable": hasattr(data, "__iter__") and not hasattr(data, "__getitem__"),
    }


def _change_loader(arguments: MutableMapping[str, Any], asked: TrialSettings) -> None:
    """Put in what is asked; what belongs to workers goes with the last of them."""
    new = dict(asked)
    if new.pop("one_thread", False):
        new["worker_init_fn"] = OneThread(arguments.get("worker_init_fn"))
    if asked and not new.get("num_workers", arguments.get("num_workers", 0)):
        new |= {
            "prefetch_factor": None,
            "persistent_workers": False,
            "multiprocessing_context": None,
        }
    arguments.update(new)


def _note_asking(iterate: Function, self: Any) -> Any:
    self.__dict__["_stash_asked"] = time.perf_counter()
    return iterate(self)


def _note_loader(begin: Function, self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
    begin(self, loader, *args, **kwargs)
    self._stash_of = loader


def _record_batches(hand_out: Function) -> Function:
    @functools.wraps(hand_out)
    def wrapper(self: Any) -> Any:
        if self.__dict__.get("_stash_handing"):  # the ladder's feed asks from within
            return hand_out(self)
        self._stash_handing = True
        try:
            batch = hand_out(self)
        finally:
            self._stash_handing = False
        loader = getattr(self, "_stash_of", None)
        if loader is not None and (
            not has_stopped_recording() or "_stash_asked" in loader.__dict__
        ):
            with _own_work():
                _record_batch(loader, batch)
        return batch

    return wrapper


def _record_batch(loader: Any, batch: Any) -> None:
    """Record the print of a batch that the training loader hands out."""
    asked, site = loader.__dict__.pop("_stash_asked", None), loader.__dict__.get(_SITE, "")
    trains = sys.modules["torch"].is_grad_enabled()
    if asked is not None:
        came = time.perf_counter()
        starts = _evidence.epochs if trains else _evidence.evaluations[site]
        starts.append((came - asked, _evidence.count_steps()))
        if has_stopped_recording():
            loops_begun.append(LoopBegun(came, trains))
    if trains:
        _evidence.trains = site
        if len(_evidence.batches) < _MAX_RECORDED and not has_stopped_recording():
            _evidence.batches.append(fingerprint_batch(batch))


def fingerprint_batch(batch: Any) -> int | None:
    """A number that tells this batch from others: of evenly spaced numbers of its tensors; None where it has none."""
    torch, found = sys.modules["torch"], None
    for tensor in batches.iter_tensors(batch):
        if private.is_strided(tensor) and tensor.device.type == "cpu" and tensor.numel():
            # MONAI's slice themselves
            flat = tensor.detach().as_subclass(torch.Tensor).reshape(-1)
            few = flat[:: max(1, flat.numel() // _PRINTED)].contiguous()
            found = zlib.crc32(few.view(torch.uint8).numpy().tobytes(), found or 0)
    return found


def wrap_fetchers(module: ModuleType) -> None:
    """Make the random numbers of a sample its own, whoever makes it; of ``torch.utils.data._utils.fetch``."""
    for cls in private.fetchers(module):
        script.surround(cls, "fetch", _seed_fetch)


def _seed_fetch(fetch: Function, self: Any, index: Any) -> Any:
    if has_stopped_recording():
        return fetch(self, index)
    with _own_work():
        states = None if batches.is_in_worker() else RandomStates()
        seed_all(zlib.crc32(repr(index).encode(), _SEED))
    try:
        return fetch(self, index)
    finally:
        if states is not None:
            with _own_work():
                states.restore()


# Models


def wrap_ddp(module: ModuleType) -> None:
    """Wrap ``DistributedDataParallel``: its settings, and how often it exchanges."""
    script.surround(module.DistributedDataParallel, "__init__", _make_ddp)
    if is_ever_set("exchange_every"):
        forwards = functools.partial(_exchange_seldom, itertools.count(1))
        script.surround(module.DistributedDataParallel, "forward", forwards)


def _make_ddp(init: Function, self: Any, *args: Any, **kwargs: Any) -> None:
    key = site_of("ddp")
    call = inspect.signature(init).bind(self, *args, **kwargs)
    _prepare_model(call.arguments["module"])
    call.arguments.update(find_setting("ddp"))
    init(*call.args, **call.kwargs)
    SITES[key]["values"] = {name: getattr(self, name, None) for name in _OF_DDP}


def _exchange_seldom(
    numbers: Iterator[int], forward: Function, self: Any, *args: Any, **kwargs: Any
) -> Any:
    if self.training:
        passes = int(settings().get("exchange_every") or 1)
        self.require_backward_grad_sync = next(numbers) % passes == 0
    return forward(self, *args, **kwargs)


def _prepare_model(model: Any) -> None:
    """What is asked of the model itself, once it is about to be wrapped or trained."""
    if model.__dict__.get("_stash_prepared"):
        return
    model.__dict__["_stash_prepared"] = True
    if settings().get("channels_last"):
        model.to(memory_format=sys.modules["torch"].channels_last)
    if settings().get("compile"):
        model.compile()
    if is_ever_set("autocast"):
        device = next((p.device.type for p in model.parameters()), "cpu")
        script.surround(model, "forward", functools.partial(_cast_forward, device))


def _cast_forward(device: str, forward: Function, *args: Any, **kwargs: Any) -> Any:
    torch, name = sys.modules["torch"], settings().get("autocast")
    if not name:
        return forward(*args, **kwargs)
    kind = getattr(torch, str(name))
    with torch.autocast(device, kind):
        found = forward(*args, **kwargs)
    return found.float() if isinstance(found, torch.Tensor) and found.dtype is kind else found


def wrap_modules(module: ModuleType) -> None:
    """Prepare a model that no DDP wraps, at its first pass; of ``torch.nn.modules.module``."""
    if not any(map(is_ever_set, ("channels_last", "compile", "autocast"))):
        return
    call, is_inside = module.Module.__call__, False

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_inside
        if is_inside or not self.training or next(iter(self.parameters()), None) is None:
            return call(self, *args, **kwargs)
        is_inside = True
        try:
            if type(self).__name__ != "DistributedDataParallel":
                _prepare_model(self)
            return call(self, *args, **kwargs)
        finally:
            is_inside = False

    script.put(module.Module, __call__=wrapper)


# Updates


def _wrap_optimizers(module: ModuleType) -> None:
    """Wrap ``torch.optim.optimizer``: the optimizers' settings, and how they clear gradients."""
    script.surround(module.Optimizer, "__init__", _make_optimizer)
    script.surround(module.Optimizer, "zero_grad", _clear_gradients)
    if collector := find_setting("collector"):
        module.register_optimizer_step_post_hook(SeldomCollected(**collector))
    module.register_optimizer_step_pre_hook(_update_begins)
    module.register_optimizer_step_post_hook(_update_ends)  # before the ladder's, which may wait


def _make_optimizer(init: Function, self: Any, *args: Any, **kwargs: Any) -> None:
    asked, key = find_setting("optimizer"), site_of("optimizer")
    call = inspect.signature(init).bind(self, *args, **kwargs)
    defaults = call.arguments["defaults"]
    if asked.keys() & defaults.keys():
        call.arguments["defaults"] = {**defaults, **choose_form(asked)}
    init(*call.args, **call.kwargs)
    remember_optimizer(self)
    SITES[key]["values"] = {name: defaults.get(name) for name in _OF_OPTIMIZERS} | {
        "class": type(self).__name__,
        "takes": sorted(defaults.keys() & set(_OF_OPTIMIZERS)),
    }


def _clear_gradients(clear: Function, self: Any, set_to_none: bool = True) -> None:
    if not has_stopped_recording():
        with _own_work():
            SITES[site_of("zero_grad")]["values"] = {"set_to_none": set_to_none}
    clear(self, bool(find_setting("zero_grad").get("set_to_none", set_to_none)))


def _update_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    _evidence.updates[id(optimizer)][0] = time.perf_counter()


def _update_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    own = _evidence.updates[id(optimizer)]
    own[1] += time.perf_counter() - own[0]
    own[2] += 1


def wrap_backward(module: ModuleType) -> None:
    """Record the loss of every backward pass; of ``torch.autograd``."""
    script.wrap(module, "backward", _record_losses)


def _record_losses(backward: Function) -> Function:
    @functools.wraps(backward)
    def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if not has_stopped_recording() and len(_evidence.losses) < _MAX_RECORDED:
            with _own_work():
                loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
                if batches.is_tensor(loss) and loss.numel() == 1:
                    _evidence.losses.append(loss.detach().clone())
        backward(tensors, *args, **kwargs)

    return wrapper


def _sets_threads() -> bool:
    """Whether the script itself says in its environment how many threads there are, whatever it was started with."""
    with open("/proc/self/environ", "rb") as file:
        given = dict(each.partition(b"=")[::2] for each in file.read().split(b"\0"))
    return given.get(b"OMP_NUM_THREADS") != os.environb.get(b"OMP_NUM_THREADS")


def write_evidence(
    rank: int,
    trained_by: Any = None,
    batches_per_step: int = 1,
    last: bool = False,
) -> None:
    """Put this rank's evidence into the launch's folder; ``trained_by``: the loader that trains.

    The ``last`` time of a launch as typed, the first rank also reads samples twice.
    """
    orders = current_orders()
    if orders is None or orders.trial is None:
        return
    # of `next(iter(loader))` in every step no loop is known
    key = getattr(trained_by, "__dict__", {}).get(_SITE) or _evidence.trains
    if last and rank == 0 and not orders.trial and key in SITES and trained_by is not None:
        kept = sample_cache.facts_of(trained_by.dataset, fingerprint_batch)
        SITES[key]["values"]["kept"] = kept
    found = {
        "losses": [float(loss.item()).hex() for loss in _evidence.losses],
        "batches": _evidence.batches,
        "epochs": _evidence.epochs,
        "evaluations": _evidence.evaluations,
        "update_seconds": _evidence.update_seconds(),
        "sites": SITES,
        "trains": key or None,
        "batches_per_step": batches_per_step,
        "threads": sys.modules["torch"].get_num_threads(),
        "sets_threads": _sets_threads(),
    }
    path = orders.files.path / f"trial.{rank}.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(found))
    draft.rename(path)
