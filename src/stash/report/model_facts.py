"""What a profile says of the model and how ranks share it: mesh, tokens, FLOPs, the schedule of a pipeline; energy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stash.analysis.breakdown import Breakdown
from stash.analysis.model_flops import ModelFlops, model_flops
from stash.analysis.pipeline_schedule import idle_share
from stash.analysis.seen import HANDED_ON, expert_loads, phase_seconds
from stash.analysis.usage import step_energy
from stash.catalog.shipped import gpus
from stash.core.formatting import format_dollars, plus_minus
from stash.core.records.circumstances import EnergyPart, EnergyUse
from stash.core.records.profile import PipelineSchedule, Profile
from stash.core.units import format_bytes, format_count, format_pace, format_seconds, scale_for

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
    return " × ".join(f"{_word(axis.name)} {axis.ranks}" for axis in axes)


def model_facts(breakdown: Breakdown, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Lines for the details: label and text."""
    found = model_flops(breakdown, profile, gpus())
    on_devices = not profile.is_on_cpu
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
        ("FLOPs", "; ".join(_flops(found)) if on_devices else ""),
        ("energy", energy_text(breakdown, profile)),
    ]
    return tuple((label, text) for label, text in lines if text)


def document(breakdown: Breakdown, profile: Profile) -> dict[str, Any]:
    """The same for programs: ``model`` of ``stash show --json``; null is unknown."""
    work = profile.workload
    seen = breakdown.seen
    schedule = work.pipeline
    bubble = seen.bubble if seen else None
    pipeline = None
    if schedule is not None:
        idle = round_digits(idle_share(schedule))
        pipeline = {**schedule.model_dump(exclude={"orders"}), "idle_share": idle}
    return {
        "mesh": [axis.model_dump() for axis in work.mesh],
        "pipeline": pipeline,
        "groups": [axis.model_dump() for axis in work.groups],
        "embeddings": [table.model_dump() for table in work.embeddings],
        "waits": [all_significant(each.model_dump()) for each in (seen.waits if seen else ())],
        "experts": [all_significant(each.model_dump()) for each in expert_loads(profile)],
        "phases": all_significant(phase_seconds(profile, breakdown.rungs[-1])),
        "bubble": all_significant(bubble.model_dump()) if bubble else None,
        **all_significant(vars(model_flops(breakdown, profile, gpus()))),
    }


def round_digits(value: float | None, digits: int = 4) -> float | None:
    """Rounded to so many digits, which is all that a measurement is worth."""
    return None if value is None else float(f"{value:.{digits}g}")


def all_significant(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round_digits(value) if isinstance(value, float) else value
        for name, value in facts.items()
    }


def _word(axis: str) -> str:
    return _WORDS.get(axis.lower(), axis)


def _places(profile: Profile) -> str:
    """Each axis, and where its groups lie."""
    where = {True: ", across nodes", False: ", inside nodes", None: ""}
    several = len(profile.hosts) > 1
    axes = [axis for axis in profile.workload.mesh if axis.ranks > 1]
    text = "; ".join(
        f"{_word(axis.name)} {axis.ranks}{where[axis.across_nodes] if several else ''}"
        for axis in axes
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
    if schedule.orders and schedule.stages != schedule.ranks:
        return text
    count = 2 * schedule.microbatches
    twice = idle_share(schedule.model_copy(update={"microbatches": count}))
    return text if twice is None else f"{text}, {twice:.1%} with {count} microbatches"


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
        slower = ""
        apart = ""
        if wait.slower > 0:
            slower = f", {format_seconds(wait.slower)} of it for a slower rank"
        if wait.apart > 0:
            apart = f", {format_seconds(wait.exchange)} in all for its exchange, which ends apart"
        yield (
            f"{_word(wait.name)} {wait.kind}: {format_seconds(wait.seconds)} waited a step"
            f"{slower}{apart}{hidden}{size}"
        )


def _experts(profile: Profile) -> Iterator[str]:
    for load in expert_loads(profile):
        yield (
            f"of group {_word(load.name)}: rank {load.rank} gets {load.ratio:.2f} times the {load.rows:,.0f} rows "
            f"a step of the mean rank; of {format_seconds(load.slower)} that ranks wait for slower ones, even loads "
            f"would save {format_seconds(load.saves)}"
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
    if not seconds:
        return text
    return f"{text}; looking up takes {sum(seconds) / breakdown.step_seconds:.1%} of the step"


def _tokens(found: ModelFlops) -> str:
    if found.tokens_per_step is None or found.tokens_per_second is None:
        return ""
    padding = "" if found.padding is None else f", {found.padding:.0%} of them padding"
    return f"{found.tokens_per_step:,.0f} a step, {format_pace(found.tokens_per_second)} a second{padding}"


def _host_ahead(breakdown: Breakdown) -> str:
    lead = breakdown.host_lead
    if lead is None:
        return ""
    text = (
        f"at most {format_seconds(lead.seconds)} of a step of {format_seconds(lead.step_seconds)}"
    )
    why = ": the device waits for the host to submit its kernels" if lead.too_short else ""
    return text + why


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


_ENERGY = ((3.6e6, "kWh"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"))


def energy_text(breakdown: Breakdown, profile: Profile) -> str:
    """``"12.3 ± 0.4 J a step at 120 W, 1.20 kWh an epoch ($0.18): …"``; empty where nothing was counted."""
    found = step_energy(breakdown, profile.energy)
    if found is None:
        return ""
    scale = scale_for(found.joules.value, _ENERGY)
    text = (
        f"{scale.number(found.joules.value)} {plus_minus(found.joules, scale)} {scale.unit} a step"
    )
    text += f" at {found.watts:,.0f} W"
    if found.epoch_joules is not None:
        text += f", {format_energy(found.epoch_joules)} an epoch"
        text += cost_text(found.epoch_dollars)
    where = "" if breakdown.nodes == 1 else " of the first node"
    return f"{text}: {parts_text(found.parts)}{where}, nothing else"


def cost_text(dollars: float | None) -> str:
    """In brackets; empty if it is unknown."""
    if dollars is None:
        return ""
    return f" ({format_dollars(dollars)})" if dollars >= 0.005 else " (less than a cent)"


def parts_text(parts: Mapping[EnergyPart, float]) -> str:
    """``"processors 30.1 J and GPUs 200 J"``, as far as they were counted."""
    names = {"packages": "processors", "gpus": "GPUs"}
    return " and ".join(f"{names[part]} {format_energy(joules)}" for part, joules in parts.items())


def unknown_energy(use: EnergyUse | None) -> str:
    """Why what was not counted was not; empty where all was, or nothing was tried."""
    if use is None:
        return ""
    return "; ".join(f"{part} unknown: {why}" for part, why in use.unknown.items())


def format_energy(joules: float) -> str:
    """``"12.3 J"``, ``"1.20 kWh"``."""
    return scale_for(joules, _ENERGY).text(joules)


def energy_document(breakdown: Breakdown, profile: Profile) -> dict[str, Any] | None:
    """``energy`` of ``stash show --json``; null was not read, and ``step`` is null where nothing was counted."""
    use, found = profile.energy, step_energy(breakdown, profile.energy)
    if use is None:
        return None
    step = None
    if found is not None:
        joules = all_significant(found.joules.model_dump())
        step = {**all_significant(found.model_dump()), "joules": joules}
    return {"step": step, "counts": use.counts, "unknown": use.unknown}
