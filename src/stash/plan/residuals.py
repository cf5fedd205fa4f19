"""How earlier forecasts turned out, given back to later ones; and the facts that explain a miss.

They shift the intervals of later forecasts, and shrink or widen them.

A *residual* is one stall of one plan and what was measured of it on the machine that was rented: r =
ln(measured / middle of the forecast), with s, the standard deviation that the forecast claimed of that logarithm,
and m, that of the measurement. z = r / s says how wrong a forecast was in its own units; were all intervals as
honest as they claim, z would be standard normal. Part of such an error is the model's, the same wherever it is
used, and part is each machine's own:

    zᵢ = μ + εᵢ,   ε ~ N(0, σ²),   μ ~ N(0, σ²/κ₀),   σ² ~ scaled inverse χ²(ν₀, κ₀/(κ₀+1)),

so that without residuals z is as the forecast claims. With n of them the next one's error is Student's t with ν₀
+ n degrees of freedom around μₙ (Gelman et al., Bayesian Data Analysis, 3rd ed., §3.3):

    κₙ = κ₀ + n,   μₙ = n z̄ / κₙ,   scale² = σₙ² (1 + 1/κₙ),
    (ν₀ + n) σₙ² = ν₀ κ₀/(κ₀+1) + Σ(zᵢ − z̄)² + κ₀ n z̄² / κₙ.

A later forecast of the same stall and origin is moved by μₙ of its own standard deviations and made as much wider
or narrower as the 95 % interval of that t is than the one without residuals. Each residual counts for s²/(s² +
m²) of one, since the rest is noise of its measurement, and those of one machine for one together: what is its own
does not average out there. Residuals of other stalls, and of other origins, say nothing. Simulated, intervals of
honest forecasts hold 92 to 95 % afterwards at 0.7 to 0.85 of their width; of forecasts three times too sure of
themselves, which held 49 %, 79 % after ten residuals (``test_residuals.py``). Knows no profile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
from scipy.special import stdtrit

from stash.core.formatting import Unit, listed, plain, quantity
from stash.core.intervals import Interval, change
from stash.core.records.base import Record
from stash.plan.bill import plan_fact
from stash.plan.records import PlanFact, Setting, StallShare
from stash.predict.collective_times import facts_of
from stash.predict.draws import Array, Draws, Quantity, Used, intervals
from stash.predict.forecast import Predicted, StallDraws
from stash.predict.passes import Base

OWN_WEIGHT = 10.0
"""ν₀: residuals that a forecast's claim of its own spread counts for. As many as a typical spread counts for in
``base/stats/differences``; an assumption, not a measurement."""
SHARED_WEIGHT = 1.0
"""κ₀: half of a forecast's variance is taken to be its model's, half its machine's: an assumption likewise."""
_NORMAL = 1.959964
_MIN_WITHOUT_CLAIM = 2
"""Machines from which a spread can be estimated where the forecast claims none."""


class Residual(Record):
    """One stall of one forecast, and what was measured of it."""

    stall: str
    origin: str
    """Of the forecast: ``measured``, ``scaled`` or ``data sheet``."""
    machine: str
    """``"2 × p3.8xlarge"``."""
    log_ratio: float
    """ln(measured / the middle of the forecast)."""
    claimed: float | None
    """Standard deviation of the forecast's logarithm; ``None`` where its spread was unknown."""
    error: float
    """Standard deviation of the measurement's logarithm."""

    @property
    def ratio(self) -> float:
        """Measured over forecast."""
        return math.exp(self.log_ratio)


class Residuals(Record):
    """What is given back, and what could not be, in a sentence each."""

    found: tuple[Residual, ...] = ()
    left_out: tuple[str, ...] = ()


class Adjustment(NamedTuple):
    """What residuals make of a forecast, in units of the standard deviation that it claims."""

    shift: float
    widening: float
    machines: int


def residual(stall: str, origin: str, machine: str, planned: Interval, measured: Interval) -> Residual | str:
    """Measure one stall's residual, in seconds per step; a sentence where there is none, as at or below zero.

    The middle of a forecast is that of the logarithms of its ends, since that is where half of its draws lie.
    """
    if measured.low is None or measured.high is None:
        return f"{stall} of {machine}: one round was measured, whose error is unknown"
    if measured.low <= 0 or planned.value <= 0 or (planned.low is not None and planned.low <= 0):
        return f"{stall} of {machine}: it may be zero, so there is no ratio"
    error = math.log(measured.high / measured.low) / 2 / _NORMAL
    middle, claimed = planned.value, None
    if planned.low is not None and planned.high is not None and planned.high > planned.low:
        middle = math.sqrt(planned.low * planned.high)
        claimed = math.log(planned.high / planned.low) / 2 / _NORMAL
    return Residual(
        stall=stall, origin=origin, machine=machine,
        log_ratio=math.log(measured.value / middle), claimed=claimed, error=error,
    )  # fmt: skip


def adjustment(alike: Sequence[Residual]) -> Adjustment:
    """Adjust by residuals of one stall and origin, all with a claim; with none, nothing is changed."""
    machines = _by_machine(alike)
    z = np.array([each.log_ratio / (each.claimed or 1.0) for each in machines])
    weights = np.array(
        [(each.claimed or 0.0) ** 2 / ((each.claimed or 0.0) ** 2 + each.error**2) for each in machines]
    )
    count = float(weights.sum())
    kappa, freedom = SHARED_WEIGHT + count, OWN_WEIGHT + count
    mean = float(weights @ z) / count if count else 0.0
    squares = float(weights @ (z - mean) ** 2) + SHARED_WEIGHT * count / kappa * mean**2
    variance = (OWN_WEIGHT * SHARED_WEIGHT / (SHARED_WEIGHT + 1) + squares) / freedom
    scale = math.sqrt(variance * (1 + 1 / kappa))
    return Adjustment(count * mean / kappa, scale * _arm(freedom) / _arm(OWN_WEIGHT), len(machines))


def calibrated(drawn: StallDraws, residuals: Residuals, draws: Draws) -> StallDraws:
    """The same forecast with its stalls' draws moved, narrowed or widened; draws keep their order, so pairs of
    forecasts stay paired.

    A stall whose spread is unknown gets one from two machines on: Student's prediction interval of their log
    ratios.
    """
    if not residuals.found:
        return drawn
    parts = []
    for part in drawn.parts:
        alike = [each for each in residuals.found if (each.stall, each.origin) == (part.name, part.origin)]
        if part.spread_known:
            parts.append(_moved(part, [each for each in alike if each.claimed]))
        else:
            machines = _by_machine(each for each in alike if each.claimed is None)
            parts.append(_given_a_spread(part, machines, draws))
    return replace(drawn, parts=tuple(parts))


def _moved(part: Predicted, alike: Sequence[Residual]) -> Predicted:
    if not alike or not np.ptp(part.seconds):
        return part
    change = adjustment(alike)
    positive = np.min(part.seconds) > 0  # differences may be negative: then it is seconds that are moved
    values = np.log(part.seconds) if positive else part.seconds
    middle, deviation = float(np.mean(values)), float(np.std(values))
    moved = middle + change.shift * deviation + (values - middle) * change.widening
    return _with_facts(part, np.exp(moved) if positive else moved, change.machines)


def _given_a_spread(part: Predicted, machines: Sequence[Residual], draws: Draws) -> Predicted:
    count = len(machines)
    if count < _MIN_WITHOUT_CLAIM:
        return part
    ratios = np.array([each.log_ratio for each in machines])
    arms = stdtrit(count - 1, draws.uniforms(f"residuals of {part.name}")) * math.sqrt(1 + 1 / count)
    seconds = part.seconds * np.exp(ratios.mean() + arms * ratios.std(ddof=1))
    return replace(_with_facts(part, seconds, count), spread_known=True)


def _with_facts(part: Predicted, seconds: Array, machines: int) -> Predicted:
    """With what it was before as a fact, so that residuals of a plan made with it can be found."""
    (was,) = intervals(part.seconds[np.newaxis])
    ends = {"low": was.low, "high": was.high} if part.spread_known else {}
    forecasts = "1 earlier forecast" if machines == 1 else f"{machines} earlier forecasts"
    fact = Quantity(value=was.value, origin=part.origin, source=f"moved by what {forecasts} turned out to be", **ends)
    used = Used(about=_before(part.name), unit="seconds", quantity=fact)
    return replace(part, seconds=seconds, facts=(*part.facts, used))


def before_residuals(share: StallShare) -> Interval:
    """What a plan's stall was forecast to be before residuals moved it; as it is where none did."""
    was = next((fact for fact in share.facts if fact.about == _before(share.name)), None)
    return share.seconds if was is None else Interval(value=was.value, low=was.low, high=was.high)


def _before(stall: str) -> str:
    return f"{stall} before residuals moved it"


def _by_machine(alike: Iterable[Residual]) -> list[Residual]:
    """One of each machine: the mean of its residuals, whose measurements were independent."""
    grouped: dict[str, list[Residual]] = defaultdict(list)
    for each in alike:
        grouped[each.machine].append(each)
    means = []
    for same in grouped.values():
        claims = [each.claimed for each in same if each.claimed is not None]
        update = {
            "log_ratio": math.fsum(each.log_ratio for each in same) / len(same),
            "claimed": math.fsum(claims) / len(claims) if claims else None,
            "error": math.hypot(*(each.error for each in same)) / len(same),
        }
        means.append(same[0].model_copy(update=update))
    return means


def _arm(freedom: float) -> float:
    return float(stdtrit(freedom, 0.975))


# Which facts explain that a stall was not as planned

_MODELS = {
    "compute": "how fast the devices compute",
    "transfer": "copies to the device",
    "contention": "devices sharing a host",
    "interconnect": "the exchange inside a node",
    "network": "the exchange between nodes",
    "prep": "the loader",
    "fetch": "reading the data",
}
_ORIGINS = {
    "given": "what was asked for",
    "measured": "what was measured before",
    "scaled": "what was measured on other machines",
    "data sheet": "published figures",
}
_UNITS = {unit: unit for unit in get_args(Unit)}


def facts_seen(base: Base) -> dict[str, PlanFact]:
    """What a profile tells of facts that forecasts rest on, by what they are about."""
    facts = list(facts_of(base.target))
    if base.loading is not None:
        facts.append(base.loading.fact)
        if base.loading.rate is not None:
            facts.append(Used(about="a node's storage", unit="bytes/s", quantity=base.loading.rate))
    return {fact.about: plan_fact(fact) for fact in facts if fact.quantity.origin == "measured"}


def other_settings(planned: Setting, base: Base) -> Mapping[str, str]:
    """What the plan changes of the job and the profile has otherwise: ``{"workers": "workers 3, not 12"}``."""
    loaders = base.profile.workload.loaders
    ran = {
        "batch": None if base.passes is None else base.passes.batch,
        "accumulate": None if base.passes is None else base.passes.accumulated,
        "workers": loaders[0].workers if loaders else None,
    }
    return {
        name: f"{name} {ran[name]}, not {wanted}"
        for name, wanted in planned.model_dump(exclude_none=True).items()
        if ran[name] is not None and ran[name] != wanted
    }


def assumption(share: StallShare, apart: Interval, seen: Mapping[str, PlanFact]) -> str:
    """What of the plan explains that a stall is off by ``apart`` seconds per step, in a sentence or two."""
    positive = apart
    if apart.value < 0:
        known = apart.low is not None and apart.high is not None
        ends = {"low": -(apart.high or 0.0), "high": -(apart.low or 0.0)} if known else {}
        positive = apart.model_copy(update={"value": -apart.value, **ends})
    far = quantity(positive, "seconds")
    head = f"{share.name} is {far} {'slower' if apart.value > 0 else 'faster'} than planned"
    again = [(fact, seen[fact.about]) for fact in share.facts if fact.about in seen]
    failed = [(fact, now) for fact, now in again if _explains(fact, now, apart)]
    if failed:
        reasons = [f"the plan took {_fact_text(fact)}; measured, it is {_value_text(now)}" for fact, now in failed]
        return f"{head}: {'; '.join(reasons)}"
    model = _MODELS.get(share.name, share.name)
    if again:
        as_it_is = listed(
            [f"{fact.about} ({_value_text(fact)} planned, {_value_text(now)} measured)" for fact, now in again]
        )
        return f"{head}, which {as_it_is} cannot explain: the model of {model} is off"
    rests = f": {listed([_fact_text(fact) for fact in share.facts], most=3)}" if share.facts else ""
    return f"{head}; the plan took {model} from {_ORIGINS.get(share.origin, share.origin)}{rests}"


def unplanned(name: str, seconds: Interval) -> str:
    """What to say of a stall that the plan did not have."""
    return f"{name} takes {quantity(seconds, 'seconds')} of a step, and the plan had none"


def _fact_text(fact: PlanFact) -> str:
    dated = f" of {fact.as_of}" if fact.as_of else ""
    return f"{fact.about} to be {_value_text(fact)} ({fact.origin}{dated}, {fact.source})"


def _value_text(fact: PlanFact) -> str:
    unit = _UNITS.get(fact.unit)
    if unit is None:
        return f"{fact.value:g} {fact.unit}"
    return plain(fact.value, unit) if fact.low is None else quantity(_interval(fact), unit)


def _explains(fact: PlanFact, now: PlanFact, apart: Interval) -> bool:
    """Whether a fact is certainly otherwise, and in the direction in which the stall is; a claim without spread is
    exact. Of a rate less is slower, of anything else more.
    """
    exact = Interval(value=fact.value, low=fact.value, high=fact.value)
    other = change(exact if fact.low is None else _interval(fact), _interval(now))
    if other.low is None or other.high is None:
        return False
    slower = other.high < 0 if fact.unit.endswith("/s") else other.low > 0
    faster = other.low > 0 if fact.unit.endswith("/s") else other.high < 0
    return slower if apart.value > 0 else faster


def _interval(fact: PlanFact) -> Interval:
    return Interval(value=fact.value, low=fact.low, high=fact.high)
