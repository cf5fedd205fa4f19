"""What the job is, learned by looking at one or two of its steps: FLOPs, gradients, and how long its input takes.

Each observer is put in place at one optimizer step and taken away at the next, in steps that are not
measured.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.samples import samples
from stash.measure.agent.wraps import replicas


class FlopCounter:
    """Counts the FLOPs of matrix products, convolutions and attention through one step of one device."""

    def __init__(self) -> None:
        self.flops = 0.0
        self.complete = True
        self._mode: Any = None

    def begin(self) -> None:
        if private.has_compiled():
            return  # compiled code does not pass through a dispatch mode
        from torch.utils.flop_counter import flop_registry

        counter = self

        class Mode(private.dispatch_mode()):  # type: ignore[misc]
            supports_higher_order_operators = True

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                out = func(*args, **(kwargs or {}))
                counter.count(flop_registry.get(private.overloads(func) or func), func, args, kwargs or {}, out)
                return out

        self._mode = Mode()
        self._mode.__enter__()

    def count(self, formula: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Add one operator's FLOPs; one whose formula fails, or a higher-order one, leaves the total unknown."""
        if formula is None:
            self.complete = self.complete and private.overloads(func) is not None
            return
        try:
            self.flops += formula(*args, **kwargs, out_val=out)
        except Exception:  # a formula's assertion must never reach the user's forward pass
            self.complete = False

    def end(self) -> float | None:
        if self._mode is None:
            return None
        self._mode.__exit__(None, None, None)
        self._mode = None
        return self.flops if self.complete and self.flops else None


class GradientClock:
    """Notes when each parameter's gradient became ready in one backward pass, without exchanging any."""

    def __init__(self, parameters: list[tuple[str, Any]]) -> None:
        self._parameters = parameters
        self._ready: list[tuple[str, int, Any]] = []
        self._seen: set[str] = set()
        self._handles: list[Any] = []

    def begin(self) -> None:
        for name, parameter in self._parameters:
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._note(name)))

    def _note(self, name: str) -> Any:
        def ready(parameter: Any) -> None:
            size = parameter.numel() * parameter.element_size()
            if name in self._seen:  # another micro-batch of an accumulated step: its last one counts
                self._ready.clear()
                self._seen.clear()
            self._seen.add(name)
            self._ready.append((name, size, Instant(parameter.device)))

        return ready

    def end(self) -> list[dict[str, Any]]:
        """``[{name, bytes, ready_seconds}]`` in the order in which gradients became ready.

        Devices have clocks of their own: of a model on several, those on the first one's device have a time.
        """
        for handle in self._handles:
            handle.remove()
        if not self._ready:
            return []
        first = self._ready[0][2]
        rows = [{"name": n, "bytes": size, "ready_seconds": first.until(at)} for n, size, at in self._ready]
        if any(row["ready_seconds"] is None for row in rows):
            return rows
        return sorted(rows, key=lambda row: row["ready_seconds"])


class InputClock:
    """Notes when the first module of a step begins its forward pass: what makes batches unseen runs before that."""

    def __init__(self) -> None:
        self._began = 0.0
        self._first: float | None = None
        self._handle: Any = None

    def begin(self) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._began = time.perf_counter()
        self._handle = register_module_forward_pre_hook(self._forward)

    def _forward(self, module: Any, inputs: Any) -> None:
        if self._first is None:
            self._first = time.perf_counter()

    def end(self) -> tuple[float, float] | None:
        """Seconds from the end of the step before, and of the whole step; ``None`` if no module was called."""
        self._handle.remove()
        return None if self._first is None else (self._first - self._began, time.perf_counter() - self._began)


class Instant:
    """When something is done: on the host's clock, or in the queue of a CUDA device."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._seconds = time.perf_counter()
        self._event: Any = None
        if device.type == "cuda":
            self._event = sys.modules["torch"].cuda.Event(enable_timing=True)
            self._event.record()

    def until(self, other: Instant) -> float | None:
        """Seconds from this moment to the other, once both have come; ``None`` if they are of different clocks."""
        if self._event is None and other._event is None:
            return other._seconds - self._seconds
        if self._device != other._device:
            return None
        self._event.synchronize()
        other._event.synchronize()
        return float(self._event.elapsed_time(other._event)) / 1e3


def trained_parameters(optimizer: Any) -> list[tuple[str, Any]]:
    """(name, parameter) of everything that is trained: DDP's names, else numbers in the optimizer's order."""
    _, named = replicas.gradient_facts()
    if named:
        return named
    groups = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    return [(str(index), parameter) for index, parameter in enumerate(groups)]


def workload_facts(optimizer: Any) -> dict[str, Any]:
    """Fields of ``records.Workload`` that follow from the parameters; unknown where nobody saw those."""
    parameters = [p for _, p in trained_parameters(optimizer)]
    buckets, _ = replicas.gradient_facts()
    return {
        "parameters": sum(p.numel() for p in parameters) or None,
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters) or None,
        "bucket_bytes": buckets,
        "exchange_hook": replicas.own_hook(),
        "skips_exchanges": replicas.skips_exchanges(),
        "precision": str(parameters[0].dtype).removeprefix("torch.") if parameters else None,
    }


def software() -> dict[str, str]:
    """Versions of what the numbers depend on, of modules this process has loaded anyway."""
    import platform

    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("torchvision", "transformers", "accelerate", "lightning", "deepspeed", "numpy"):
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "unknown"))
    return versions | (_of_devices(torch) if torch.cuda.is_available() else {})


def _of_devices(torch: Any) -> dict[str, str]:
    """Of what drives the devices; a build may lack any of it (ROCm has no CUDA, Jetson no NCCL)."""
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    known = {
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
    }
    return {name: str(version) for name, version in known.items() if version is not None}


def loader_facts(feeds: list[Feed]) -> dict[str, Any]:
    """Fields of ``records.Workload`` that the training loaders tell."""
    if not feeds:
        return {}
    described = []
    for feed in feeds:
        facts: dict[str, Any] = {"kind": feed.kind, "batches_per_step": feed.per_step}
        facts["startup_seconds"] = feed.startup
        facts["on_device"] = any(batches.places(kept) for kept in feed.ring.kept)
        real = getattr(feed, "loader", None)
        if real is not None:
            facts |= {
                "workers": real.num_workers,
                "prefetch_factor": real.prefetch_factor,
                "persistent_workers": real.persistent_workers,
                "pin_memory": real.pin_memory,
                "samples": _length(real.dataset),
            }
        described.append(facts)
    batch = _total([_samples_per_step(feed) for feed in feeds])
    size = sum(_mean([batches.size(kept) for kept in feed.ring.kept]) * feed.per_step for feed in feeds)
    return {
        "loaders": described,
        "batch": round(batch) if batch else None,
        "sample_bytes": size / batch if batch else None,
        "replayed_batches": max(len(feed.ring) for feed in feeds),
    }


def _samples_per_step(feed: Feed) -> float | None:
    """By the batches kept for replays, which may differ; ``None`` if one of them cannot be counted."""
    counts = _total([samples(kept) for kept in feed.ring.kept])
    return None if counts is None else counts / len(feed.ring) * feed.per_step


def _total(parts: list[Any]) -> float | None:
    return None if None in parts else sum(parts)


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:  # an iterable without a length
        return None
