"""Changes that ``stash fix`` tries on a script as it runs, and what proves what they do to training.

A trial's orders name settings. They are put in where the script builds its loader, its DDP wrapper or its optimizer;
the place of that call in the script is recorded, as a patch will have to be written there. Every trial records losses
and prints of batches, under the same seeds: samples are made with a seed of their own, so that it does not matter
which worker makes them. Whether a change pays is not known here. Without a trial's orders nothing is wrapped.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
        self.evaluations: dict[str, list[tuple[float, int]]] = {}
        """The same of loops without gradients, by the place that made their loader."""
        self.trains: str | None = None
        """The place that made the latest loader whose batches came with gradients."""
        self.updates: dict[int, list[float]] = {}
        """Of each optimizer: when the step under way began, seconds in steps, and steps."""
        self.own = 0.0
        """Seconds that the training thread has spent on recording, and on seeds: no step's."""

    @contextmanager
    def own_work(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.own += time.perf_counter() - began


_evidence = _Evidence()
"""Of this process."""
_own_work = _evidence.own_work


def own_seconds() -> float:
    """What recording has taken of this process's training thread so far."""
    return _evidence.own


def seed(module: ModuleType) -> None:
    """Give this process the seeds of every trial, those of its rank; the script may set others."""
    if settings() is None:
        return
    seed_all(_SEED + int(os.environ.get("RANK") or 0))
    torch = sys.modules["torch"]
    _set_flags(torch)
    _wrap_optimizers(module)
    wrap_waits(torch)


def _set_flags(torch: Any) -> None:
    """What is switched once for the process: threads, cuDNN, TF32."""
    wanted, set_threads = (settings() or {}).get("threads"), torch.set_num_threads
    library = os.path.join(os.path.dirname(torch.__file__), "")

    @functools.wraps(set_threads)
    def wrapper(number: int) -> None:
        workers = sys.modules.get("torch.utils.data")
        in_worker = workers is not None and workers.get_worker_info() is not None
        if in_worker or sys._getframe(1).f_code.co_filename.startswith(
            library
        ):  # which gives each worker one
            set_threads(number)
            return
        site_of("threads")
        set_threads(int(wanted or number))

    script.put(torch, set_num_threads=wrapper)
    if wanted:  # the script may have set the variable that gives it threads
        set_threads(int(wanted))
    if (settings() or {}).get("flush_denormal"):
        torch.set_flush_denormal(True)
    set_flags(find_setting("flags"))


def _override_arguments(
    init: Function, self: Any, args: Any, kwargs: Any, new: Mapping[str, Any]
) -> Any:
    """The call's arguments with ``new`` ones in place of its own."""
    bound = inspect.signature(init).bind(self, *args, **kwargs)
    bound.arguments.update(new)
    return bound.args, bound.kwargs


# Loaders


def wrap_loaders(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``: its loaders' settings, and what they hand out."""
    orders = current_orders()
    if orders is None or orders.trial is None:
        return
    cls = module.DataLoader
    init, iterate = cls.__init__, cls.__iter__
    asked, cache, beside = (find_setting(name) for name in ("loader", "cache", "evaluation"))
    where = asked.pop("site", None)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = site_of("loader")
        if asked and where in (None, key):
            args, kwargs = _override_loader(init, self, args, kwargs, asked)
        if key in beside:
            args, kwargs = _override_loader(init, self, args, kwargs, beside[key])
        if cache.get("site") == key:
            data = kwargs["dataset"] if "dataset" in kwargs else args[0]
            kept = sample_cache.cache_samples(data, bool(cache["transform"]), orders.files.run_path)
            args, kwargs = (
                ((), {**kwargs, "dataset": kept})
                if "dataset" in kwargs
                else ((kept, *args[1:]), kwargs)
            )
        init(self, *args, **kwargs)
        self.__dict__[_SITE] = key
        iterable = hasattr(self.dataset, "__iter__") and not hasattr(self.dataset, "__getitem__")
        context = self.multiprocessing_context
        SITES[key]["values"] = {
            "multiprocessing_context": None if context is None else context.get_start_method(),
            "num_workers": self.num_workers,
            "prefetch_factor": self.prefetch_factor,
            "pin_memory": self.pin_memory,
            "persistent_workers": self.persistent_workers,
            "dataset": type(self.dataset).__qualname__,
            "same_data": id(self.dataset),
            "iterable": iterable,
            "batch_size": self.batch_size,
        }

    @functools.wraps(iterate)
    def asked_for(self: Any) -> Any:
        self.__dict__["_stash_asked"] = time.perf_counter()
        return iterate(self)

    script.put(cls, __init__=made, __iter__=asked_for)
    private.wrap_iterators(module, _knowing_loader)
    private.wrap_handing_out(module, _record_batches)


def _knowing_loader(begin: Function) -> Function:
    @functools.wraps(begin)
    def begun(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, loader, *args, **kwargs)
        self._stash_of = loader

    return begun


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
        if not has_stopped_recording():
            with _own_work():
                _record_batch(loader, batch)
        elif loader is not None and "_stash_asked" in loader.__dict__:
            trains = sys.modules["torch"].is_grad_enabled()
            _record_batch(loader, batch)
            loops_begun.append(LoopBegun(time.perf_counter(), trains))
        return batch

    return wrapper


def _override_loader(init: Any, self: Any, args: Any, kwargs: Any, asked: Mapping[str, Any]) -> Any:
    """The arguments as asked; what belongs to workers goes with the last of them."""
    new = dict(asked)
    before = inspect.signature(init).bind(self, *args, **kwargs).arguments
    if new.pop("one_thread", False):
        new["worker_init_fn"] = OneThread(before.get("worker_init_fn"))
    if not new.get("num_workers", before.get("num_workers", 0)):
        new |= {
            "prefetch_factor": None,
            "persistent_workers": False,
            "multiprocessing_context": None,
        }
    args, kwargs = _override_arguments(init, self, args, kwargs, new)
    return args[1:], kwargs


def _record_batch(loader: Any, batch: Any) -> None:
    """Record the print of a batch that the training loader hands out."""
    if loader is None:
        return
    began = loader.__dict__.pop("_stash_asked", None)
    trains = sys.modules["torch"].is_grad_enabled()
    if began is not None:
        own = _evidence.evaluations.setdefault(loader.__dict__.get(_SITE, ""), [])
        steps = max((steps for _, _, steps in _evidence.updates.values()), default=0)
        (_evidence.epochs if trains else own).append((time.perf_counter() - began, int(steps)))
    if not trains:
        return
    _evidence.trains = loader.__dict__.get(_SITE)
    if len(_evidence.batches) < _MAX_RECORDED and not has_stopped_recording():
        _evidence.batches.append(fingerprint_batch(batch))


def fingerprint_batch(batch: Any) -> int | None:
    """A number that tells this batch from others: of evenly spaced numbers of its tensors; None where it has none."""
    found = None
    for tensor in batches.iter_tensors(batch):
        if private.is_strided(tensor) and tensor.device.type == "cpu" and tensor.numel():
            # MONAI's slice themselves
            flat = tensor.detach().as_subclass(sys.modules["torch"].Tensor).reshape(-1)
            few = flat[:: max(1, flat.numel() // _PRINTED)].contiguous()
            found = zlib.crc32(few.view(sys.modules["torch"].uint8).numpy().tobytes(), found or 0)
    return found


def wrap_fetchers(module: ModuleType) -> None:
    """Make the random numbers of a sample its own, whoever makes it; of ``torch.utils.data._utils.fetch``."""
    if settings() is None:
        return
    for cls in private.fetchers(module):
        script.wrap(cls, "fetch", _seed_fetch)


def _seed_fetch(fetch: Function) -> Function:
    @functools.wraps(fetch)
    def wrapper(self: Any, index: Any) -> Any:
        if has_stopped_recording():
            return fetch(self, index)
        with _own_work():
            in_worker = sys.modules["torch"].utils.data.get_worker_info() is not None
            states = None if in_worker else RandomStates()
            seed_all(zlib.crc32(repr(index).encode(), _SEED))
        try:
            return fetch(self, index)
        finally:
            with _own_work():
                if states is not None:
                    states.restore()

    return wrapper


def wrap_ddp(module: ModuleType) -> None:
    """Wrap ``DistributedDataParallel``: its settings, and how often it exchanges."""
    if settings() is None:
        return
    cls, asked, seldom = (
        module.DistributedDataParallel,
        find_setting("ddp"),
        is_ever_set("exchange_every"),
    )
    init, forward, forwards = cls.__init__, cls.forward, itertools.count(1)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = site_of("ddp")
        _prepare_model(kwargs["module"] if "module" in kwargs else args[0])
        args, kwargs = _override_arguments(init, self, args, kwargs, asked)
        init(*args, **kwargs)
        names = (
            "bucket_bytes_cap",
            "gradient_as_bucket_view",
            "static_graph",
            "find_unused_parameters",
        )
        SITES[key]["values"] = {name: getattr(self, name, None) for name in names}

    @functools.wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if seldom and self.training:
            passes = int((settings() or {}).get("exchange_every") or 1)
            self.require_backward_grad_sync = next(forwards) % passes == 0
        return forward(self, *args, **kwargs)

    script.put(cls, __init__=made, forward=wrapper)


def _prepare_model(model: Any) -> None:
    """What is asked of the model itself, once it is about to be wrapped or trained."""
    torch, asked = sys.modules["torch"], settings() or {}
    if model.__dict__.get("_stash_prepared"):
        return
    model.__dict__["_stash_prepared"] = True
    if asked.get("channels_last"):
        model.to(memory_format=torch.channels_last)
    if asked.get("compile"):
        model.compile()
    if is_ever_set("autocast"):
        plain, device = model.forward, next((p.device.type for p in model.parameters()), "cpu")

        @functools.wraps(plain)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            name = (settings() or {}).get("autocast")
            if not name:
                return plain(*args, **kwargs)
            kind = getattr(torch, str(name))
            with torch.autocast(device, kind):
                found = plain(*args, **kwargs)
            return (
                found.float() if isinstance(found, torch.Tensor) and found.dtype is kind else found
            )

        script.put(model, forward=wrapper)


def wrap_modules(module: ModuleType) -> None:
    """Prepare a model that no DDP wraps, at its first pass; of ``torch.nn.modules.module``."""
    if not any(is_ever_set(name) for name in ("channels_last", "compile", "autocast")):
        return
    call, is_inside = module.Module.__call__, False

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_inside
        if is_inside or not self.training or not any(True for _ in self.parameters()):
            return call(self, *args, **kwargs)
        is_inside = True
        try:
            if type(self).__name__ != "DistributedDataParallel":
                _prepare_model(self)
            return call(self, *args, **kwargs)
        finally:
            is_inside = False

    script.put(module.Module, __call__=wrapper)


def _wrap_optimizers(module: ModuleType) -> None:
    """Wrap ``torch.optim.optimizer``: the optimizers' settings, and how they clear gradients."""
    cls = module.Optimizer
    asked, clears = find_setting("optimizer"), is_ever_set("zero_grad")
    init, clear = cls.__init__, cls.zero_grad

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = site_of("optimizer")
        defaults = kwargs["defaults"] if "defaults" in kwargs else args[1]
        new = {**defaults, **choose_form(asked)} if asked.keys() & defaults.keys() else defaults
        args, kwargs = _override_arguments(init, self, args, kwargs, {"defaults": new})
        init(*args, **kwargs)
        remember_optimizer(self)
        kept = ("fused", "foreach", "capturable")
        SITES[key]["values"] = {
            "class": type(self).__name__,
            "takes": sorted(set(kept) & defaults.keys()),
        }
        SITES[key]["values"] |= {name: defaults.get(name) for name in kept}

    @functools.wraps(clear)
    def wrapper(self: Any, set_to_none: bool = True) -> None:
        if not has_stopped_recording():
            with _own_work():
                key = site_of("zero_grad")
                SITES[key]["values"] = {"set_to_none": set_to_none}
        clear(
            self,
            bool(find_setting("zero_grad").get("set_to_none", set_to_none))
            if clears
            else set_to_none,
        )

    script.put(cls, __init__=made, zero_grad=wrapper)
    if collector := find_setting("collector"):
        module.register_optimizer_step_post_hook(SeldomCollected(**collector))
    module.register_optimizer_step_pre_hook(_update_begins)
    module.register_optimizer_step_post_hook(_update_ends)  # before the ladder's, which may wait


def _update_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    _evidence.updates.setdefault(id(optimizer), [0.0, 0.0, 0])[0] = time.perf_counter()


def _update_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    own = _evidence.updates[id(optimizer)]
    own[1] += time.perf_counter() - own[0]
    own[2] += 1


def wrap_backward(module: ModuleType) -> None:
    """Record the loss of every backward pass; of ``torch.autograd``."""
    if settings() is None:
        return
    backward = module.backward

    @functools.wraps(backward)
    def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if not has_stopped_recording():
            with _own_work():
                loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
                if (
                    len(_evidence.losses) < _MAX_RECORDED
                    and getattr(loss, "numel", lambda: 0)() == 1
                ):
                    _evidence.losses.append(loss.detach().clone())
        backward(tensors, *args, **kwargs)

    script.put(module, backward=wrapper)


def _update_seconds() -> float | None:
    """Of a step, in its optimizers: on GPUs only until the work is queued."""
    most = max((steps for _, _, steps in _evidence.updates.values()), default=0)
    return sum(seconds for _, seconds, _ in _evidence.updates.values()) / most if most else None


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
    trains = SITES.get(key or "")
    if last and rank == 0 and not orders.trial and trains is not None and trained_by is not None:
        trains["values"]["kept"] = sample_cache.facts_of(trained_by.dataset, fingerprint_batch)
    found = {
        "losses": [float(loss.item()).hex() for loss in _evidence.losses],
        "batches": _evidence.batches,
        "epochs": _evidence.epochs,
        "evaluations": _evidence.evaluations,
        "update_seconds": _update_seconds(),
        "sites": SITES,
        "trains": key,
        "batches_per_step": batches_per_step,
        "threads": sys.modules["torch"].get_num_threads(),
        "sets_threads": _sets_threads(),
    }
    path = orders.files.path / f"trial.{rank}.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(found))
    draft.rename(path)
