"""The critical path of a step: what its end waited for, walked back over all ranks. Exposed is not blocking.

Work of a device waits for the work before it on its stream, and for its launch; where both were there long before,
for the work of another stream that ended last. A launch waits for the latest call that waited for the device, else
for the thread since the step began. A collective waits for the rank that arrives last, and the path goes on there,
on that rank's clock. A trace does not hold the events between streams: what is said of them is the likeliest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stash.trace.kernels import CLASSES, COPY, EXCHANGE
from stash.trace.meetings import JobTimes, Meeting
from stash.trace.spans import CALL, DEVICE, Nanoseconds, TraceSpans, join_sets, length, window
from stash.trace.step_parts import LAUNCH, RankTimes, StepWindow, idle_parts, is_named

_BLOCKS = re.compile(r"Synchronize|^(?:cuda|cu|hip)Memcpy(?!\w*Async)")
"""Calls that wait for the device."""
_LATENCY = 20_000
"""Nanoseconds from what work waits for to its start, up to which nothing else is looked for."""
_NONE = -1


_Span = tuple[int, int]


@dataclass(frozen=True)
class _RankWaits:
    """What one rank's work waited for; spans of its device are told by their places."""

    times: RankTimes
    before: NDArray[np.int32]
    """The span that each waited for; ``_NONE``: the thread, since the step began."""
    by_stop: NDArray[np.int32]
    """All spans in the order of their ends."""
    meetings: Mapping[_Span, Meeting]
    """By this rank's part of them."""
    places: Mapping[_Span, int]
    """Of its collectives."""
    windows: Mapping[int, StepWindow]


def critical_paths(job: JobTimes) -> dict[int, dict[str, int]]:
    """Nanoseconds of each part on the path of each step that counts.

    Empty where a rank's trace has no device, or no call that waits for it: what launches waited for is unknown then.
    """
    if not all(
        is_named(times.trace, times.trace.spans[CALL], _BLOCKS).any()
        for times in job.ranks.values()
    ):
        return {}
    waits = {rank: _rank_waits(rank, job) for rank in job.ranks}
    return {number: _path(waits, job, number) for number in job.steps}


def _rank_waits(rank: int, job: JobTimes) -> _RankWaits:
    times = job.ranks[rank]
    device = times.trace.spans[DEVICE]
    launched = times.launched
    by_stop = np.argsort(device.stop, kind="stable").astype(np.int32)
    order = np.lexsort((device.start, device.track))
    in_stream = np.full(len(device), _NONE, dtype=np.int32)
    is_next = device.track[order[1:]] == device.track[order[:-1]]
    in_stream[order[1:][is_next]] = order[:-1][is_next]
    known = np.maximum(_stops(device, in_stream), launched)
    other = _last_ended(device, by_stop, device.start)
    is_other = (_stops(device, other) > known) & (device.start - known > _LATENCY)
    # The latest call that blocked before each launch: the span that it had waited for.
    calls = times.trace.spans[CALL]
    launchers = np.unique(calls.track[is_named(times.trace, calls, LAUNCH)])
    looks = calls.select(is_named(times.trace, calls, _BLOCKS) & np.isin(calls.track, launchers))
    looks = looks.select(np.argsort(looks.stop, kind="stable"))
    ended = _last_ended(device, by_stop, looks.stop)
    has_blocked = _stops(device, ended) >= looks.start
    moments = looks.stop[has_blocked]
    ended = np.append(ended[has_blocked], np.int32(_NONE))
    released = ended[np.searchsorted(moments, launched, side="right") - 1]
    in_time = np.where(launched > _stops(device, in_stream), released, in_stream)
    exchanges = np.flatnonzero(times.kinds == CLASSES.index(EXCHANGE)).tolist()
    return _RankWaits(
        times=times,
        before=np.where(is_other, other, in_time),
        by_stop=by_stop,
        meetings={
            meeting.spans[rank]: meeting for meeting in job.meetings if rank in meeting.spans
        },
        places={(device.start.item(place), device.stop.item(place)): place for place in exchanges},
        windows={step.number: step for step in times.steps},
    )


def _stops(device: TraceSpans, places: NDArray[np.int32]) -> Nanoseconds:
    """When these spans end; -1 for none."""
    return np.where(places == _NONE, -1, device.stop[places])


def _last_ended(
    device: TraceSpans, by_stop: NDArray[np.int32], moments: Nanoseconds
) -> NDArray[np.int32]:
    """Which span was the last to end by each moment."""
    at = np.searchsorted(device.stop[by_stop], moments, side="right") - 1
    return np.where(at < 0, np.int32(_NONE), by_stop[at])


def _path(waits: Mapping[int, _RankWaits], job: JobTimes, number: int) -> dict[str, int]:
    """The parts of one step's path."""
    spent: Counter[str] = Counter()
    idle: dict[int, list[Nanoseconds]] = defaultdict(list)
    rank = _last_rank(job, waits, number)
    own = waits[rank]
    moment = waits[rank].windows[number].stop
    place = _last_ended(own.times.trace.spans[DEVICE], own.by_stop, np.array([moment])).item(0)
    for _ in range(sum(len(each.before) for each in waits.values())):  # no span is on it twice
        device = own.times.trace.spans[DEVICE]
        begin = own.windows[number].start
        if place == _NONE or device.stop.item(place) <= begin:
            break
        start = device.start.item(place)
        stop = device.stop.item(place)
        kind = CLASSES[own.times.kinds.item(place)]
        idle[rank].append(window(stop, moment))
        meeting = own.meetings.get((start, stop)) if kind == EXCHANGE else None
        if meeting is None or meeting.last == rank:
            spent[kind] += max(0, min(moment, stop) - max(start, begin))
            moment = max(start, begin)
        else:
            spent[kind] += meeting.transfer
            rank = meeting.last
            own = waits[rank]
            moment = meeting.spans[rank][0]
            place = own.places[meeting.spans[rank]]
        place = own.before.item(place)
    idle[rank].append(window(own.windows[number].start, moment))
    for one, intervals in idle.items():
        spent.update(
            {
                part: length(found)
                for part, found in idle_parts(waits[one].times, join_sets(intervals)).items()
            }
        )
    return {"transfer" if part == COPY else part: time for part, time in spent.items()}


def _last_rank(job: JobTimes, waits: Mapping[int, _RankWaits], number: int) -> int:
    """The rank that goes on longest after its last collective of the step: no clocks need agree for that."""
    windows = {rank: each.windows[number] for rank, each in waits.items()}
    ended = {rank: step.start for rank, step in windows.items()}
    for meeting in job.meetings:
        if meeting.step == number:
            for rank, (_, stop) in meeting.spans.items():
                ended[rank] = max(ended[rank], stop)
    return max(ended, key=lambda rank: windows[rank].stop - ended[rank])
