"""Changes that ``stash fix`` tries on a script as it runs, and what proves what they do to training.

A trial's orders name settings. They are put in where the script builds its loader, its DDP wrapper or its optimizer;
the place of that call in the script is recorded, as a patch will have to be written there. Every trial records losses
and prints of batches, under the same seeds: samples are made with a seed of their own, so that it does not matter
which worker makes them. Whether a change pays is not known here. Without a trial's orders nothing is wrapped.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import random
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any, ClassVar

from stash.measure.agent import private
from stash.measure.linux.cores import place_rank, planned, wrap_worker_loop
from stash.measure.protocol.orders import current

_SEED = 20_231
_MAX_RECORDED = 2_000
"""Losses and batches of a rank; what is claimed of 200 steps needs no more."""
_PRINTED = 4_096
"""Numbers of a tensor from which its print is made."""
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_SITE = "_stash_site"
_places: dict[tuple[str, CodeType, int], str] = {}
"""Keys of the calls recorded so far."""
TrialSettings = Mapping[str, Any]


class _Evidence:
    """What this rank has recorded."""

    losses: ClassVar[list[Any]] = []
    batches: ClassVar[list[int | None]] = []
    epochs: ClassVar[list[float]] = []
    """Seconds from a loop's asking for an iterator until it had its first batch."""
    sites: ClassVar[dict[str, dict[str, Any]]] = {}
    """By ``kind:file:line:column``."""
    fetched = 0
    forwards = 0
    """Of DDP, since the last optimizer step."""


def settings() -> TrialSettings | None:
    """What this trial changes; None outside a trial."""
    orders = current()
    return None if orders is None else orders.trial


def _part(name: str) -> dict[str, Any]:
    found = (settings() or {}).get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def begin() -> None:
    """At the start of a trial's process: give it the cores that it is to have."""
    placed = _part("cores")
    if placed:
        place_rank(placed)


def seed(module: ModuleType) -> None:
    """Give this process the seeds of every trial, those of its rank; the script may set others."""
    if settings() is None:
        return
    own = _SEED + int(os.environ.get("RANK") or 0)
    torch = sys.modules["torch"]
    torch.random.default_generator.manual_seed(own)
    random.seed(own)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(own)
    _set_flags(torch)
    _wrap_optimizers(module)


def _set_flags(torch: Any) -> None:
    """What is switched once for the process: threads, cuDNN, TF32."""
    wanted, set_threads = (settings() or {}).get("threads"), torch.set_num_threads

    @functools.wraps(set_threads)
    def counted(number: int) -> None:
        _site("threads")
        set_threads(int(wanted or number))

    torch.set_num_threads = counted
    for name, value in _part("flags").items():
        home, _, attribute = name.rpartition(".")
        target = torch
        for part in home.split("."):
            target = getattr(target, part)
        setattr(target, attribute, value)


# Where the script calls


def _site(kind: str) -> str:
    """Record the call under way, in the first file that is neither PyTorch's nor Stash's; the value is its key."""
    frame: FrameType | None = sys._getframe(2)
    torch_folder = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    while frame is not None and (
        frame.f_code.co_filename.startswith((torch_folder, _HERE + os.sep)) or frame.f_code.co_filename[:1] == "<"
    ):
        frame = frame.f_back
    if frame is None:
        frame = sys._getframe(2)
    known = _places.get((kind, frame.f_code, frame.f_lasti))
    if known is None:
        known = _places[kind, frame.f_code, frame.f_lasti] = _record(kind, frame)
    _Evidence.sites[known]["calls"] += 1
    return known


def _record(kind: str, frame: FrameType) -> str:
    """Note where a call stands."""
    place: tuple[Any, ...] = (frame.f_lineno, frame.f_lineno, None, None)
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is not None:
        found = list(positions())[frame.f_lasti // 2]
        place = found if found[0] is not None else place
    line, end_line, column, end_column = place
    key = f"{kind}:{frame.f_code.co_filename}:{line}:{column}"
    _Evidence.sites[key] = {
        "kind": kind, "file": frame.f_code.co_filename, "line": line, "end_line": end_line, "column": column,
        "end_column": end_column, "function": frame.f_code.co_name, "calls": 0, "values": {},
    }  # fmt: skip
    return key


def _override(init: Callable[..., None], self: Any, args: Any, kwargs: Any, new: Mapping[str, Any]) -> Any:
    """The call's arguments with ``new`` ones in place of its own."""
    bound = inspect.signature(init).bind(self, *args, **kwargs)
    bound.arguments.update(new)
    return bound.args, bound.kwargs


# Loaders


def wrap_loaders(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``: its loaders' settings, and what they hand out."""
    if settings() is None:
        return
    cls = module.DataLoader
    init, iterate = cls.__init__, cls.__iter__
    asked = _part("loader")
    where = asked.pop("site", None)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = _site("loader")
        if asked and where in (None, key):
            args, kwargs = _with_loader(init, self, args, kwargs, asked)
        init(self, *args, **kwargs)
        self.__dict__[_SITE] = key
        iterable = hasattr(self.dataset, "__iter__") and not hasattr(self.dataset, "__getitem__")
        _Evidence.sites[key]["values"] = {
            "num_workers": self.num_workers, "prefetch_factor": self.prefetch_factor, "pin_memory": self.pin_memory,
            "persistent_workers": self.persistent_workers, "dataset": type(self.dataset).__qualname__,
            "same_data": id(self.dataset), "iterable": iterable,
        }  # fmt: skip

    @functools.wraps(iterate)
    def asked_for(self: Any) -> Any:
        self.__dict__["_stash_asked"] = time.perf_counter()
        return iterate(self)

    cls.__init__, cls.__iter__ = made, asked_for
    private.wrap_iterators(module, _knowing_loader)
    private.wrap_handing_out(module, _recorded)


def _knowing_loader(begin: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(begin)
    def begun(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, loader, *args, **kwargs)
        self._stash_of = loader

    return begun


def _recorded(hand_out: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(hand_out)
    def handed_out(self: Any) -> Any:
        if self.__dict__.get("_stash_handing"):  # the ladder's feed asks from within
            return hand_out(self)
        self._stash_handing = True
        try:
            batch = hand_out(self)
        finally:
            self._stash_handing = False
        _handed(getattr(self, "_stash_of", None), batch)
        return batch

    return handed_out


def _with_loader(init: Any, self: Any, args: Any, kwargs: Any, asked: Mapping[str, Any]) -> Any:
    """The arguments as asked; what belongs to workers goes with the last of them."""
    new = dict(asked)
    before = inspect.signature(init).bind(self, *args, **kwargs).arguments
    if not new.get("num_workers", before.get("num_workers", 0)):
        new |= {"prefetch_factor": None, "persistent_workers": False}
    args, kwargs = _override(init, self, args, kwargs, new)
    return args[1:], kwargs


def _handed(loader: Any, batch: Any) -> None:
    """Record the print of a batch that the training loader hands out."""
    if loader is None or not sys.modules["torch"].is_grad_enabled():
        return
    began = loader.__dict__.pop("_stash_asked", None)
    if began is not None:
        _Evidence.epochs.append(time.perf_counter() - began)
    if len(_Evidence.batches) < _MAX_RECORDED:
        _Evidence.batches.append(printed(batch))


def printed(batch: Any) -> int | None:
    """A number that tells this batch from others: of evenly spaced numbers of its tensors; None where it has none."""
    torch = sys.modules["torch"]
    tensors: list[Any] = []
    ahead = [batch]
    while ahead:
        part = ahead.pop()
        if isinstance(part, torch.Tensor):
            tensors.append(part)
        elif isinstance(part, Mapping):
            ahead += list(part.values())
        elif isinstance(part, (tuple, list)):
            ahead += list(part)
    found = None
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.numel():
            continue
        flat = tensor.detach().reshape(-1)
        few = flat[:: max(1, flat.numel() // _PRINTED)].contiguous()
        found = zlib.crc32(few.view(torch.uint8).numpy().tobytes(), found or 0)
    return found


def wrap_fetchers(module: ModuleType) -> None:
    """Make the random numbers of a sample its own, whoever makes it; of ``torch.utils.data._utils.fetch``."""
    if settings() is None:
        return
    for cls in private.fetchers(module):
        cls.fetch = _seeded(cls.fetch)


def _seeded(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def seeded(self: Any, index: Any) -> Any:
        torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
        in_worker = torch.utils.data.get_worker_info() is not None
        if not in_worker:
            states = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
        _Evidence.fetched += 1
        own = zlib.crc32(repr(index).encode(), _SEED)
        random.seed(own)
        torch.random.default_generator.manual_seed(own)
        if numpy:
            numpy.random.seed(own)
        try:
            return fetch(self, index)
        finally:
            if not in_worker:
                random.setstate(states[0])
                torch.set_rng_state(states[1])
                if numpy:
                    numpy.random.set_state(states[2])

    return seeded


def wrap_worker(module: ModuleType) -> None:
    """Give loader workers their cores; of ``torch.utils.data._utils.worker``."""
    wrap_worker_loop(module, _part("cores") or planned() or {})


# Models and optimizers


def wrap_ddp(module: ModuleType) -> None:
    """Wrap ``DistributedDataParallel``: its settings, and how often it exchanges."""
    if settings() is None:
        return
    cls, asked = module.DistributedDataParallel, _part("ddp")
    init, forward, passes = cls.__init__, cls.forward, int((settings() or {}).get("exchange_every") or 1)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = _site("ddp")
        _prepare_model(kwargs["module"] if "module" in kwargs else args[0])
        args, kwargs = _override(init, self, args, kwargs, asked)
        init(*args, **kwargs)
        names = ("bucket_bytes_cap", "gradient_as_bucket_view", "static_graph", "find_unused_parameters")
        _Evidence.sites[key]["values"] = {name: getattr(self, name, None) for name in names}

    @functools.wraps(forward)
    def passed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if passes > 1 and self.training:
            _Evidence.forwards += 1
            self.require_backward_grad_sync = _Evidence.forwards % passes == 0
        return forward(self, *args, **kwargs)

    cls.__init__, cls.forward = made, passed


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
    if asked.get("autocast"):
        plain, device = model.forward, next((p.device.type for p in model.parameters()), "cpu")
        kind = getattr(torch, str(asked["autocast"]))

        @functools.wraps(plain)
        def in_autocast(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device, kind):
                found = plain(*args, **kwargs)
            return found.float() if isinstance(found, torch.Tensor) and found.dtype is kind else found

        model.forward = in_autocast


def wrap_modules(module: ModuleType) -> None:
    """Prepare a model that no DDP wraps, at its first pass; of ``torch.nn.modules.module``."""
    asked = settings() or {}
    if not any(asked.get(name) for name in ("channels_last", "compile", "autocast")):
        return
    call = module.Module.__call__

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _Outermost.inside and self.training and any(True for _ in self.parameters()):
            _Outermost.inside = True
            try:
                if type(self).__name__ != "DistributedDataParallel":
                    _prepare_model(self)
                return call(self, *args, **kwargs)
            finally:
                _Outermost.inside = False
        return call(self, *args, **kwargs)

    module.Module.__call__ = called


class _Outermost:
    inside = False


def _wrap_optimizers(module: ModuleType) -> None:
    """Wrap ``torch.optim.optimizer``: the optimizers' settings, and how they clear gradients."""
    cls = module.Optimizer
    asked, clears = _part("optimizer"), _part("zero_grad")
    init, clear = cls.__init__, cls.zero_grad

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        key = _site("optimizer")
        defaults = kwargs["defaults"] if "defaults" in kwargs else args[1]
        new = {**defaults, **asked, "foreach": None} if asked and "fused" in defaults else defaults
        args, kwargs = _override(init, self, args, kwargs, {"defaults": new})
        init(*args, **kwargs)
        kept = ("fused", "foreach", "capturable")
        _Evidence.sites[key]["values"] = {"class": type(self).__name__, "takes": sorted(set(kept) & defaults.keys())}
        _Evidence.sites[key]["values"] |= {name: defaults.get(name) for name in kept}

    @functools.wraps(clear)
    def cleared(self: Any, set_to_none: bool = True) -> None:
        key = _site("zero_grad")
        _Evidence.sites[key]["values"] = {"set_to_none": set_to_none}
        clear(self, bool(clears.get("set_to_none", set_to_none)))

    cls.__init__, cls.zero_grad = made, cleared


def wrap_backward(module: ModuleType) -> None:
    """Record the loss of every backward pass; of ``torch.autograd``."""
    if settings() is None:
        return
    backward = module.backward

    @functools.wraps(backward)
    def recorded(tensors: Any, *args: Any, **kwargs: Any) -> None:
        loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        if len(_Evidence.losses) < _MAX_RECORDED and getattr(loss, "numel", lambda: 0)() == 1:
            _Evidence.losses.append(loss.detach().clone())
        backward(tensors, *args, **kwargs)

    module.backward = recorded  # type: ignore[attr-defined]


def wrap_copies(module: ModuleType) -> None:
    """Copies to a GPU: where the script makes them, and without waiting if asked; of ``torch._tensor``."""
    if settings() is None or not sys.modules["torch"].cuda.is_available():
        return
    cls, asked = module.Tensor, (settings() or {}).get("non_blocking")
    move = cls.to

    @functools.wraps(move)
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "cpu" or not self.is_pinned():
            return move(self, *args, **kwargs)
        key = _site("copy")
        _Evidence.sites[key]["values"] = {"non_blocking": kwargs.get("non_blocking", False)}
        if asked and "non_blocking" not in kwargs and len(args) < 3:
            kwargs["non_blocking"] = True
        return move(self, *args, **kwargs)

    cls.to = moved


def write(rank: int, trained_by: Any = None, length: int | None = None, batches_per_step: int = 1) -> None:
    """Put this rank's evidence into the launch's folder; ``trained_by``: the loader that trains, of that length."""
    orders = current()
    if orders is None or orders.trial is None:
        return
    found = {
        "losses": [float(loss.item()).hex() for loss in _Evidence.losses],
        "batches": _Evidence.batches,
        "epochs": _Evidence.epochs,
        "sites": _Evidence.sites,
        "trains": getattr(trained_by, "__dict__", {}).get(_SITE),
        "length": length,
        "batches_per_step": batches_per_step,
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": sys.modules["torch"].get_num_threads(),
    }
    path = orders.files.path / f"trial.{rank}.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(found))
    draft.rename(path)
