"""How many samples a step trains: as the blocks counted them, or the job's batch where they did not.

Steps need not be alike: accumulation may ramp up, a last batch may be short. What follows from that for stalls is
not decided here.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from stash.base.ladder import rung
from stash.base.records import Profile
from stash.derive.stalls.breakdown import SampleCounts
from stash.derive.stalls.step_times import StepTimes, mean_over_rounds, rank_values

UNEVEN = 0.10
"""Of the larger: blocks whose steps differ by more trained different steps."""


def count_samples(profile: Profile, kept: StepTimes) -> SampleCounts | None:
    """Samples of a step over the kept rounds; ``None`` if neither the blocks nor the job tell."""
    values = rank_values(profile, lambda block: block.samples)
    counted = [
        value for name in kept.rungs for number in kept.rounds for value in values.get((number, name), {}).values()
    ]
    per_rung = {name: _of_job(profile, kept, values, name) for name in kept.rungs}
    known = {name: count for name, count in per_rung.items() if count is not None}
    if known and counted:
        return SampleCounts(per_rung=known, least=min(counted), most=max(counted))
    batch = profile.workload.batch
    if batch is None:
        return None
    whole = batch * profile.world_size * replicas_per_rank(profile)
    return SampleCounts(per_rung=dict.fromkeys(kept.rungs, whole), least=batch, most=batch)


def _of_job(
    profile: Profile, kept: StepTimes, values: dict[tuple[int, str], dict[int, float]], name: str
) -> float | None:
    """Samples of a step of all ranks under a rung; where only the leader steps, as if the others did as it does."""
    if rung(name).active == "leader":
        leader = mean_over_rounds(values, name, kept.rounds)
        return None if leader is None else leader * profile.world_size * replicas_per_rank(profile)
    everyone = all(len(values.get((number, name), {})) == profile.world_size for number in kept.rounds)
    counted = mean_over_rounds(values, name, kept.rounds, lambda ranks: float(np.sum(ranks))) if everyone else None
    return None if counted is None else counted * replicas_per_rank(profile)


def replicas_per_rank(profile: Profile) -> float:
    """One, or less where ranks share a replica of the model: those read the same samples, which count once."""
    replicas = profile.workload.replicas
    return 1.0 if replicas is None else replicas / profile.world_size


def differ(counts: Collection[float]) -> bool:
    """Whether samples per step, of blocks or of rungs, are clearly not the same."""
    return max(counts) - min(counts) > UNEVEN * max(counts)
