"""A bill taken apart for showing: every stall's dollars and what else is paid, rounded so that they add up."""

from __future__ import annotations

from dataclasses import dataclass

from stash.base.plan import Choice
from stash.base.words.rental import dollars, money_decimals
from stash.base.words.rounding import round_to_sum

OTHER = "plain"
"""The series of what is no stall."""
_SMALL = 0.005
"""Of a bill."""


@dataclass(frozen=True)
class MoneyPart:
    """One part of a bill."""

    name: str
    series: str
    """Its stall, or that of all others."""
    dollars: str
    share: str
    fraction: float
    """Of the bill; below zero what was measured so."""


def money_parts(choice: Choice) -> tuple[MoneyPart, ...]:
    """Stalls in the ladder's order, then what is paid beside training; together the bill.

    What is less than half a per cent is taken together as the rest, where there is more than one such part. Of what
    costs nothing, like capacity that is paid for already, there are no parts.
    """
    whole = choice.dollars.value
    if whole <= 0:
        return ()
    found = [(stall.name, stall.name, stall.dollars.value) for stall in choice.stalls]
    found += [(item.name, OTHER, item.dollars.value) for item in choice.items if item.name != "training"]
    small = [part for part in found if abs(part[2]) < _SMALL * whole]
    if len(small) > 1:
        found = [part for part in found if part not in small]
        found.append(("the rest", OTHER, sum(value for _, _, value in small)))
    decimals = money_decimals(whole)
    rounded = round_to_sum([value for _, _, value in found], decimals)
    return tuple(
        MoneyPart(name, series, dollars(shown, decimals), _share(value / whole), value / whole)
        for (name, series, value), shown in zip(found, rounded, strict=True)
    )


def _share(fraction: float) -> str:
    return "<1%" if 0 < fraction < _SMALL else f"{fraction:.0%}"


def stall_dollars(choice: Choice) -> float:
    """Of the bill: what is neither compute nor paid beside training."""
    return sum(stall.dollars.value for stall in choice.stalls if stall.name != "compute")


def largest_stall(choice: Choice) -> tuple[str, float]:
    """Its name and its share of the bill, or of the step where nothing is paid; no name if none is above zero."""
    stalls = [stall for stall in choice.stalls if stall.name != "compute" and stall.seconds.value > 0]
    if not stalls:
        return "", 0.0
    most = max(stalls, key=lambda stall: stall.seconds.value)
    whole = choice.dollars.value
    return most.name, most.dollars.value / whole if whole > 0 else most.share
