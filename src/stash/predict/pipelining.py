"""What other microbatches, or layers on other stages, make of a profiled pipeline's bubble."""

from __future__ import annotations

from typing import NamedTuple

from stash.analysis.pipeline_changes import balanced, idle_changed, layers_of, stage_costs
from stash.analysis.pipeline_schedule import EVEN
from stash.core.errors import UserError
from stash.predict.changes import BALANCED, Alteration
from stash.predict.passes import Base, records


class BubbleChange(NamedTuple):
    """Of a step, mean over ranks."""

    seconds: float
    """Longer; below 0 shorter."""
    beyond: tuple[str, ...]


def bubble_change(base: Base, wanted: Alteration) -> BubbleChange:
    """Of the pipeline as ``wanted``; raises UserError where the profile does not hold what plays it again."""
    option = "microbatches" if wanted.microbatches is not None else "split"
    schedule, seen = base.profile.workload.pipeline, base.breakdown.seen
    if schedule is None:
        raise UserError(
            f"--{option}: no schedule of torch.distributed.pipelining was seen, so none can be played again"
        )
    if seen is None or seen.bubble is None:
        raise UserError(f"--{option}: when passes of the stages ran is not in the profile; {records(base.profile)}")
    count = wanted.microbatches
    if count not in (None, schedule.microbatches) and schedule.name not in EVEN:
        raise UserError(
            f"--microbatches {count}: in which order {schedule.name} works on as many is not known; it is of "
            f"{' and '.join(EVEN)}"
        )
    rows = [row for row in base.profile.passes if row.rung == base.breakdown.rungs[0]]
    beyond = []
    times: dict[int, float] = {}
    if wanted.split is not None:
        layers, seconds = layers_of(rows), seen.bubble.stage_seconds
        if not layers:
            raise UserError("--split: how many layers each stage holds is not in the profile, or they are in no list")
        costs = stage_costs(seconds, layers)
        counts = balanced(costs, layers) if wanted.split == BALANCED else tuple(map(int, wanted.split.split(",")))
        if len(counts) != len(layers) or sum(counts) != sum(layers):
            held = ",".join(map(str, layers))
            raise UserError(f"--split {wanted.split}: the stages hold {held}; give {len(layers)} numbers that add up "
                            f"to {sum(layers)}")  # fmt: skip
        if counts != layers:
            times = {stage: costs[stage].at(own) / seconds[stage] for stage, own in enumerate(counts)}
            beyond.append(
                f"stages hold {','.join(map(str, counts))} layers instead of {','.join(map(str, layers))}: layers "
                "are taken to be alike, and what the first and the last stage take beyond theirs to stay there"
            )
    if count not in (None, schedule.microbatches):
        beyond.append(
            f"passes of a batch cut into {count} are taken to be as efficient as those of one cut into "
            f"{schedule.microbatches}"
        )
    change = idle_changed(rows, schedule, count, times)
    if change is None:
        raise UserError(f"--{option}: the passes in the profile are not of all stages; {records(base.profile)}")
    return BubbleChange(change, tuple(beyond))
