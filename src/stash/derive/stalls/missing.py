"""The stalls a profile cannot tell: which, why, and which other stall now contains them.

A rung that was not measured leaves its stall unknown, never zero. If the rung could have differed on this
job, its stall has not vanished: the next rung up contains it, and the reason given here says so.
"""

from __future__ import annotations

from collections import Counter

from stash.base.ladder import NAMES, STALLS, Situation, rung, rung_adding, stall_names, why_no_stall
from stash.base.records import Profile
from stash.derive.stalls.breakdown import Missing


def missing_stalls(profile: Profile, rungs: tuple[str, ...]) -> tuple[Missing, ...]:
    """The stalls that ``rungs`` cannot tell, in ladder order, each with its reason."""
    present = stall_names(rungs)
    reasons = {item.rung: item.why for item in profile.skipped}
    situation = situation_of(profile)
    missing = []
    for name in STALLS:
        if name in present:
            continue
        adding = rung_adding(name).name
        unmeasured = _unmeasured_rung(adding, rungs)
        why = reasons.get(unmeasured, f"the rung {unmeasured} was not measured")
        possible = why_no_stall(name, situation) is None
        if name == "transfer" and any(loader.on_device for loader in profile.workload.loaders):
            adding = rung_adding("prep").name  # the loader itself copies: under the rung that reads from it
        container = _contained_in(adding, rungs, present, situation.loader) if possible else None
        if container is not None:
            why = f"{why}; contained in {container}"
        missing.append(Missing(name=name, why=why, possible=possible, contained_in=container))
    return tuple(missing)


def _unmeasured_rung(name: str, rungs: tuple[str, ...]) -> str:
    """The rung to blame: itself, or if it is the ladder's first, the one below that was left out."""
    if name not in rungs:
        return name
    below = [other for other in NAMES[: NAMES.index(name)] if other not in rungs]
    return below[-1]


def _contained_in(name: str, rungs: tuple[str, ...], present: tuple[str, ...], loader: bool) -> str | None:
    """The stall of the next rung up. Batches from no loader that was seen are made anew under every rung."""
    if rung(name).reads_data and not loader:
        return present[0]
    position = NAMES.index(name)
    for stall, climbed in zip(present, rungs, strict=True):
        if NAMES.index(climbed) >= position:
            return stall
    return None


def situation_of(profile: Profile) -> Situation:
    """The shape of the profile's job, as the ladder sees it."""
    return Situation(
        world_size=profile.world_size,
        nodes=profile.nodes,
        ranks_per_node=max(ranks_per_node(profile).values(), default=1),
        accelerator=any(rank.device != "cpu" for rank in profile.ranks),
        loader=bool(profile.workload.loaders),
    )


def ranks_per_node(profile: Profile) -> Counter[int]:
    """How many ranks each node has."""
    return Counter(rank.node for rank in profile.ranks)
