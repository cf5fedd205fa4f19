"""The stalls a profile cannot tell: which, why, and which other stall now contains them.

A rung that was not measured leaves its stall unknown, never zero. If the rung could have differed on this
job, its stall has not vanished: the next rung up contains it, and the reason given here says so.
"""

from __future__ import annotations

from collections import Counter

from stash.base.ladder import NAMES, RUNGS, STALLS
from stash.base.records import Profile
from stash.derive.stalls.breakdown import Missing

_ADDS = {rung.name: rung.adds for rung in RUNGS}
_RUNG_OF = {rung.adds: rung.name for rung in RUNGS}


def stall_names(rungs: tuple[str, ...]) -> tuple[str, ...]:
    """One stall per climbed rung: the first one's whole time is compute, then what each adds."""
    return ("compute", *(_ADDS[name] for name in rungs[1:]))


def missing_stalls(profile: Profile, rungs: tuple[str, ...]) -> tuple[Missing, ...]:
    """The stalls that ``rungs`` cannot tell, in ladder order, each with its reason."""
    present = stall_names(rungs)
    reasons = {item.rung: item.why for item in profile.skipped}
    missing = []
    for name in STALLS:
        if name in present:
            continue
        unmeasured = _unmeasured_rung(_RUNG_OF[name], rungs)
        why = reasons.get(unmeasured, f"the rung {unmeasured} was not measured")
        container = _contained_in(_RUNG_OF[name], rungs, present)
        if container is not None and can_differ(profile, name):
            why = f"{why}; contained in {container}"
        missing.append(Missing(name=name, why=why))
    return tuple(missing)


def _unmeasured_rung(name: str, rungs: tuple[str, ...]) -> str:
    """The rung to blame: itself, or if it is the ladder's first, the one below that was left out."""
    if name not in rungs:
        return name
    below = [other for other in NAMES[: NAMES.index(name)] if other not in rungs]
    return below[-1]


def _contained_in(name: str, rungs: tuple[str, ...], present: tuple[str, ...]) -> str | None:
    position = NAMES.index(name)
    for stall, climbed in zip(present, rungs, strict=True):
        if NAMES.index(climbed) >= position:
            return stall
    return None


def can_differ(profile: Profile, stall: str) -> bool:
    """Whether the stall can exist at all on a job of this shape."""
    if stall == "transfer":
        return any(rank.device != "cpu" for rank in profile.ranks)
    if stall == "contention":
        return profile.world_size > 1
    if stall == "interconnect":
        return max(ranks_per_node(profile).values(), default=1) > 1
    if stall == "network":
        return profile.nodes > 1
    return True


def ranks_per_node(profile: Profile) -> Counter[int]:
    """How many ranks each node has."""
    return Counter(rank.node for rank in profile.ranks)
