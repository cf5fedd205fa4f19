"""What the job is, learned by looking at a few of its steps: what operators do, when gradients are ready, its input.

Each observer is put in place at one optimizer step and taken away at the next, in steps that are not measured. A look
takes whole steps of the job and puts nothing into them that a block could contain. What it costs is bounded, and what
it cannot learn has a reason in ``unrecorded``, under the name of the fact.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import weakref
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import partial
from statistics import fmean, pstdev
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.data import batches
from stash.measure.agent.data.batches import count_samples
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.runner.operators import OperatorCounter
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.thread_stack import is_own, path_from_here
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope
from stash.measure.agent.wraps.sharding import sharded
from stash.measure.linux.run_queue import RunQueue
from stash.measure.protocol.messages import JobFacts

_SHARE = 0.05
"""Of the budget, for each of: counting operators, and steps in which gradients are looked at again."""
_MIN_SECONDS = 1.0
"""Seconds that each of these may take whatever the budget is."""
_LAYERS = 5
"""Of data sets around each other that are looked into."""
MAX_LOOKS = 5
"""Steps in which gradients are looked at: as many as tell a spread from an outlier."""
_SCHEDULES = "torch.distributed.pipelining.schedules"
Learned = dict[str, Any]
"""Fields of ``records.Workload``."""


class GradientClock:
    """Notes when each parameter's gradient became ready in one backward pass, without exchanging any.

    What fails is over with, and is no concern of the pass; ``why`` says so.
    """

    def __init__(self, parameters: list[tuple[str, Any]]) -> None:
        self.why: str | None = None
        self._parameters = parameters
        self._ready: dict[str, tuple[int, Instant]] = {}
        self._handles: list[Any] = []

    def begin(self) -> None:
        try:
            for name, parameter in self._parameters:
                hook = partial(self._note_gradient, name)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        except Exception as error:  # of a kind of parameter that Stash knows nothing about
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.why = (
            f"noting when gradients were ready failed ({type(error).__name__}: {str(error)[:200]})"
        )

    def _note_gradient(self, name: str, parameter: Any) -> None:
        try:
            # another micro-batch of an accumulated step: its last one counts
            if name in self._ready:
                self._ready.clear()
            size = parameter.numel() * parameter.element_size()
            self._ready[name] = size, Instant(parameter.device)
        except Exception as error:  # which must not end the user's backward pass
            self._give_up(error)

    def end(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """``[{name, bytes, ready_seconds}]`` in the order in which gradients became ready.

        Devices have clocks of their own: of a model on several, those on the first one's device have a time.
        """
        if self.why is not None:
            return []
        first = next((at for _, at in self._ready.values()), None)
        rows = [
            {
                "name": name,
                "bytes": size,
                "ready_seconds": None if first is None else first.until(at),
            }
            for name, (size, at) in self._ready.items()
        ]
        if any(row["ready_seconds"] is None for row in rows):
            return rows
        return sorted(rows, key=lambda row: row["ready_seconds"])


class ForwardLook:
    """Notes in one step when its model begins its forward pass, what it is made of, and what it exchanges in there.

    What makes batches unseen, and copies them, runs before. On a CUDA device by events in its queue, which knows what
    it waited for. Elsewhere time in which the training thread was ready to run and had no core counts nowhere: that is
    other programs'. Gradients are exchanged in the backward pass or after it: collectives that are not wrapped and
    were issued before a module's forward pass ended, be it to recompute, are part of the model.
    """

    def __init__(self, device: Any = None) -> None:
        self.parameters: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """Of every module that was called: those of the whole model, whatever part of it trains."""
        self.buffers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """The same."""
        self.placed: bool | None = None
        """Whether the model got its inputs on the device; ``None`` if that was not seen."""
        self._device = device
        self._queue = RunQueue()
        self._begun: tuple[Any, dict[str, int]] = (None, {})
        """When, and how many collectives had been issued."""
        self._first: Any = None
        self._issued_within: dict[str, int] = {}
        self._handles: list[Any] = []

    def _now(self) -> Any:
        if self._device is not None and self._device.type == "cuda":
            return Instant(self._device)
        return time.perf_counter() - self._queue.delay()

    def begin(self) -> None:
        modules = sys.modules["torch.nn.modules.module"]
        self._issued_within = scope.collectives_begun()
        self._begun = self._now(), self._issued_within
        self._handles = [
            modules.register_module_forward_pre_hook(private.not_compiled(self._enter_module)),
            modules.register_module_forward_hook(private.not_compiled(self._leave_module)),
        ]

    def _enter_module(self, module: Any, inputs: Any) -> None:
        """What is given by name is not seen here: then it is the first module within that takes a tensor."""
        own = {id(parameter): parameter for parameter in module.parameters(recurse=False)}
        self.parameters.update(own)
        self.buffers.update({id(buffer): buffer for buffer in module.buffers(recurse=False)})
        if self.placed is None and (own or next(module.parameters(), None) is not None):
            devices = {each.device for each in inputs if hasattr(each, "device")}
            if self._first is None or devices:
                self._first = self._now()
            if devices:
                self.placed = devices == {self._device}

    def _leave_module(self, module: Any, inputs: Any, outputs: Any) -> None:
        self._issued_within = scope.collectives_begun()

    @property
    def exchanges(self) -> bool:
        """Whether modules do within their forward passes."""
        _, issued = self._begun
        return any(issued.get(name, n) != n for name, n in self._issued_within.items())

    def end(self) -> tuple[float, float] | None:
        """Seconds from the end of the step before, and of the whole step; ``None`` if no module was called."""
        for handle in self._handles:
            handle.remove()
        if self._first is None:
            return None
        (began, _), ended = self._begun, self._now()
        if isinstance(ended, Instant):
            before, step = began.until(self._first), began.until(ended)
            return None if before is None or step is None else (before, step)
        return self._first - began, ended - began


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


def combine_readiness(looks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of the first look, each with the seconds of all looks if it was ready in each."""
    times = [{row["name"]: row["ready_seconds"] for row in look} for look in looks]
    rows = []
    for row in looks[0] if looks else []:
        seconds = [each.get(row["name"]) for each in times]
        known = [round(each, 6) for each in seconds if each is not None]
        rows.append({**row, "ready_steps": known if len(known) == len(seconds) else []})
    return rows


def list_buckets(gradients: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fields of ``records.Bucket``: a bucket is ready when the last of its gradients is."""
    steps = {row["name"]: row["ready_steps"] for row in gradients}
    rows = []
    for size, names in replicas.bucket_contents():
        known = [steps.get(name, []) for name in names]
        is_known = len(set(map(len, known))) == 1
        last = [*map(max, zip(*known, strict=True))] if is_known else []
        rows.append({"bytes": size, "gradients": list(names), "ready_steps": last})
    return rows


def optimizer_bytes(optimizer: Any) -> int | None:
    """Of what it keeps for each parameter on this device; None of an update that is no optimizer of PyTorch's."""
    state = getattr(optimizer, "state", None)
    if not isinstance(state, Mapping):
        return None
    size = 0
    for kept in state.values():
        for value in kept.values() if isinstance(kept, Mapping) else ():
            if batches.is_tensor(value):
                own = value.to_local() if hasattr(value, "to_local") else value
                size += int(own.numel() * own.element_size())
    return size


def trained_parameters(optimizer: Any) -> list[tuple[str, Any]]:
    """(name, parameter) of everything that is trained: DDP's names, else numbers in the optimizer's order."""
    _, named = replicas.gradient_facts()
    if named:
        return named
    groups = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    return [(str(index), parameter) for index, parameter in enumerate(groups)]


def workload_facts(optimizer: Any) -> dict[str, Any]:
    """Fields of ``records.Workload`` that follow from the parameters; unknown where those were not seen."""
    parameters = [p for _, p in trained_parameters(optimizer)]
    buckets, _ = replicas.gradient_facts()
    torch, count = sys.modules["torch"], sum(p.numel() for p in parameters) or None
    # a DTensor counts as the whole it is a part of; parts that other wrappers divide do not tell, nor do stages
    is_whole = sharded.keys() <= {"fully_shard"} and _SCHEDULES not in sys.modules
    return {
        "parameters": count,
        "parameter_bytes": sum(p.numel() * p.element_size() for p in parameters) or None,
        "bucket_bytes": buckets,
        **replicas.exchange_facts(),
        "precision": str(parameters[0].dtype).removeprefix("torch.") if parameters else None,
        "whole_parameters": count if is_whole else None,
        "float32_products": torch.get_float32_matmul_precision(),
        "anomaly_mode": bool(torch.is_anomaly_enabled()),
    }


def list_versions() -> dict[str, str]:
    """Versions of what the numbers depend on, of modules this process has loaded anyway, and of what drives devices.

    A build may lack any of that (ROCm has no CUDA, Jetson no NCCL).
    """
    import platform

    import torch

    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("torchvision", "transformers", "accelerate", "lightning", "deepspeed", "numpy"):
        if name in sys.modules:
            found[name] = getattr(sys.modules[name], "__version__", "unknown")
    if torch.cuda.is_available():
        dist = torch.distributed
        nccl = dist.is_available() and dist.is_nccl_available()
        found["cuda"], found["hip"] = torch.version.cuda, torch.version.hip
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if nccl else None
    return {name: str(version) for name, version in found.items() if version is not None}


def loader_facts(feeds: list[Feed]) -> dict[str, Any]:
    """Fields of ``records.Workload`` that the training loaders tell."""
    if not feeds:
        return {}
    kept = [feed.ring.batches for feed in feeds]
    counts = [[count_samples(batch) for batch in of_feed] for of_feed in kept]
    # by the batches kept for replays, which may differ
    of_step = [
        None if None in count else sum(filter(None, count)) / len(count) * feed.per_step
        for feed, count in zip(feeds, counts, strict=True)
    ]
    batch = None if None in of_step else sum(filter(None, of_step))
    size = sum(
        fmean(map(batches.count_bytes, of_feed)) * feed.per_step
        for feed, of_feed in zip(feeds, kept, strict=True)
    )
    return {
        **(_token_facts(kept[0], counts[0]) if len(feeds) == 1 else {}),
        "loaders": [_describe_loader(feed) for feed in feeds],
        "batch": round(batch) if batch else None,
        "sample_bytes": size / batch if batch else None,
        "replayed_batches": max(map(len, kept)),
    }


def _describe_loader(feed: Feed) -> dict[str, Any]:
    """Fields of ``records.Loader``."""
    kept, real = feed.ring.batches, getattr(feed, "loader", None)
    counts = [sum(1 for _ in batches.iter_tensors(batch)) for batch in kept]
    sizes = [batches.count_bytes(batch) for batch in kept]
    facts: dict[str, Any] = {
        "kind": feed.kind,
        "batches_per_step": feed.per_step,
        "startup_seconds": feed.learned.startup,
        "remade": feed.learned.is_remade,
        "on_device": any(map(batches.list_devices, kept)),
        "tensors_per_batch": fmean(counts) if counts else None,
        "array_bytes_per_batch": fmean(map(batches.count_array_bytes, kept)) if kept else None,
        "batch_spread": pstdev(sizes) / fmean(sizes) if len(sizes) > 2 and any(sizes) else None,
    }
    if real is None:
        return facts
    samples = None
    with suppress(TypeError):  # an iterable without a length
        samples = len(real.dataset)
    method = None
    if real.num_workers:
        method = (real.multiprocessing_context or multiprocessing).get_start_method()
    return facts | {
        "workers": real.num_workers,
        "prefetch_factor": real.prefetch_factor,
        "persistent_workers": real.persistent_workers,
        "pin_memory": real.pin_memory,
        "samples": samples,
        "in_order": getattr(real, "in_order", None),
        "start_method": method and str(method),
        "samples_at": line_of_samples(real.dataset),
        "draw_seconds": getattr(feed, "draw_seconds", None),
    }


def line_of_samples(dataset: Any) -> str | None:
    """Where the script's own data set makes a sample; of one around another the inner one's."""
    for _ in range(_LAYERS):
        method = getattr(type(dataset), "__getitem__", None) or getattr(
            type(dataset), "__iter__", None
        )
        code = getattr(method, "__code__", None)
        if code is not None and is_own(code.co_filename):
            return f"{path_from_here(code.co_filename)}:{code.co_firstlineno}"
        inner = getattr(dataset, "dataset", None)
        if inner is None:
            return None
        dataset = inner
    return None


def _token_facts(kept: list[Any], counts: list[int | None]) -> dict[str, Any]:
    """Of a job with one loader, whose samples and tokens can both be counted."""
    tokens = [batches.count_tokens(batch) for batch in kept]
    known = [held for held in tokens if held is not None]
    if not all(counts) or len(known) < len(tokens):
        return {}
    total = sum(held for held, _ in known)
    real = [own for _, own in known]
    padding = None if None in real else 1 - sum(filter(None, real)) / total
    return {"tokens_per_sample": total / sum(filter(None, counts)), "padding": padding}


def affordable_looks(step_seconds: float, budget: float) -> int:
    """Steps in which gradients are looked at; one is wanted whatever it takes, for the exchange is looked at too."""
    if step_seconds <= 0:
        return MAX_LOOKS
    return max(1, int(min(MAX_LOOKS, _looks_budget(budget) / step_seconds)))


def _looks_budget(budget: float) -> float:
    return max(_MIN_SECONDS, _SHARE * budget)


def count_operators(rank: OwnRank) -> Generator[None, None, Learned]:
    """One step."""
    counter = OperatorCounter(_looks_budget(rank.orders.budget))
    if rank.leads:
        counter.begin()
    try:
        yield
    finally:
        counter.end()
    learned: Learned = {"flops_per_step": counter.flops, "operators": counter.table()}
    learned["recomputes"] = counter.recomputes
    if counter.why is not None:
        learned |= _mark_unrecorded("operators", counter.why)
    return learned


def time_gradients(rank: OwnRank) -> Generator[None, None, GradientClock]:
    """One step, under scope self."""
    clock = GradientClock(trained_parameters(rank.optimizer))
    clock.begin()
    try:
        yield
    finally:
        clock.end()
    return clock


def combine_gradients(seen: list[GradientClock]) -> Learned:
    """What several looks at the gradients tell together."""
    try:
        gradients = combine_readiness([clock.rows for clock in seen])
        learned: Learned = {"gradients": gradients, "buckets": list_buckets(gradients)}
    except (
        Exception
    ) as error:  # of a device's events, or of a DistributedDataParallel of another version
        return _mark_unrecorded("ready_steps", f"{type(error).__name__}: {str(error)[:200]}")
    why = next((clock.why for clock in seen if clock.why is not None), None)
    if why is None and len(seen) < 2:
        why = "steps are so long that only one was looked at, which tells no spread"
    return learned if why is None else learned | _mark_unrecorded("ready_steps", why)


def combine_facts(rank: OwnRank, *learned: Learned) -> JobFacts:
    """What all looks have found, and what the optimizer keeps."""
    facts = {name: value for part in learned for name, value in part.items()}
    facts["unrecorded"] = {
        name: why for part in learned for name, why in part.get("unrecorded", {}).items()
    }
    return JobFacts(**{"optimizer_bytes": optimizer_bytes(rank.optimizer), **facts})


def _mark_unrecorded(fact: str, why: str) -> Learned:
    return {"unrecorded": {fact: f"not recorded: {why}"}}


TOO_LONG = _mark_unrecorded(
    "operators", "a step takes too much of the budget to take another one for it"
)
EXCHANGING = _mark_unrecorded(
    "ready_steps", "the exchange of this job cannot be switched off, and delays its gradients"
)
