"""Which of a plan's facts explain that a stall was not as planned, in sentences.

A fact that forecasts rest on is looked at again wherever a later profile holds the same one, so that a wrong fact is
distinguished from a wrong model. Knows no verdict on the plan as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from stash.core.formatting import Unit, listed, plain, quantity
from stash.core.intervals import Interval, change
from stash.plan.bill import plan_fact
from stash.plan.records import PlanFact, Setting, StallShare
from stash.predict.collective_times import facts_of
from stash.predict.draws import Used
from stash.predict.passes import Base

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


def find_measured_facts(base: Base) -> dict[str, PlanFact]:
    """What a profile tells of facts that forecasts rest on, by what they are about."""
    facts = list(facts_of(base.target))
    if base.loading is not None:
        facts.append(base.loading.fact)
        if base.loading.rate is not None:
            facts.append(Used(about="a node's storage", unit="bytes/s", quantity=base.loading.rate))
    return {fact.about: plan_fact(fact) for fact in facts if fact.quantity.origin == "measured"}


def list_other_settings(planned: Setting, base: Base) -> Mapping[str, str]:
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


def explain_difference(share: StallShare, apart: Interval, seen: Mapping[str, PlanFact]) -> str:
    """What of the plan explains that a stall is off by ``apart`` seconds per step, in a sentence or two."""
    positive = apart
    if apart.value < 0:
        known = apart.low is not None and apart.high is not None
        ends = {"low": -(apart.high or 0.0), "high": -(apart.low or 0.0)} if known else {}
        positive = apart.model_copy(update={"value": -apart.value, **ends})
    far = quantity(positive, "seconds")
    head = f"{share.name} is {far} {'slower' if apart.value > 0 else 'faster'} than planned"
    again = [(fact, seen[fact.about]) for fact in share.facts if fact.about in seen]
    failed = [(fact, now) for fact, now in again if _can_explain(fact, now, apart)]
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


def name_unplanned(name: str, seconds: Interval) -> str:
    """What to say of a stall that the plan did not have."""
    return f"{name} takes {quantity(seconds, 'seconds')} of a step, and the plan had none"


def _fact_text(fact: PlanFact) -> str:
    dated = f" of {fact.as_of}" if fact.as_of else ""
    return f"{fact.about} to be {_value_text(fact)} ({fact.origin}{dated}, {fact.source})"


def _value_text(fact: PlanFact) -> str:
    unit = _UNITS.get(fact.unit)
    if unit is None:
        return f"{fact.value:g} {fact.unit}"
    return plain(fact.value, unit) if fact.low is None else quantity(_interval_of_fact(fact), unit)


def _can_explain(fact: PlanFact, now: PlanFact, apart: Interval) -> bool:
    """Whether a fact is certainly otherwise, and in the direction in which the stall is; a claim without spread is
    exact. Of a rate less is slower, of anything else more.
    """
    exact = Interval(value=fact.value, low=fact.value, high=fact.value)
    other = change(exact if fact.low is None else _interval_of_fact(fact), _interval_of_fact(now))
    if other.low is None or other.high is None:
        return False
    slower = other.high < 0 if fact.unit.endswith("/s") else other.low > 0
    faster = other.low > 0 if fact.unit.endswith("/s") else other.high < 0
    return slower if apart.value > 0 else faster


def _interval_of_fact(fact: PlanFact) -> Interval:
    return Interval(value=fact.value, low=fact.low, high=fact.high)
