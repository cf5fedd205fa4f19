"""What to do next about what may be claimed: remedies with what they save and cost, or what would make it certain.

At most three sentences. Remedies themselves, one function per stall, are in ``stash.derive.advise.remedies``.
"""

from __future__ import annotations

from dataclasses import replace

from stash.base.ladder import NOT_ASKED
from stash.base.words.quantities import listed
from stash.derive.advise.case import Case, Remedy
from stash.derive.advise.claims import Claims
from stash.derive.advise.remedies import REMEDIES
from stash.derive.stalls.breakdown import Breakdown, Surfacing
from stash.derive.stalls.figures import figures
from stash.derive.stalls.outlook import FIRST_ROUNDS, more_time

MOST_STEPS = 3
_CONTRADICTED = (
    "Profile again on a machine that does nothing else, and see what the script does with batches besides training: "
    "what a step waited for the loader, and what it takes longer on fresh batches, should agree."
)
_WORTH_SAYING = 0.005
"""Of the step: a gain smaller than this is no gain, and not promised."""


def actions(case: Case, claims: Claims, budget: float | None) -> tuple[str, ...]:
    """What to do; ``budget`` is the ``--budget`` that should decide what is open, ``None`` beyond an hour."""
    if claims.kind == "compute":
        return _against(case, "compute")
    if claims.kind == "stall":
        return _against(case, claims.certain[0].name)
    if claims.kind == "tie":
        return _first_of_each(case, claims)
    steps = []
    if claims.open or claims.kind == "estimate":
        steps.append(_measure_longer(claims, budget))
    if claims.disputed:
        steps.append(_CONTRADICTED)
    steps += _unmeasured(claims)
    return (*steps, *_first_of_each(case, claims))[:MOST_STEPS]


def hidden_behind(breakdown: Breakdown, name: str) -> Surfacing | None:
    """The data stall that appears once the stall called ``name`` is gone."""
    return next((item for item in breakdown.surfacing if item.removed == name), None)


def _against(case: Case, name: str) -> tuple[str, ...]:
    """The most valuable remedies; where a hidden stall would eat their gain, also one against that."""
    hidden = hidden_behind(case.breakdown, name)
    if hidden is None:
        return tuple(_sentence(case, remedy) for remedy in _best(case, name)[:MOST_STEPS])
    behind = REMEDIES[hidden.appears](Case(case.breakdown, case.profile, removed=name))[:1]
    first = hidden.seconds > case.seconds(name) / 2
    if first and behind and behind[0].asks is not None:
        case = replace(case, done=behind[0].asks)  # what the others save once that is done
    steps = tuple(_sentence(case, remedy) for remedy in _best(case, name)[: MOST_STEPS - len(behind)])
    if first:
        return (*(f"First, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind), *steps)
    return (*steps, *(f"Then, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind))


def _first_of_each(case: Case, claims: Claims) -> tuple[str, ...]:
    """The most valuable remedy of each stall that is certain, each remedy once."""
    found: dict[str, str] = {}
    for stall in claims.certain:
        remedy = next((each for each in _best(case, stall.name) if each.text not in found), None)
        if remedy is not None:
            found[remedy.text] = f"Against {stall.name}: {_lower(_sentence(case, remedy))}"
    return tuple(found.values())[:MOST_STEPS]


def _best(case: Case, name: str) -> list[Remedy]:
    """By what they save; unknown gains keep their order, and what is known to save nothing is not advised."""
    worth = _WORTH_SAYING * case.breakdown.step_seconds
    useful = [each for each in REMEDIES[name](case) if each.saves is None or each.saves >= worth]
    return sorted(useful, key=lambda remedy: -(remedy.saves or 0.0))


def _measure_longer(claims: Claims, budget: float | None) -> str:
    if budget is None:
        return f"{_upper(more_time(budget))}."
    gain = (
        f"{FIRST_ROUNDS} rounds or so" if claims.kind == "estimate" else "intervals shrink with the root of the time"
    )
    return f"{_upper(more_time(budget))}: {gain}."


def _unmeasured(claims: Claims) -> list[str]:
    """How to learn of the stalls that are hidden in compute, one sentence for each reason."""
    names: dict[str, list[str]] = {}
    for missing in claims.hidden:
        why = missing.why.removesuffix(f"; contained in {missing.contained_in}")
        names.setdefault(why, []).append(missing.name)
    return [
        f"Profile again without --rungs, which left out {listed(left_out)}."
        if why == NOT_ASKED
        else f"Tell {listed(left_out)} from compute: {why}."
        for why, left_out in names.items()
    ]


def _sentence(case: Case, remedy: Remedy) -> str:
    saves = remedy.saves or 0.0
    cost = f" {_upper(remedy.cost)}." if remedy.cost else ""
    if saves < _WORTH_SAYING * case.breakdown.step_seconds:
        return f"{remedy.text}.{cost}"
    samples = case.breakdown.samples_per_step
    many = f" for every {samples:.0f} samples" if samples else " for as many samples"
    gain = figures(case.breakdown.stalls).part(saves, many if remedy.per_sample else " a step")
    return f"{remedy.text}; saves about {gain}.{cost}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _upper(clause: str) -> str:
    return clause[:1].upper() + clause[1:]
