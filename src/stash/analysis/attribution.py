"""Profile in, breakdown out: stalls by paired differences, and remarks on the figures.

The stalls sum exactly to the step because they are differences of neighbouring rungs over the same kept rounds.
What is only a second opinion (loader waits, rates, the exchange run by itself) stands next to the stalls and is
never mixed into them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from stash.analysis.as_typed import (
    AsTyped,
    compare_first_steps,
    is_explained,
    is_other_job,
    lost_share,
)
from stash.analysis.breakdown import (
    Breakdown,
    Paper,
    Rates,
    Stall,
    all_stalls,
    missing_stalls,
    ranks_per_node,
)
from stash.analysis.bubble import Seen
from stash.analysis.disturbance import (
    Disturbance,
    Undisturbed,
    estimate_disturbance,
    remove_disturbance,
)
from stash.analysis.host_lead import host_lead
from stash.analysis.repeated_batches import batch_errors
from stash.analysis.run_account import RunAccount, account_for_run
from stash.analysis.second_opinions import (
    find_surfacing,
    measure_communication,
    measure_waits,
    paper_rates,
)
from stash.analysis.seen import seen_stalls
from stash.analysis.stability import check_stability
from stash.analysis.step_figures import make_figures
from stash.analysis.step_times import (
    StepTimes,
    count_samples,
    explains_rounds,
    find_straggler,
    incomplete_rounds,
    step_matrix,
)
from stash.analysis.uncertainty import launch_error, whole_stall
from stash.core.errors import ArtefactError, StashError
from stash.core.intervals import Interval, mean_interval
from stash.core.levels import Matrix, level
from stash.core.records.profile import Profile
from stash.core.rounds import estimate
from stash.core.units import format_pace, format_seconds


def attribute(
    profile: Profile, source: str | None = None, calm: Undisturbed | None = None
) -> Breakdown:
    """The breakdown of the profile's mean step over its kept rounds, without what other work on its machines cost.

    That is subtracted, and reported beside. ``source`` is the file it came from, to be named in errors; ``calm`` is
    ``remove_disturbance(profile)``, where known. Raises StashError if no round is complete, and ArtefactError if a
    block's time is no positive number, or of no rank.
    """
    named = source or f"the profile of {profile.workload.name!r}"
    _refuse_damaged(profile, named)
    calm = calm or remove_disturbance(profile)
    measured, profile = profile, calm.profile
    kept = _keep_complete_rounds(profile, named)
    seen, matrix = seen_stalls(profile, kept) or (None, kept.matrix)
    disturbed = estimate_disturbance(measured, calm, kept.rungs, kept.rounds)
    stalls, seconds, step = _divide_step(profile, matrix, kept, seen, disturbed)
    paper, samples = _paper(profile, kept), count_samples(profile, kept)
    rates = paper_rates(profile, kept, samples)
    typed, run = _account_as_typed(measured, calm, kept, stalls, seconds)
    unlike = typed if typed and _is_worth_a_warning(typed, run, stalls) else None
    slow = find_straggler(profile, kept)
    return Breakdown(
        source=named,
        step_seconds=seconds,
        step=step,
        samples=samples,
        waits=measure_waits(profile, kept),
        rounds=len(kept.rounds),
        rounds_dropped=len(incomplete_rounds(profile, kept)),
        world_size=profile.world_size,
        nodes=profile.nodes,
        rungs=kept.rungs,
        stalls=stalls,
        seen=seen,
        skipped=missing_stalls(profile, kept.rungs, seen),
        paper=paper,
        stability=check_stability(profile, kept, stalls, samples, unlike),
        rates=rates,
        communication=measure_communication(profile, kept, stalls),
        slow_rank=None if slow is None else slow.record,
        by_waits=kept.by_waits,
        surfacing=find_surfacing(kept.rungs, stalls, rates, samples),
        host_lead=host_lead(profile, kept.rungs[0]),
        startup_seconds=_sum_startups(profile),
        as_typed=typed,
        disturbed=disturbed,
        run=run,
        notes=(*_remarks(profile, stalls, rates, paper), *profile.notes),
    )


def _account_as_typed(
    measured: Profile,
    calm: Undisturbed,
    kept: StepTimes,
    stalls: Sequence[Stall],
    seconds: float,
) -> tuple[AsTyped | None, RunAccount | None]:
    """The first steps against what was measured, and the account of an epoch."""
    levels = {name: level(kept.matrix, at) for at, name in enumerate(kept.rungs)}
    typed = compare_first_steps(measured, calm, levels, kept.rounds)
    return typed, account_for_run(
        measured,
        {stall.name: stall.time for stall in stalls},
        seconds,
        kept.rungs[0],
        longer_seconds=0.0 if typed is None else typed.unnamed_seconds,
        lost_share=lost_share(measured, calm),
        leader_is_slow=kept.leader_is_slow,
    )


def _is_worth_a_warning(typed: AsTyped, run: RunAccount | None, stalls: Sequence[Stall]) -> bool:
    """Whether first steps differ from measured ones by what has no row, and leave the verdict standing."""
    own = 0.0 if run is None else run.own_seconds
    is_other = is_other_job(typed, own, {stall.name: stall.seconds for stall in stalls})
    return typed.differs and not is_explained(typed, own) and not is_other


def _divide_step(
    profile: Profile,
    matrix: Matrix,
    kept: StepTimes,
    seen: Seen | None,
    disturbed: Disturbance | None,
) -> tuple[tuple[Stall, ...], float, Interval]:
    """The stalls of the mean step, in ladder order, the seconds they add up to, and the interval of those.

    ``matrix``: what the stalls are differences of.
    """
    wanders = not explains_rounds(profile, kept)
    entries = estimate(matrix, wanders)
    step = level(matrix, -1) if wanders else mean_interval(matrix[:, -1].tolist())
    seconds = kept.step_seconds if seen is None else sum(entry.value for entry in entries)
    doubts = disturbed.corrections() if disturbed is not None else {}
    if (
        disturbed is not None and seen is not None
    ):  # it was subtracted from what was seen under the lowest rung, too
        doubts = dict.fromkeys(seen.stalls, disturbed.doubt_of(kept.rungs[0])) | doubts
    errors = batch_errors(profile, kept.rungs, kept.rounds)
    if seen is None:
        entries = [each.add_error(error) for each, error in zip(entries, errors, strict=True)]
    stalls = tuple(
        whole_stall(name, time, seconds, doubts.get(name))
        for name, time in zip(all_stalls(kept.rungs, seen), entries, strict=True)
    )
    lost = disturbed.doubt if disturbed is not None else 0.0
    doubt = math.hypot(launch_error(seconds), lost, *errors)
    return stalls, seconds, step.add_error(doubt)


def _sum_startups(profile: Profile) -> float | None:
    startups = [loader.startup_seconds for loader in profile.workload.loaders]
    known = [seconds for seconds in startups if seconds is not None]
    return sum(known) if known else None


def _keep_complete_rounds(profile: Profile, named: str) -> StepTimes:
    kept = step_matrix(profile)
    if not kept.rounds:
        raise StashError(f"{named} has no complete round: {_why_incomplete(profile, kept.rungs)}")
    return kept


def _why_incomplete(profile: Profile, rungs: Sequence[str]) -> str:
    """Why no round is complete, and what to do."""
    ran = {block.rung for block in profile.blocks}
    never = [name for name in rungs if name not in ran]
    reached = "each lacks blocks of some rank"
    if never or not ran:
        reached = "nothing was measured" + (f" under {', '.join(never)}" if ran else "")
    ended = f" (the run ended: {profile.ended})" if profile.ended else ""
    return f"{reached}{ended}; profile again with a larger --budget"


def _refuse_damaged(profile: Profile, named: str) -> None:
    if profile.blocks and not profile.ranks:
        raise ArtefactError(
            f"{named} is damaged: it names no rank; profile again", code="artefact_damaged"
        )
    for block in profile.blocks:
        if block.steps > 0 and not 0 < block.seconds < math.inf:
            raise ArtefactError(
                f"{named} is damaged: rank {block.rank}'s steps under {block.rung} in round {block.round} are said "
                f"to take {block.seconds:g} s; profile again",
                code="artefact_damaged",
            )


def _paper(profile: Profile, kept: StepTimes) -> Paper:
    """The paper's percentages; its formulas stand in ``docs/method.md``."""
    times = dict(zip(kept.rungs, kept.matrix.mean(axis=0).tolist(), strict=True))
    one_node = times.get("node")
    if one_node is None and profile.nodes > 1 and max(ranks_per_node(profile).values()) == 1:
        one_node = times.get("crowd")  # a node of one device exchanges nothing

    def percent(longer: float | None, shorter: float | None, whole: float | None) -> float | None:
        if longer is None or shorter is None or not whole:
            return None
        return (longer - shorter) / whole * 100

    return Paper(
        interconnect_pct=percent(times.get("node"), times.get("solo"), times.get("node")),
        network_pct=percent(times.get("cluster"), one_node, one_node),
        prep_pct=percent(times.get("warm"), times.get(kept.top_replay or ""), times.get("warm")),
        fetch_pct=percent(times.get("cold"), times.get("warm"), times.get("cold")),
    )


# Remarks

NOT_TRAINING = 0.01
"""Of the measured steps: less time than that between them is not worth a sentence."""


def _remarks(
    profile: Profile,
    stalls: tuple[Stall, ...],
    speeds: Rates,
    paper: Paper,
) -> list[str]:
    """Sentences on figures of the breakdown that seem to contradict each other: which they are, and why both hold."""
    found = [_negative(stalls)]
    prep = next((stall for stall in stalls if stall.name == "prep"), None)
    if (
        prep is not None
        and prep.significant
        and speeds.device
        and speeds.prep
        and speeds.prep >= speeds.device
    ):
        faster, slower = f"{format_pace(speeds.prep)} samples/s", format_pace(speeds.device)
        why = "side by side, loading and training slow each other down"
        if profile.workload.loaders and profile.workload.loaders[0].workers == 0:
            why = "without workers nothing is prepared while a step trains"
        found.append(
            f"The loaders alone are faster ({faster}) than the devices ({slower}), and yet there is a prep stall: "
            f"{why}."
        )
    if paper.network_pct is not None:
        found.append(
            f"The paper's network percentage compares {profile.nodes} nodes with one node of this job "
            "(weak scaling), not with one node of as many devices."
        )
    other: dict[int, float] = defaultdict(float)
    steps: dict[int, float] = defaultdict(float)
    for block in profile.blocks:
        other[block.rank] += block.interrupted_seconds
        steps[block.rank] += block.seconds
    rank = max(other, key=lambda each: other[each], default=None)
    if rank is not None and other[rank] > NOT_TRAINING * steps[rank]:
        found.append(
            f"Other than training: {format_seconds(other[rank])} on top of {format_seconds(steps[rank])} of measured "
            "steps, in evaluations and between epochs, which is part of no step; while Stash measures, a loop that "
            "does not train gets one batch of its loader."
        )
    return [text for text in found if text]


def _negative(stalls: tuple[Stall, ...]) -> str:
    """A stall below zero, and with it shares beyond the whole; empty without one."""
    written = make_figures(stalls)
    below = [stall for stall in stalls if written.times[stall.name] < 0]
    if not below:
        return ""
    names = " and ".join(f"{stall.name} ({written.time(stall.name)})" for stall in below)
    text = f"A step was measured as shorter with {names} than without"
    if any(stall.share > 1 + 1e-3 for stall in stalls):
        text += ", so other shares exceed 100%"
    if all(stall.within_noise for stall in below):
        return f"{text}: that is noise around a stall close to zero, shown as it was measured."
    if any(stall.low is None for stall in below):
        return f"{text}: shown as measured; whether that is noise, one round cannot tell."
    if {stall.name for stall in below} == {"network"} and "interconnect" in written.times:
        return f"{text}, beyond the noise: each node exchanges by itself over slower routes than all nodes together."
    return f"{text}, beyond the noise: the rung below ran under worse conditions, such as a lower clock."
