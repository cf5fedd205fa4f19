"""What other work on the machine cost each step, as the kernel's scheduler counted it; and a profile without that.

A thread that is ready to run and has no core was kept from running by somebody. The kernel counts that delay;
``shared_cores`` divides it. What the job's own loaders, exchange threads and surplus ranks cause is the job's and
stays in its stalls; so does what the limit of its own control group causes. What strangers cause is subtracted from
the step, as far as the step would have been shorter without: a rank that waits for a slower one, or for samples that
sleep or come from a disk, gains nothing. What slows a running thread (a shared cache, a lower clock) shows in no
delay and is not known here; nor is what an accelerator waits for, whose host runs ahead of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import numpy as np

from stash.analysis.shared_cores import RUNGS, JobCores, RankDelays, StrangersCost
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import stall_names
from stash.core.measured import Block
from stash.core.records.base import Record
from stash.core.records.circumstances import OtherProgram
from stash.core.records.profile import Profile

BlockKey = tuple[int, str]
"""Round and rung."""


class Lost(NamedTuple):
    """What a rank's block lost to others, in seconds per step."""

    seconds: float
    """What strangers cost the step."""
    own_doubt: float
    """Half-width of that, without …"""
    of_loops: float
    """… that of parallel loops, which is alike in all blocks."""

    @property
    def doubt(self) -> float:
        """Half-width of it all."""
        return math.hypot(self.own_doubt, self.of_loops)


class Undisturbed(NamedTuple):
    """A profile as it would have been without other work on its machines."""

    profile: Profile
    """Its blocks have no delays any more: there is nothing left to subtract."""
    lost: Mapping[BlockKey, Mapping[int, Lost]]
    """What was subtracted, by rank; nothing of blocks whose delays are unknown."""


def remove_disturbance(profile: Profile) -> Undisturbed:
    """``profile`` without what strangers cost; blocks whose delays are unknown are left as they were."""
    together: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for place, block in enumerate(profile.blocks):
        if block.step_delays and len(block.step_delays) == len(block.step_seconds) == block.steps:
            together[block.round, block.rung, block.steps].append(place)
    blocks = list(profile.blocks)
    lost = defaultdict[BlockKey, dict[int, Lost]](dict)
    job = JobCores.read_profile(profile)
    for (number, name, _), places in together.items():
        if name not in RUNGS:
            continue
        own = [blocks[place] for place in places]
        subtracted = RankDelays.read_blocks(own, job).strangers_costs()
        for place, block, cost in zip(places, own, subtracted, strict=True):
            seconds = float(cost.seconds.sum()) / block.steps
            lost[number, name][block.rank] = Lost(seconds, cost.doubt, cost.of_loops)
            blocks[place] = _subtract_cost(block, cost)
    return Undisturbed(
        profile.model_copy(update={"blocks": tuple(blocks)}) if lost else profile, lost
    )


class Calming:
    """``remove_disturbance`` of a measurement under way: a large job's earlier rounds are not worked out in every
    round."""

    def __init__(self) -> None:
        self._seen: tuple[Block, ...] = ()
        self._blocks: tuple[Block, ...] = ()
        self._lost: dict[BlockKey, Mapping[int, Lost]] = {}

    def calm_profile(self, profile: Profile) -> Undisturbed:
        """The same as ``undisturbed(profile)``; what is kept are the rounds before the newest one."""
        blocks = profile.blocks
        if blocks[: len(self._seen)] != self._seen:  # a rung was left out
            self._seen = ()
            self._blocks = ()
            self._lost = {}
        kept = len(self._seen)
        fresh = remove_disturbance(profile.model_copy(update={"blocks": blocks[kept:]}))
        calm = self._blocks + fresh.profile.blocks
        lost = {**self._lost, **fresh.lost}
        newest = max((block.round for block in blocks), default=0)
        while kept < len(blocks) and blocks[kept].round < newest:
            kept += 1
        self._seen = blocks[:kept]
        self._blocks = calm[:kept]
        self._lost = {key: each for key, each in lost.items() if key[0] < newest}
        return Undisturbed(profile.model_copy(update={"blocks": calm}), lost)


def drop_delays(profile: Profile) -> Profile:
    """``profile`` without its delays: nothing is known any more of what strangers cost."""
    return profile.model_copy(
        update={"blocks": tuple(replace(block, step_delays=()) for block in profile.blocks)}
    )


class Disturbance(Record):
    """What other work on the job's machines cost a step as it was seen; the stalls do not contain it."""

    time: Interval
    """Seconds of a step."""
    doubts: dict[str, float]
    """Half-widths in seconds by rung: how far what was subtracted of its steps may be wrong, without …"""
    loop_doubts: dict[str, float] = {}  # noqa: RUF012 - pydantic copies it
    """… those of parallel loops: what two rungs have in common of them is no doubt of a stall."""
    steal: float | None = None
    """Of the machine's time, what its own host gave to others."""
    programs: tuple[OtherProgram, ...] = ()
    """Those that used most processor time meanwhile, the busiest first."""

    @property
    def doubt(self) -> float:
        """Half-width in seconds of what was subtracted of the step."""
        return self.doubt_of(list(self.doubts)[-1])

    def doubt_of(self, rung: str) -> float:
        """Half-width in seconds of what was subtracted of a rung's steps."""
        return math.hypot(self.doubts[rung], self.loop_doubts.get(rung, 0.0))

    def corrections(self) -> dict[str, float]:
        """Half-widths in seconds by stall: the doubt of its rung, and of the one below."""
        parts = [(doubt, self.loop_doubts.get(name, 0.0)) for name, doubt in self.doubts.items()]
        both = [
            math.hypot(own, own_below, loop - loop_below)
            for (own, loop), (own_below, loop_below) in zip(
                parts, [(0.0, 0.0), *parts], strict=False
            )
        ]
        return dict(zip(stall_names(tuple(self.doubts)), both, strict=True))


def estimate_disturbance(
    profile: Profile, calm: Undisturbed, rungs: Sequence[str], rounds: Sequence[int]
) -> Disturbance | None:
    """What was subtracted of the highest of ``rungs`` in these rounds; ``None`` if that is unknown."""
    doubts: dict[str, float] = {}
    loops: dict[str, float] = {}
    for name in rungs:
        found = [calm.lost.get((number, name)) for number in rounds]
        if not found or not all(found):
            return None
        lost = [ranks.values() for ranks in found if ranks]
        doubts[name] = fmean(max(each.own_doubt for each in ranks) for ranks in lost)
        loops[name] = fmean(max(each.of_loops for each in ranks) for ranks in lost)
    top = [max(each.seconds for each in calm.lost[number, rungs[-1]].values()) for number in rounds]
    steals = [
        block.steal for block in profile.blocks if block.steal is not None and block.round in rounds
    ]
    return Disturbance(
        time=mean_interval(top),
        doubts=doubts,
        loop_doubts=loops,
        steal=fmean(steals) if steals else None,
        programs=profile.others,
    )


def _subtract_cost(block: Block, cost: StrangersCost) -> Block:
    """The block with what strangers cost subtracted, and without delays."""
    changes: dict[str, object] = {
        "seconds": block.seconds - float(cost.seconds.sum()),
        "step_seconds": tuple((np.array(block.step_seconds) - cost.seconds).tolist()),
        "step_delays": (),
        "step_exchange_delays": (),
        "step_wait_delays": (),
        "helper_delay_seconds": None,
    }
    if block.wait_seconds is not None and len(block.step_waits) == block.steps:
        left = np.maximum(0.0, np.array(block.step_waits) - cost.waits)
        changes |= {"step_waits": tuple(left.tolist()), "wait_seconds": float(left.sum())}
    if block.fetch_seconds is not None and cost.making:
        changes["fetch_seconds"] = max(
            block.fetch_seconds - cost.making, block.fetch_cpu_seconds or 0.0
        )
    if (
        waited := sum(block.group_waits.values()) + block.stage_seconds.get("exchange", 0.0)
    ) and block.group_waits:
        # What is left of the step is then its own work, less what it was kept from that itself.
        left_of_waits = max(0.0, 1 - cost.for_others / waited)
        changes["group_waits"] = {
            name: seconds * left_of_waits for name, seconds in block.group_waits.items()
        }
        changes["group_under_way"] = {
            name: seconds - (1 - left_of_waits) * block.group_waits.get(name, 0.0)
            for name, seconds in block.group_under_way.items()
        }
        if "exchange" in block.stage_seconds:
            exchange = block.stage_seconds["exchange"] * left_of_waits
            changes["stage_seconds"] = {**block.stage_seconds, "exchange": exchange}
    return replace(block, **changes)  # type: ignore[arg-type]
