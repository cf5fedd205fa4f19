"""What other microbatches, or layers on other stages, make of a profiled pipeline's bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stash.analysis.pipeline_changes import balance_layers, idle_changed, layers_of, stage_costs
from stash.analysis.pipeline_schedule import EVEN
from stash.core.errors import UserError
from stash.core.ladder import BUBBLE
from stash.core.measured import StagePasses
from stash.predict.changed_job import ChangedJob
from stash.predict.changes import BALANCED
from stash.predict.forecast import PredictedStalls
from stash.predict.passes import recording_hint


def add_bubble(job: ChangedJob, outcome: PredictedStalls) -> PredictedStalls:
    """Stalls with the bubble of the pipeline as it is asked for, mean over ranks.

    Raises UserError where the profile does not hold what plays it again.
    """
    base, count = job.base, job.microbatches
    if count is None and job.split is None:
        return outcome
    option = "microbatches" if count is not None else "split"
    schedule, seen = base.profile.workload.pipeline, base.breakdown.seen
    if schedule is None:
        raise UserError(
            f"--{option}: no schedule of torch.distributed.pipelining was seen, so none can be played again"
        )
    if seen is None or seen.bubble is None:
        raise UserError(
            f"--{option}: when passes of the stages ran is not in the profile; {recording_hint(base.profile)}"
        )
    rows = [row for row in base.profile.passes if row.rung == base.breakdown.rungs[0]]
    beyond: list[str] = []
    times: dict[int, float] = {}
    if job.split is not None:
        times, beyond = _split_again(job.split, rows, seen.bubble.stage_seconds)
    if count not in (None, schedule.microbatches):
        if schedule.name not in EVEN:
            raise UserError(
                f"--microbatches {count}: in which order {schedule.name} works on as many is not known; it is of "
                f"{' and '.join(EVEN)}"
            )
        beyond.append(
            f"passes of a batch cut into {count} are taken to be as efficient as those of one cut into "
            f"{schedule.microbatches}"
        )
    change = idle_changed(rows, schedule, count, times)
    if change is None:
        raise UserError(
            f"--{option}: the passes in the profile are not of all stages; {recording_hint(base.profile)}"
        )
    parts = []
    for part in outcome.parts:
        if part.name == BUBBLE and change:
            seconds = part.seconds + change * job.compute.factor
            parts.append(replace(part, seconds=seconds, origin="scaled", beyond=tuple(beyond)))
        else:
            parts.append(part)
    return replace(outcome, parts=tuple(parts))


def _split_again(
    split: str, rows: Sequence[StagePasses], seconds: Sequence[float]
) -> tuple[dict[int, float], list[str]]:
    """Times as long as measured that each stage takes with other layers, and what that takes for granted."""
    layers = layers_of(rows)
    if not layers:
        raise UserError(
            "--split: how many layers each stage holds is not in the profile, or they are in no list"
        )
    costs = stage_costs(seconds, layers)
    counts = (
        balance_layers(costs, layers) if split == BALANCED else tuple(map(int, split.split(",")))
    )
    held, then = (",".join(map(str, each)) for each in (layers, counts))
    if len(counts) != len(layers) or sum(counts) != sum(layers):
        raise UserError(
            f"--split {split}: the stages hold {held}; give {len(layers)} numbers that add up "
            f"to {sum(layers)}"
        )
    if counts == layers:
        return {}, []
    times = {
        stage: costs[stage].seconds_for(own) / seconds[stage] for stage, own in enumerate(counts)
    }
    return times, [
        f"stages hold {then} layers instead of {held}: layers "
        "are taken to be alike, and what the first and the last stage take beyond theirs to stay there"
    ]
