"""Breakdown in, advice out: the stall that dominates, a sentence with its numbers, and what to do next.

Every claim follows from a number in the breakdown or the profile; where the number is missing, the claim is
not made. The steps themselves, one function per stall, are in ``stash.derive.advise.remedies``.
"""

from __future__ import annotations

from stash.base.ladder import DATA_STALLS, EXCHANGE_STALLS
from stash.base.records import Profile, Record
from stash.base.words.units import format_bytes, format_rate, format_seconds
from stash.derive.advise.case import Case, Remedy
from stash.derive.advise.remedies import REMEDIES
from stash.derive.stalls.breakdown import SIGNIFICANT_SHARE, Breakdown, Stall, Surfacing

MOST_STEPS = 3


class Advice(Record):
    """What to do about a breakdown: the dominating stall, a sentence with numbers, at most three steps."""

    stall: str
    text: str
    next_steps: tuple[str, ...] = ()


def verdict(breakdown: Breakdown, profile: Profile) -> Advice:
    """What dominates: the largest stall outside the noise and of at least 3 % of the step, else compute."""
    dominating = dominating_stall(breakdown)
    name = dominating.name if dominating else "compute"
    text = _stall_text(breakdown, dominating) if dominating else _compute_text(breakdown)
    return Advice(
        stall=name,
        text=text,
        next_steps=_next_steps(breakdown, profile, name),
    )


def _next_steps(breakdown: Breakdown, profile: Profile, name: str) -> tuple[str, ...]:
    """The most valuable remedies; where a hidden stall would eat their gain, also one against that."""
    step = breakdown.step_seconds
    hidden = _hidden_behind(breakdown, name)
    ceiling = step if hidden is None else max(0.0, breakdown.seconds(name) - hidden.seconds)
    remedies = REMEDIES[name](Case(breakdown, profile))
    remedies.sort(key=lambda remedy: -(remedy.saves or 0.0))  # stable: unknown gains keep their order
    if hidden is None:
        return tuple(_sentence(remedy, step, ceiling) for remedy in remedies[:MOST_STEPS])
    behind = REMEDIES[hidden.appears](Case(breakdown, profile, removed=name))[:1]
    steps = tuple(_sentence(remedy, step, ceiling) for remedy in remedies[: MOST_STEPS - len(behind)])
    if ceiling < breakdown.seconds(name) / 2:
        return (*(f"First, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind), *steps)
    return (*steps, *(f"Then, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind))


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _hidden_behind(breakdown: Breakdown, name: str) -> Surfacing | None:
    return next((item for item in breakdown.surfacing if item.removed == name), None)


def dominating_stall(breakdown: Breakdown) -> Stall | None:
    """The largest significant stall that is not compute, or ``None``."""
    candidates = [stall for stall in breakdown.stalls if stall.name != "compute" and stall.significant]
    return max(candidates, key=lambda stall: stall.seconds, default=None)


def _sentence(remedy: Remedy, step: float, ceiling: float) -> str:
    saves = min(remedy.saves or 0.0, ceiling)
    if saves < 0.005 * step:
        return f"{remedy.text}."
    return f"{remedy.text}; saves up to {format_seconds(saves)} a step ({saves / step:.0%})."


def _stall_text(breakdown: Breakdown, stall: Stall) -> str:
    text = (
        f"The {stall.name} stall takes {format_seconds(stall.seconds)} of every "
        f"{format_seconds(breakdown.step_seconds)} step ({stall.share:.0%})"
    )
    reason = _reason(breakdown, stall.name)
    text += f": {reason}." if reason else "."
    if stall.low is None:
        text += " That is from a single round, so how sure it is remains unknown."
    hidden = _hidden_behind(breakdown, stall.name)
    if hidden:
        text += f" Removing it leaves a{_more(breakdown, hidden.appears)} {hidden.appears} stall of "
        text += f"{format_seconds(hidden.seconds)}, hidden behind it now."
    return text


def _more(breakdown: Breakdown, name: str) -> str:
    visible = breakdown.stall(name)
    return " further" if visible is not None and visible.significant else ""


def _reason(breakdown: Breakdown, name: str) -> str | None:
    rates, exchange = breakdown.rates, breakdown.communication
    if name in DATA_STALLS:
        limit = rates.prep if name == "prep" else rates.fetch
        if not rates.device or not limit or limit >= rates.device:
            return None
        what = "prepare" if name == "prep" else "read and prepare"
        return f"the loaders {what} {_rate(limit)}, the devices could train {_rate(rates.device)}"
    if name in EXCHANGE_STALLS and exchange.bytes:
        reason = f"each device exchanges {format_bytes(exchange.bytes)} of gradients"
        if exchange.wire_bytes_per_second:
            reason += f" at {format_rate(exchange.wire_bytes_per_second)}"
        hidden = exchange.hidden_seconds
        if hidden is not None and exchange.total_seconds and hidden > 0.05 * exchange.total_seconds:
            reason += f", {hidden / exchange.total_seconds:.0%} of it behind the backward pass"
        return reason
    if name == "contention" and breakdown.slow_rank:
        slow = breakdown.slow_rank
        return (
            f"all wait for rank {slow.rank}, which takes {format_seconds(slow.seconds)} "
            f"where the others take {format_seconds(slow.others_seconds)}"
        )
    return None


def _rate(samples_per_second: float) -> str:
    digits = 0 if samples_per_second >= 100 else 1
    return f"{samples_per_second:,.{digits}f} samples/s"


def _compute_text(breakdown: Breakdown) -> str:
    compute = breakdown.stalls[0]
    text = (
        f"Compute takes {format_seconds(compute.seconds)} of every "
        f"{format_seconds(breakdown.step_seconds)} step ({compute.share:.0%})"
    )
    if len(breakdown.stalls) == 1:
        return text + "; no stall could be told apart from it."
    return text + f"; no stall beyond the noise reaches {SIGNIFICANT_SHARE:.0%} of it."
