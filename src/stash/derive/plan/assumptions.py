"""Why a stall was not as planned: the facts that its forecast rests on, beside the same facts as they were measured.

A fact that turned out worse is the assumption that failed by which a stall is slower, and one that turned out better
that by which it is faster; where no fact that can be looked at again explains it, it is the model that made a stall
of them. Facts meet by what they are about, as forecasts name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from stash.base.plan import PlanFact, Setting, StallShare
from stash.base.stats.differences import change
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import Unit, listed, plain, quantity
from stash.derive.predict.exchange.fabric import facts_of
from stash.derive.predict.uncertainty.quantity import Quantity
from stash.derive.predict.whatif.base import Base

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
    found = {used.about: (used.unit, used.quantity) for used in facts_of(base.target)}
    if base.loading is not None:
        found["one worker's seconds per sample"] = ("seconds", base.loading.make)
        if base.loading.rate is not None:
            found["a node's storage"] = ("bytes/s", base.loading.rate)
    return {about: _fact(about, unit, each) for about, (unit, each) in found.items() if each.origin == "measured"}


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
    far = quantity(apart.model_copy(update=_positive(apart)), "seconds")
    head = f"{share.name} is {far} {'slower' if apart.value > 0 else 'faster'} than planned"
    again = [(fact, seen[fact.about]) for fact in share.facts if fact.about in seen]
    failed = [(fact, now) for fact, now in again if _explains(fact, now, apart)]
    if failed:
        return f"{head}: {'; '.join(_otherwise(fact, now) for fact, now in failed)}"
    model = _MODELS.get(share.name, share.name)
    if again:
        as_it_is = listed([f"{fact.about} ({_said(fact)} planned, {_said(now)} measured)" for fact, now in again])
        return f"{head}, which {as_it_is} cannot explain: the model of {model} is off"
    rests = f": {listed([_told(fact) for fact in share.facts], most=3)}" if share.facts else ""
    return f"{head}; the plan took {model} from {_ORIGINS.get(share.origin, share.origin)}{rests}"


def unplanned(name: str, seconds: Interval) -> str:
    """What to say of a stall that the plan did not have."""
    return f"{name} takes {quantity(seconds, 'seconds')} of a step, and the plan had none"


def _otherwise(fact: PlanFact, now: PlanFact) -> str:
    return f"the plan took {_told(fact)}; measured, it is {_said(now)}"


def _told(fact: PlanFact) -> str:
    dated = f" of {fact.as_of}" if fact.as_of else ""
    return f"{fact.about} to be {_said(fact)} ({fact.origin}{dated}, {fact.source})"


def _said(fact: PlanFact) -> str:
    unit = _UNITS.get(fact.unit)
    if unit is None:
        return f"{fact.value:g} {fact.unit}"
    return plain(fact.value, unit) if fact.low is None else quantity(_interval(fact), unit)


def _explains(fact: PlanFact, now: PlanFact, apart: Interval) -> bool:
    """Whether a fact is certainly otherwise, and in the direction in which the stall is; a claim without spread is
    exact. Of a rate less is slower, of anything else more.
    """
    other = change(_exactly(fact) if fact.low is None else _interval(fact), _interval(now))
    if other.low is None or other.high is None:
        return False
    slower = other.high < 0 if fact.unit.endswith("/s") else other.low > 0
    faster = other.low > 0 if fact.unit.endswith("/s") else other.high < 0
    return slower if apart.value > 0 else faster


def _interval(fact: PlanFact) -> Interval:
    return Interval(value=fact.value, low=fact.low, high=fact.high)


def _exactly(fact: PlanFact) -> Interval:
    return Interval(value=fact.value, low=fact.value, high=fact.value)


def _positive(apart: Interval) -> dict[str, float | None]:
    if apart.value >= 0 or apart.low is None or apart.high is None:
        return {"value": abs(apart.value)}
    return {"value": -apart.value, "low": -apart.high, "high": -apart.low}


def _fact(about: str, unit: str, found: Quantity) -> PlanFact:
    return PlanFact(
        about=about, unit=unit, value=found.value, low=found.low, high=found.high, origin=found.origin,
        as_of=found.as_of, source=found.source,
    )  # fmt: skip
