"""Breakdown in, advice out: what dominates if that is certain, a sentence with its numbers, and what to do next.

Every claim follows from a number in the breakdown or the profile; where the number is missing or too uncertain, the
sentence says so instead. What may be claimed is decided in ``claims``.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.ladder import DATA_STALLS
from stash.base.records import Profile, Record
from stash.base.words.quantities import listed
from stash.base.words.units import format_seconds
from stash.derive.advise.actions import actions, hidden_behind
from stash.derive.advise.case import Case
from stash.derive.advise.claims import Claims, Kind, decisive_width, may_claim, width
from stash.derive.advise.reasons import reason
from stash.derive.stalls.breakdown import SMALL_SHARE, Breakdown, Stall
from stash.derive.stalls.figures import Figures, figures
from stash.derive.stalls.outlook import budget_for


class Advice(Record):
    """What to do about a breakdown: what dominates, a sentence with numbers, at most three steps."""

    kind: Kind
    stall: str | None
    """The dominating one, or compute; of several that tie the largest estimate; ``None`` where nobody can tell."""
    stalls: tuple[str, ...]
    """All that may dominate, the largest estimate first: several if they tie."""
    open: tuple[Stall, ...]
    """Not known to exist, and not known to be small."""
    budget_seconds: float | None
    """The ``--budget`` that should decide about the open ones; ``None`` if nothing is open, or beyond an hour."""
    text: str
    next_steps: tuple[str, ...] = ()


def verdict(breakdown: Breakdown, profile: Profile) -> Advice:
    """What may be said about a breakdown, and what to do next."""
    claims, case = may_claim(breakdown), Case(breakdown, profile)
    budget = _deciding_budget(claims, case)
    said = {"stall": claims.certain[:1], "tie": claims.certain}.get(claims.kind, ())
    stalls = tuple(stall.name for stall in said) or (("compute",) if claims.kind == "compute" else ())
    return Advice(
        kind=claims.kind,
        stall=stalls[0] if stalls else None,
        stalls=stalls,
        open=claims.open,
        budget_seconds=budget,
        text=_text(case, claims),
        next_steps=actions(case, claims, budget),
    )


def _deciding_budget(claims: Claims, case: Case) -> float | None:
    """The budget that decides about every open stall; after one round, the one that gives intervals at all."""
    rounds, step = case.breakdown.repetitions, case.breakdown.step_seconds
    if claims.kind == "estimate":
        return budget_for(case.profile, rounds, None, 0.0)
    wanted = [budget_for(case.profile, rounds, width(stall), decisive_width(stall, step)) for stall in claims.open]
    known = [budget for budget in wanted if budget is not None]
    return max(known) if known and len(known) == len(wanted) else None


def _text(case: Case, claims: Claims) -> str:
    if claims.kind == "estimate":
        return _estimate_text(case)
    if claims.kind == "compute":
        return _compute_text(case.breakdown, claims)
    if claims.kind == "cannot tell":
        return _undecided_text(case, claims)
    told = _stall_text(case, claims.certain[0]) if claims.kind == "stall" else _tie_text(case, claims.certain)
    rivals = [stall for stall in claims.open if (stall.high or 0.0) > (claims.certain[0].low or 0.0)]
    if rivals:
        told += f" Others are not known well enough: {_upper_ends(figures(case.breakdown.stalls), rivals)}."
    return told


def _estimate_text(case: Case) -> str:
    one, more = ("set of launches", "sets of launches") if case.profile.settings.isolated else ("round", "rounds")
    count = f"One {one} was" if case.breakdown.repetitions == 1 else f"Two {more} were"
    text = f"{count} measured: an estimate of each stall, and no verdict."
    waits = case.breakdown.waits
    wait, names = (waits.cold, DATA_STALLS) if waits.cold is not None else (waits.warm, DATA_STALLS[:1])
    if wait is None or case.breakdown.by_waits:
        return text
    difference = f"{figures(case.breakdown.stalls).time(*names)} a step for {listed(names)}"
    return f"{text} Rungs differ by {difference}; steps waited {format_seconds(wait)} for the loader."


def _stall_text(case: Case, stall: Stall) -> str:
    text = f"The {stall.name} stall takes {_of_step(case, stall)}"
    why = reason(case, stall.name)
    text += f": {why}." if why else "."
    hidden = hidden_behind(case.breakdown, stall.name)
    if hidden:
        visible = case.breakdown.stall(hidden.appears)
        further = " further" if visible is not None and visible.significant else ""
        text += f" Removing it leaves a{further} {hidden.appears} stall of "
        text += f"{format_seconds(hidden.seconds)}, hidden behind it now."
    return text


def _tie_text(case: Case, stalls: Sequence[Stall]) -> str:
    written = figures(case.breakdown.stalls)
    names = listed([stall.name for stall in stalls])
    times = listed([f"{written.quantity(stall.name)} ({written.share(stall.name)})" for stall in stalls])
    text = f"The {names} stalls take {times} of every {written.step} step; which is the largest is not known yet."
    for stall in stalls:
        why = reason(case, stall.name)
        text += f" {stall.name.capitalize()}: {why}." if why else ""
    return text


def _undecided_text(case: Case, claims: Claims) -> str:
    written, parts = figures(case.breakdown.stalls), []
    if claims.open:
        parts.append(f"Cannot tell yet what dominates a step of {written.step}: {_upper_ends(written, claims.open)}.")
    for stall in claims.disputed:
        dispute = case.breakdown.disputed(stall.name)
        assert dispute is not None
        parts.append(
            f"Cannot tell yet how large {listed(dispute.stalls)} {'is' if len(dispute.stalls) == 1 else 'are'}: "
            f"{format_seconds(dispute.difference)} of a step of {written.step} by difference, "
            f"{format_seconds(dispute.waited)} waited for the loader; {dispute.why}."
        )
    parts += [
        f"Certain is {stall.name}: {written.quantity(stall.name)} ({written.share(stall.name)})."
        for stall in claims.certain[:1]
    ]
    if claims.hidden:
        names = [missing.name for missing in claims.hidden]
        parts.append(
            f"Cannot tell what limits the devices: compute ({written.share('compute')} of the step) contains "
            f"{listed(names)}, which nobody measured."
        )
    return " ".join(parts)


def _upper_ends(written: Figures, stalls: Sequence[Stall]) -> str:
    """``"prep may take up to 34.1 ms (26%) and fetch up to 9.03 ms (7%)"``"""
    may = {stalls[0].name: "may take "}
    return listed([f"{each.name} {may.get(each.name, '')}up to {_end(written, each.high or 0.0)}" for each in stalls])


def _end(written: Figures, high: float) -> str:
    """An interval may reach beyond the step, which its stall cannot."""
    return written.part(high) if high < written.step_seconds else "the whole step"


def _of_step(case: Case, stall: Stall) -> str:
    written = figures(case.breakdown.stalls)
    return f"{written.quantity(stall.name)} of every {written.step} step ({written.share(stall.name)})"


def _compute_text(breakdown: Breakdown, claims: Claims) -> str:
    written = figures(breakdown.stalls)
    text = f"Compute takes {written.quantity('compute')} of every {written.step} step ({written.share('compute')})"
    if claims.no_obstacle:
        return f"{text}: stalls are no obstacle here, each is below {SMALL_SHARE:.0%} of the step."
    few = (
        "no stall was measured" if len(breakdown.stalls) == 1 else f"every measured stall is below {SMALL_SHARE:.0%}"
    )
    return f"{text}: {few}. Unknown: {listed([missing.name for missing in claims.unknown])}."
