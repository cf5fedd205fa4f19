"""One rank's trace into steps, and each step into classes of time, by unions of intervals that add up to it exactly.

A device's step reaches from the end of the work that the step before launched to the end of the work that it launched
itself; a step of CPUs is its annotation. Time is compute, else exchange, else waiting, else copies; what is left is
idle, which is what the training thread did meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stash.trace.kernels import CLASSES, COMPUTE, COPY, EXCHANGE, classes_of
from stash.trace.reader import CALLED
from stash.trace.spans import (
    CALL,
    DEVICE,
    FRAME,
    NONE,
    NOTE,
    Nanoseconds,
    RankTrace,
    TraceSpans,
    common,
    join_sets,
    subtract_set,
    window,
)

PARTS = ("compute", "host", "loop", "transfer", "contention", "bubble", "exchange", "input")
"""Of a step, as they are listed."""
_STEPS = (
    re.compile(r"^ProfilerStep#(\d{1,12})$"),
    re.compile(r"^(?:train(?:ing)?[\W_]*)?(?:step|iter(?:ation)?)[\W_]*(\d{1,12})$", re.IGNORECASE),
    re.compile(r"^(?:train(?:ing)?[\W_]*)?(?:step|iteration)$", re.IGNORECASE),
)
"""Names of a step's annotation, with its number; the first of them that a trace has."""
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_INPUT = re.compile(
    r"enumerate\(DataLoader\)|DataLoader.*__next__|(?i:data_?loading|load_?batch|next_?batch)"
)
_EXCHANGE_NOTE = re.compile(
    r"(nccl|gloo|mpi|ucc|xccl|hccl|c10d|deep_ep|symm_mem|nvshmem)(:|::|_)", re.IGNORECASE
)
_CALLED = re.compile("^" + CALLED)
LAUNCH = re.compile(r"launch(?!host)", re.IGNORECASE)
_PAUSE = 1_000_000
"""Nanoseconds without an operation of the training thread, or a launch, from which on a pause is the script's own."""
_LOST_LAUNCHES = 0.02
"""Of a step's launches whose kernels are missing, from which on the step is incomplete."""
_MOMENTS = 50
"""The longest of idle intervals, by which a place is found."""
_OWN_FRAME = re.compile(r"^(?!torch/|<|nn\.Module|contextlib\.py|threading\.py|typing\.py)")


@dataclass(frozen=True)
class StepWindow:
    """One step on one rank's clock, in nanoseconds."""

    number: int
    start: int
    stop: int
    why_incomplete: str = ""

    @property
    def nanoseconds(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class RankTimes:
    """What one rank's time is made of: interval sets of each class over the whole trace, and its steps."""

    trace: RankTrace
    steps: tuple[StepWindow, ...]
    classes: tuple[str, ...]
    """Of the trace's names."""
    collectives: TraceSpans
    """In order of start."""
    collective_steps: tuple[int, ...]
    """The number of the step that each belongs to; -1 outside of steps."""
    sets: Mapping[str, Nanoseconds]
    """Compute, exchange, copy and input, each as a whole."""
    thread: Nanoseconds
    """What the training thread ran; of a device, calls of any thread."""
    launched: Nanoseconds
    """When each of the device's spans was; -1 where no call says so."""
    kinds: NDArray[np.int8]
    """The class of each of the device's spans, by its place in ``CLASSES``."""


def rank_times(trace: RankTrace, whole: bool = False, more: Iterable[str] = ()) -> RankTimes:
    """The classes and steps of one rank; ``more`` are patterns of kernels that communicate. Raises UserError."""
    classes = classes_of(trace.names, more)
    notes = trace.spans[NOTE]
    device = trace.spans[DEVICE]
    thread = _training_thread(trace)
    inputs = spans_named(trace, notes, _INPUT).intervals()
    launched = _launch_times(trace)
    kinds = _device_classes(trace, classes, launched)
    if trace.has_device:
        exchanges = kinds == CLASSES.index(EXCHANGE)
        collectives = device.select(exchanges)
        sets = {name: device.intervals(kinds == place) for place, name in enumerate(CLASSES)}
        ran = trace.spans[CALL].intervals()
        moments = launched[exchanges]
    else:
        collectives = notes.select((np.array([*classes, COMPUTE]) == EXCHANGE)[notes.label])
        called = spans_named(trace, notes, _CALLED)
        if len(called) == len(collectives) and (called.start <= collectives.start).all():
            # of threads of their own, each since it was called
            collectives = replace(collectives, start=called.start)
        threads = set(trace.ops) - set(collectives.track.tolist()) or set(trace.ops)
        ran = trace.ops.get(thread, NONE)
        computing = subtract_set(join_sets(trace.ops[track] for track in threads), inputs)
        sets = {COMPUTE: computing, EXCHANGE: collectives.intervals(), COPY: NONE}
        moments = collectives.start
    host = _host_steps(trace, whole)
    steps = _device_steps(trace, host, launched, whole) if trace.has_device else tuple(host)
    if trace.damage and steps and not whole:
        steps = (*steps[:-1], replace(steps[-1], why_incomplete="the trace is not whole"))
    starts = np.array([step.start for step in host], dtype=np.int64)
    at = np.searchsorted(starts, moments, side="right") - 1
    return RankTimes(
        trace=trace,
        steps=steps,
        classes=tuple(classes),
        collectives=collectives,
        collective_steps=tuple(
            host[index].number if index >= 0 and moment < host[index].stop else -1
            for index, moment in zip(at.tolist(), moments.tolist(), strict=True)
        ),
        sets={**sets, "input": inputs},
        thread=ran,
        launched=launched,
        kinds=kinds,
    )


def _training_thread(trace: RankTrace) -> int:
    """The thread that has the steps' annotations, else the one with most notes or calls; -1 without any."""
    notes = _step_notes(trace)
    calls = trace.spans[CALL]
    if len(notes):
        return int(notes.track[0])
    tracks, counts = np.unique(
        calls.track if len(calls) else trace.spans[NOTE].track, return_counts=True
    )
    return int(tracks[counts.argmax()]) if len(tracks) else -1


def spans_named(trace: RankTrace, spans: TraceSpans, pattern: re.Pattern[str]) -> TraceSpans:
    """Those whose name the pattern matches."""
    return spans.select(is_named(trace, spans, pattern))


def is_named(trace: RankTrace, spans: TraceSpans, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Of each span whether the pattern matches its name."""
    matches = np.array([pattern.search(name) is not None for name in trace.names], dtype=bool)
    return matches[spans.label]


def _step_notes(trace: RankTrace) -> TraceSpans:
    """The annotations of steps, of the first kind that there is."""
    kinds = (spans_named(trace, trace.spans[NOTE], pattern) for pattern in _STEPS)
    return next(filter(len, kinds), trace.spans[NOTE].select(np.empty(0, dtype=np.int64)))


def _launch_times(trace: RankTrace) -> Nanoseconds:
    """When each of the device's spans was launched; -1 where no call says so."""
    calls = trace.spans[CALL]
    device = trace.spans[DEVICE]
    order = np.argsort(calls.link, kind="stable")
    order = order[calls.link[order] >= 0]
    if not len(order):
        return np.full(len(device), -1, dtype=np.int64)
    links = calls.link[order]
    at = np.minimum(np.searchsorted(links, device.link), len(links) - 1)
    return np.where(links[at] == device.link, calls.start[order[at]], -1)


def _device_classes(
    trace: RankTrace, classes: Sequence[str], launched: Nanoseconds
) -> NDArray[np.int8]:
    """The class of each of the device's spans: by its name, else by the annotation that it was launched in."""
    device = trace.spans[DEVICE]
    notes = trace.spans[NOTE]
    kinds = np.array([CLASSES.index(each) for each in classes], dtype=np.int8)[device.label]
    has_facts = np.isin(device.label, list(trace.facts))
    inside = spans_named(trace, notes, _EXCHANGE_NOTE).intervals()
    if len(inside):
        at = np.searchsorted(inside[:, 0], launched, side="right") - 1
        has_facts |= (at >= 0) & (launched >= 0) & (launched < inside[at, 1])
    kinds[has_facts & (kinds == CLASSES.index(COMPUTE))] = CLASSES.index(EXCHANGE)
    return kinds


# Steps


def _host_steps(trace: RankTrace, whole: bool) -> list[StepWindow]:
    """Steps as the training thread has them."""
    if whole:
        return [_everything(trace)]
    steps = _step_notes(trace)
    found: list[StepWindow] = []
    for start, stop, label in zip(
        steps.start.tolist(), steps.stop.tolist(), steps.label.tolist(), strict=True
    ):
        number = re.search(r"\d+$", trace.names[label])
        found.append(StepWindow(int(number[0]) if number else len(found), start, stop))
    if found:
        # Each number once, without overlaps.
        kept: list[StepWindow] = []
        for step in sorted(found, key=lambda each: each.start):
            if all(step.number != each.number for each in kept) and (
                not kept or step.start >= kept[-1].stop - _PAUSE
            ):
                kept.append(step)
        return kept
    optimizers = spans_named(trace, trace.spans[NOTE], _OPTIMIZER)
    if len(optimizers) > 1:
        first = optimizers.select(optimizers.label == optimizers.label[0])
        ends = [int(optimizers.start[0]), *first.stop.tolist()]
        return [StepWindow(n, a, b) for n, (a, b) in enumerate(pairwise(ends[1:])) if b > a]
    return [_everything(trace)]


def _everything(trace: RankTrace) -> StepWindow:
    """All of a trace as one step: of a device, from its first work to its last."""
    host = join_sets([trace.spans[NOTE].intervals(), *trace.ops.values()])
    covered = trace.spans[DEVICE].intervals() if trace.has_device else host
    return (
        StepWindow(0, int(covered[0, 0]), int(covered[-1, 1]))
        if len(covered)
        else StepWindow(0, 0, 0)
    )


def _device_steps(
    trace: RankTrace, host: Sequence[StepWindow], launched: Nanoseconds, whole: bool
) -> tuple[StepWindow, ...]:
    """Steps as the device has them."""
    device = trace.spans[DEVICE]
    calls = trace.spans[CALL]
    if whole or host == [_everything(trace)]:
        return tuple(host)
    is_launch = is_named(trace, calls, LAUNCH) & (calls.link >= 0)
    launches = calls.start[is_launch]
    lost = ~np.isin(calls.link[is_launch], device.link)
    reached = int(
        device.stop[(launched >= 0) & (launched < host[0].start)].max(initial=host[0].start)
    )
    found = []
    for step in host:
        own = (launched >= step.start) & (launched < step.stop)
        inside = (launches >= step.start) & (launches < step.stop)
        missing = int((lost & inside).sum())
        why = ""
        if not own.any():
            why = "it launched nothing on the device"
        elif missing > _LOST_LAUNCHES * int(inside.sum()):
            why = f"{missing} of its {int(inside.sum())} launches have no kernel in the trace"
        stop = max(
            reached, int(device.stop[own].max(initial=step.start if own.any() else step.stop))
        )
        found.append(StepWindow(step.number, reached, stop, why))
        reached = stop
    return tuple(found)


# Attribution


def parts_of(
    times: RankTimes, step: StepWindow, waits: Mapping[str, Nanoseconds]
) -> dict[str, Nanoseconds]:
    """The interval set of each part of a step; none overlaps another, and together they cover it.

    ``waits`` are the parts of collectives that waited, by the part that they are: what is left of them is exchange.
    """
    left = window(step.start, step.stop)
    waiting = join_sets(waits.values())
    exchange = subtract_set(times.sets[EXCHANGE], waiting)
    inputs = times.sets["input"]
    order = [
        ("compute", times.sets[COMPUTE]),
        ("exchange", exchange),
        *waits.items(),
        ("transfer", times.sets[COPY]),
    ]
    order = order if times.trace.has_device else [("input", inputs), *order]
    found = dict.fromkeys(PARTS, NONE)
    for name, covered in order:
        found[name] = common(left, covered)
        left = subtract_set(left, covered)
    idle = idle_parts(times, left)
    return {**found, **idle, "input": join_sets((found["input"], idle["input"]))}


def idle_parts(times: RankTimes, idle: Nanoseconds) -> dict[str, Nanoseconds]:
    """Of time without work of the device: input, the script's own lines, as nothing runs for long, and other."""
    inputs = times.sets["input"]
    ends = idle.ravel()[[0, -1]] + (-_PAUSE, _PAUSE) if len(idle) else (0, 0)
    around = window(
        max(times.steps[0].start, int(ends[0])), min(times.steps[-1].stop, int(ends[1]))
    )
    gaps = subtract_set(subtract_set(around, times.thread), inputs)
    long = gaps[gaps[:, 1] - gaps[:, 0] >= _PAUSE]
    rest = subtract_set(idle, inputs)
    return {
        "input": common(idle, inputs),
        "loop": common(rest, long),
        "host": subtract_set(rest, long),
    }


def place_of(times: RankTimes, moments: Nanoseconds) -> str:
    """The script's innermost function that most of this time is in, as FILE:LINE NAME; empty without stacks."""
    frames = spans_named(times.trace, times.trace.spans[FRAME], _OWN_FRAME)
    spent: dict[int, int] = {}
    longest = moments[np.argsort(moments[:, 0] - moments[:, 1], kind="stable")[:_MOMENTS]]
    for start, stop in longest.tolist():
        middle = (start + stop) // 2
        around = np.flatnonzero((frames.start <= middle) & (frames.stop > middle))
        if len(around):
            inner = int(frames.label[around[np.argmin(frames.stop[around] - frames.start[around])]])
            spent[inner] = spent.get(inner, 0) + stop - start
    if not spent:
        return ""
    return re.sub(
        r"\((\d+)\): (.*)", r":\1 \2", times.trace.names[max(spent, key=lambda label: spent[label])]
    )
