"""One answered question: a forecast next to its measurement, what limits it, and what the profile cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from stash.analysis.breakdown import SMALL_SHARE, Breakdown, Missing, Stall
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.predict.changed_job import ChangedJob, change_job
from stash.predict.changes import MAX_NODES, Alteration, Times
from stash.predict.cluster import CALLED
from stash.predict.forecast import Forecast
from stash.predict.forecasting import forecast_of, job_stalls, lost_stalls, what_if
from stash.predict.memory import Fit, memory_fit
from stash.predict.passes import Base, profile_command
from stash.predict.sufficiency import Sufficiency, assess_sufficiency

WORTH = 0.05
"""Of samples per second: a doubling that brings less does not pay."""
WORTH_OF_DEVICES = 0.5
"""The same of twice the devices, which would double the speed if nothing were lost."""
_DOUBLINGS = 12
_MAX = {
    "nodes": MAX_NODES,
    "gpus": 16,
    "cpus": 1024,
    "workers": 128,
    "cache": 1.0,
    "batch": 65_536,
    "accumulate": 1024,
    "compress": 1024.0,
}
_LEAST = {"compress": 1.0}
_SCALABLE = (
    "network",
    "nodes",
    "gpus",
    "cpus",
    "workers",
    "cache",
    "disk",
    "memory",
    "batch",
    "compress",
    "accumulate",
)


@dataclass(frozen=True)
class Diminishing:
    """Where twice as much of something stops to pay."""

    option: str
    value: float
    """Doubled from here on it brings less than ``gain``."""
    gain: float


def next_bottleneck(forecast: Forecast) -> Stall:
    """The largest stall of the forecast, or compute where all are small."""
    stalls = [stall for stall in forecast.breakdown.stalls if stall.name != "compute"]
    largest = max(stalls, key=lambda stall: stall.seconds, default=forecast.breakdown.stalls[0])
    return largest if largest.share >= SMALL_SHARE else forecast.breakdown.stalls[0]


def diminishing(base: Base, wanted: Alteration) -> tuple[Diminishing, ...]:
    """Find, for each changed number, from which value on doubling it stops to pay, all other changes as they are.

    Counted in samples per second, from the value asked for downwards or upwards; what never stops is left out.
    """
    found = []
    for name in _SCALABLE:
        worth = WORTH_OF_DEVICES if name in ("nodes", "gpus") else WORTH
        value = getattr(wanted, name)
        counted = value and not isinstance(value, Times)
        stop = _stopping_value(base, wanted, name, float(value), worth) if counted else None
        if stop is not None:
            found.append(Diminishing(name, stop, worth))
    return tuple(found)


def _stopping_value(
    base: Base, wanted: Alteration, name: str, value: float, worth: float
) -> float | None:
    whole = isinstance(getattr(wanted, name), int)
    least, most = 1.0 if whole else _LEAST.get(name, 0.0), float(_MAX.get(name, float("inf")))
    values = [value * 2.0**power for power in range(-_DOUBLINGS // 2, _DOUBLINGS // 2)]
    speed = lru_cache(
        lambda amount: _samples_per_second(base, wanted, name, int(amount) if whole else amount)
    )
    for each in sorted({float(round(each)) if whole else each for each in values}):
        if least <= each <= most / 2:
            now, doubled = speed(each), speed(2 * each)
            if now is not None and doubled is not None and doubled < now * (1 + worth):
                return each
    return None


def _samples_per_second(base: Base, wanted: Alteration, name: str, value: float) -> float | None:
    try:
        forecast = what_if(base, wanted.replace_facts(**{name: value}))
    except UserError:
        return None
    if lost_stalls(base, forecast):
        return None
    return forecast.breakdown.samples_per_second or 1 / forecast.breakdown.step_seconds


def effects_on_training(base: Base, wanted: Alteration, forecast: Forecast) -> Iterator[str]:
    """What the changes do to training itself: one sentence each."""
    before, after = base.breakdown.samples_per_step, forecast.breakdown.samples_per_step
    if before and after and round(before) != round(after):
        times = f"{before / after:.3g}"
        yield (
            f"a step trains on {after:,.0f} samples instead of {before:,.0f}, and an epoch has {times} times as many "
            "steps: tune the learning rate again"
        )
    if wanted.compress is not None and wanted.compress > 1:
        yield "gradients lose digits on the way, so compare the loss before relying on it"
    if wanted.dtype == "amp":
        yield "passes compute in 16 bits, so compare the loss, and scale it if gradients underflow"


# Which questions a profile cannot answer for want of a fact. Profiles of schemas 1 and 2 were made before these were
# recorded; a newer one says itself why it lacks one.

_OLD = "it was made by a Stash that did not record this"
_UNSEEN = "none of its blocks showed this"


class OpenQuestion(NamedTuple):
    """One question, and what stands in its way."""

    question: str
    fact: str
    """The field of the artefact that is empty."""
    why: str
    command: str
    """What measures it."""


class _Fact(NamedTuple):
    """A field that a question needs."""

    name: str
    question: str
    recorded: Callable[[Profile], bool]
    concerns: Callable[[Profile], bool] = lambda profile: True
    """Whether a job like this one has such a fact at all."""


_FACTS = (
    _Fact(
        "operators",
        "what a step would take at least on a faster device, by launching its operators",
        lambda profile: bool(profile.workload.operators),
    ),
    _Fact(
        "ready_steps",
        "how unevenly gradients become ready, and so how sure a forecast of their exchange is",
        lambda profile: any(
            len(gradient.ready_steps) > 1 for gradient in profile.workload.gradients
        ),
        lambda profile: profile.world_size > 1,
    ),
    _Fact(
        "workers",
        "how evenly the loader's workers make batches, and so how many more would help",
        lambda profile: bool(profile.workers),
        lambda profile: bool(profile.workload.loaders),
    ),
    _Fact(
        "memory",
        "which batch fits into a device's memory",
        lambda profile: any(held.allocated_bytes is not None for held in profile.memory),
        lambda profile: any(rank.device.startswith("cuda") for rank in profile.ranks),
    ),
)


def open_questions(profile: Profile) -> tuple[OpenQuestion, ...]:
    """What this profile cannot tell; empty of one that has every fact that its job has."""
    return tuple(
        OpenQuestion(
            fact.question, fact.name, _why_open(profile, fact.name), profile_command(profile)
        )
        for fact in _FACTS
        if fact.concerns(profile) and not fact.recorded(profile)
    )


def _why_open(profile: Profile, name: str) -> str:
    reason = profile.workload.unrecorded.get(name)
    if reason is not None:
        return reason
    newer = bool(profile.workload.unrecorded) or any(fact.recorded(profile) for fact in _FACTS)
    return _UNSEEN if newer else _OLD


@dataclass(frozen=True)
class WhatIf:
    """What was asked of which profile, and the answer."""

    workload: str
    typed: Mapping[str, str]
    """Options as they were given, by name."""
    measured: Breakdown
    forecast: Forecast
    lost: tuple[Missing, ...]
    """Stalls that the profile has and that cannot be predicted there: then the step is at least what the others
    add up to."""
    next: Stall
    enough: tuple[Diminishing, ...]
    data: Sufficiency | None
    fit: Fit | None
    on_device: bool
    """Whether the job runs on accelerators."""
    epochs: tuple[float, ...]
    """Seconds of the first epochs on several nodes, whose page caches fill as they shuffle; empty elsewhere."""
    training: tuple[str, ...]
    unanswered: tuple[OpenQuestion, ...]
    """Questions that this profile lacks a fact for."""
    as_measured: bool
    """Whether what was asked for is what was measured, so that there is nothing to predict."""
    devices: tuple[int, int]
    """Of a node, as they were profiled and as they are asked about."""


_EPOCHS = 4
"""From the fifth on an epoch on two nodes is within a tenth of one from memory."""


def _first_epochs(job: ChangedJob) -> tuple[float, ...]:
    """Seconds of each of them; empty where all are alike, or it is not known how data fit into memory."""
    counts = [loader.samples for loader in job.base.profile.workload.loaders[:1] if loader.samples]
    if job.target.nodes == 1 or not counts or job.base.breakdown.stall("fetch") is None:
        return ()
    seconds = []
    for epochs in range(_EPOCHS):
        later = job.after(epochs)
        drawn = None if later is None else job_stalls(later)
        if drawn is None or not drawn.samples or drawn.unknown:
            return ()
        seconds.append(counts[0] / drawn.samples * float(drawn.step.mean()))
    return tuple(seconds) if seconds[0] > (1 + SMALL_SHARE) * seconds[-1] else ()


def answer_question(base: Base, wanted: Alteration) -> WhatIf:
    """The whole answer to one question; raises UserError."""
    job = change_job(base, wanted)
    forecast = forecast_of(base, job_stalls(job))
    if wanted.transport == "rdma" and forecast.target.transport_name == CALLED["tcp"]:
        raise UserError(
            f"--transport {wanted.texts['transport']}: {forecast.target.name} has neither EFA nor InfiniBand in the "
            "catalog; leave it out for sockets"
        )
    unknown = lost_stalls(base, forecast)
    return WhatIf(
        workload=base.profile.workload.name,
        typed=wanted.texts,
        measured=base.breakdown,
        forecast=forecast,
        lost=unknown,
        next=next_bottleneck(forecast),
        enough=() if unknown else diminishing(base, wanted),
        data=assess_sufficiency(job),
        fit=memory_fit(job),
        epochs=() if unknown else _first_epochs(job),
        on_device=base.target.device is not None,
        training=tuple(effects_on_training(base, wanted, forecast)),
        unanswered=open_questions(base.profile),
        as_measured=bool(wanted.names)
        and forecast.target == base.target
        and all(part.origin == "measured" for part in forecast.grounds),
        devices=(base.target.devices, forecast.target.devices),
    )
