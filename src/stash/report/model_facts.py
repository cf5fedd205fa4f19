"""What a profile says of the model and how ranks share it: mesh, tokens, FLOPs, the schedule of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from stash.analysis.breakdown import Breakdown
from stash.analysis.model_flops import ModelFlops, model_flops
from stash.analysis.pipeline_schedule import idle_share
from stash.analysis.seen import HANDED_ON, expert_loads, phase_seconds
from stash.catalog.shipped import gpus
from stash.core.records.parallel import MeshAxis, PipelineSchedule
from stash.core.records.profile import Profile
from stash.core.units import format_bytes, format_count, format_pace, format_seconds

_WORDS = {
    "dp": "data",
    "ddp": "data",
    "dp_replicate": "replicas",
    "replicate": "replicas",
    "dp_shard": "shards",
    "fsdp": "shards",
    "shard": "shards",
    "pp": "pipeline",
    "tp": "tensor",
    "cp": "context",
    "sp": "sequence",
    "ep": "experts",
    "expert": "experts",
}
"""What axes are usually called, in words; others keep their names."""


def shared_among(profile: Profile) -> str:
    """``"data 2 × tensor 2"``; empty where no mesh says how ranks share the work."""
    axes = [axis for axis in profile.workload.mesh if axis.ranks > 1]
    return " × ".join(f"{_word(axis)} {axis.ranks}" for axis in axes)


def model_facts(breakdown: Breakdown, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Lines for the details: label and text."""
    found = model_flops(breakdown, profile, gpus())
    lines = [
        ("ranks share", _places(profile)),
        ("pipeline", _pipeline(profile.workload.pipeline)),
        ("bubble", bubble_parts(breakdown) or _no_bubble(breakdown, profile)),
        *(("groups", text) for text in _groups(breakdown, profile)),
        *(("experts", text) for text in _experts(profile)),
        ("phases", _phases(breakdown, profile)),
        ("embeddings", _embeddings(breakdown, profile)),
        ("host ahead", _host_ahead(breakdown)),
        ("tokens", _tokens(found)),
        (
            "FLOPs",
            "; ".join(_flops(found)) if any(rank.device != "cpu" for rank in profile.ranks) else "",
        ),
    ]
    return tuple((label, text) for label, text in lines if text)


def document(breakdown: Breakdown, profile: Profile) -> dict[str, Any]:
    """The same for programs: ``model`` of ``stash show --json``; null is unknown."""
    found, schedule = model_flops(breakdown, profile, gpus()), profile.workload.pipeline
    bubble = breakdown.seen.bubble if breakdown.seen else None
    return {
        "mesh": [axis.model_dump() for axis in profile.workload.mesh],
        "pipeline": None
        if schedule is None
        else {
            **schedule.model_dump(exclude={"orders"}),
            "idle_share": round_digits(idle_share(schedule)),
        },
        "groups": [axis.model_dump() for axis in profile.workload.groups],
        "embeddings": [table.model_dump() for table in profile.workload.embeddings],
        "waits": [all_significant(each.model_dump()) for each in breakdown.seen.waits]
        if breakdown.seen
        else [],
        "experts": [all_significant(each.model_dump()) for each in expert_loads(profile)],
        "phases": {
            name: round_digits(took)
            for name, took in phase_seconds(profile, breakdown.rungs[-1]).items()
        },
        "bubble": all_significant(bubble.model_dump()) if bubble else None,
        **all_significant(vars(found)),
    }


def round_digits(value: float | None, digits: int = 4) -> float | None:
    """Rounded to so many digits, which is all that a measurement is worth."""
    return None if value is None else float(f"{value:.{digits}g}")


def all_significant(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round_digits(value) if isinstance(value, float) else value
        for name, value in facts.items()
    }


def _word(axis: MeshAxis) -> str:
    return _WORDS.get(axis.name.lower(), axis.name)


def _places(profile: Profile) -> str:
    """Each axis, and where its groups lie."""
    where = {True: ", across nodes", False: ", inside nodes", None: ""}
    several = len(profile.hosts) > 1
    axes = [axis for axis in profile.workload.mesh if axis.ranks > 1]
    text = "; ".join(
        f"{_word(axis)} {axis.ranks}{where[axis.across_nodes] if several else ''}" for axis in axes
    )
    if not axes or math.prod(axis.ranks for axis in axes) == profile.world_size:
        return text
    return f"{text}: that does not make {profile.world_size} ranks, so each wait is taken for one of all of them"


def _pipeline(schedule: PipelineSchedule | None) -> str:
    if schedule is None:
        return ""
    text = f"{schedule.name}, {format_count(schedule.stages, 'stage')}, {schedule.microbatches} microbatches"
    idle = idle_share(schedule)
    if idle is None:
        return f"{text}: in which order its ranks work is unknown, and so what they must idle"
    text += (
        f": ranks idle {idle:.1%} of its passes if stages take equally long and messages no time"
    )
    twice = (
        None
        if schedule.orders and schedule.stages != schedule.ranks
        else idle_share(schedule.model_copy(update={"microbatches": 2 * schedule.microbatches}))
    )
    return (
        text
        if twice is None
        else f"{text}, {twice:.1%} with {2 * schedule.microbatches} microbatches"
    )


def bubble_parts(breakdown: Breakdown) -> str:
    """What makes the bubble, largest first; empty without one."""
    found = None if breakdown.seen is None else breakdown.seen.bubble
    if found is None:
        return ""
    text = f"{format_seconds(found.schedule)} a step is what the schedule must leave idle"
    if found.slowest_stage is None or found.slowest_ratio is None:
        why = "stages are about as slow as each other"
    else:
        why = f"stage {found.slowest_stage} is {found.slowest_ratio:.2f} times as slow as the mean"
    text += f", {format_seconds(found.unequal)} unequal passes: {why}"
    return f"{text}; messages come {format_seconds(found.late)} late, which counts as exchange"


def _no_bubble(breakdown: Breakdown, profile: Profile) -> str:
    """Why a pipeline has none."""
    seen = breakdown.seen
    if (
        profile.workload.pipeline is None
        or seen is None
        or all(each.kind not in HANDED_ON for each in seen.waits)
    ):
        return ""
    return (
        "unknown: no round has the same passes, step after step, of every stage (ragged microbatches, a stage that "
        "was not seen); what stages wait for each other is in compute"
    )


def _groups(breakdown: Breakdown, profile: Profile) -> Iterator[str]:
    """What ranks wait for in each group, by kind of collective, and the bytes of rank 0."""
    if breakdown.seen is None:
        return
    used = {(each.name, each.kind): each for each in profile.workload.groups}
    for wait in sorted(breakdown.seen.waits, key=lambda each: -each.seconds):
        facts = used.get((wait.name, wait.kind))
        size = f", {format_bytes(facts.bytes)} in {facts.calls:g} calls" if facts else ""
        hidden = "" if wait.hidden is None else f", {wait.hidden:.0%} hidden"
        slower = (
            f", {format_seconds(wait.slower)} of it for a slower rank" if wait.slower > 0 else ""
        )
        apart = (
            f", {format_seconds(wait.exchange)} in all for its exchange, which ends apart"
            if wait.apart > 0
            else ""
        )
        yield (
            f"{_WORDS.get(wait.name.lower(), wait.name)} {wait.kind}: {format_seconds(wait.seconds)} waited a step"
            f"{slower}{apart}{hidden}{size}"
        )


def _experts(profile: Profile) -> Iterator[str]:
    for load in expert_loads(profile):
        group = _WORDS.get(load.name.lower(), load.name)
        yield (
            f"of group {group}: rank {load.rank} gets {load.ratio:.2f} times the {load.rows:,.0f} rows a step of the "
            f"mean rank; of {format_seconds(load.slower)} that ranks wait for slower ones, even loads would save "
            f"{format_seconds(load.saves)}"
        )


def _phases(breakdown: Breakdown, profile: Profile) -> str:
    """Those that the script names, longest first, and what of a step is in none."""
    found = phase_seconds(profile, breakdown.rungs[-1])
    if not found:
        return ""
    named = [
        f"{name} {format_seconds(took)} ({took / breakdown.step_seconds:.0%})"
        for name, took in sorted(found.items(), key=lambda each: -each[1])
    ]
    rest = breakdown.step_seconds - sum(found.values())
    return f"{', '.join(named)}; {format_seconds(rest)} of a step in none"


def _embeddings(breakdown: Breakdown, profile: Profile) -> str:
    """All tables together: lookups, how many are distinct, the hottest row, gradients, time of the forward pass."""
    tables = profile.workload.embeddings
    lookups = sum(table.lookups for table in tables)
    if not lookups:
        return ""
    hot = max(tables, key=lambda table: table.hottest)
    text = (
        f"{format_count(len(tables), 'table')}, {lookups:,} lookups a step and rank, "
        f"{sum(table.distinct for table in tables) / lookups:.0%} of them of distinct rows; in the most skewed table "
        f"({hot.rows:,} rows) {hot.hottest:.0%} of lookups hit one row; gradients of "
        f"{format_bytes(sum(table.gradient_bytes for table in tables))}"
    )
    seconds = [table.forward_seconds for table in tables if table.forward_seconds is not None]
    share = (
        f"; looking up takes {sum(seconds) / breakdown.step_seconds:.1%} of the step"
        if seconds
        else ""
    )
    return text + share


def _tokens(found: ModelFlops) -> str:
    if found.tokens_per_step is None or found.tokens_per_second is None:
        return ""
    padding = "" if found.padding is None else f", {found.padding:.0%} of them padding"
    return f"{found.tokens_per_step:,.0f} a step, {format_pace(found.tokens_per_second)} a second{padding}"


def _host_ahead(breakdown: Breakdown) -> str:
    lead = breakdown.host_lead
    if lead is None:
        return ""
    what = (
        f"at most {format_seconds(lead.seconds)} of a step of {format_seconds(lead.step_seconds)}"
    )
    return (
        f"{what}: the device waits for the host to submit its kernels" if lead.too_short else what
    )


def _flops(found: ModelFlops) -> Iterator[str]:
    if found.counted is None or found.counted_per_second is None:
        return
    text = f"{found.counted / 1e12:.3g} TFLOP a step and device, {found.counted_per_second / 1e12:.3g} TFLOP/s"
    if found.counted_share is None or found.peak_per_second is None:
        yield text
        return
    peak = f"{found.peak_per_second / 1e12:.4g} TFLOP/s of {found.gpu} in {found.precision}"
    yield f"{text}: {found.counted_share:.1%} of {peak} (HFU: what is recomputed counts)"
    if found.model_share is not None:
        yield f"6 × parameters × tokens are {found.model_share:.1%} of it (MFU)"
