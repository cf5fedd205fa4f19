"""Joules of a watched run: the power of its machines' counted parts, as they were looked at, times windows' seconds.

What lies between windows is not in it, nor what no counter shows. Pure.
"""

from __future__ import annotations

import math

from stash.analysis.usage import dollars_of
from stash.core.formatting import format_span
from stash.core.records.base import Count, Number, Record
from stash.core.records.circumstances import EnergyPart
from stash.monitor.records import RunRecord
from stash.report.model_facts import cost_text, format_energy, parts_text


class RunEnergy(Record):
    """Of windows in which every part was counted that ever was, on every machine."""

    joules: Number
    parts: dict[EnergyPart, Number]
    """Joules by what counted them."""
    dollars: Number | None
    steps: Count
    seconds: Number


def run_energy(record: RunRecord) -> RunEnergy | None:
    """``None`` where nothing was counted, or windows do not hold all of the run's machines (more than 8)."""
    watts: list[dict[EnergyPart, float]] = []  # of all machines together, what all of them tell
    for window in record.windows:
        watts_of = [each.watts for each in window.machines]
        is_whole = len(watts_of) >= record.header.nodes
        parts = set.intersection(*map(set, watts_of)) if is_whole else set()
        watts.append({part: math.fsum(each[part] for each in watts_of) for part in sorted(parts)})
    most = sorted({part for each in watts for part in each})
    rows = zip(record.windows, watts, strict=True)
    known = [(window, each) for window, each in rows if most and sorted(each) == most]
    if not known:
        return None
    joules = {
        part: math.fsum(window.seconds * each[part] for window, each in known) for part in most
    }
    total = math.fsum(joules.values())
    return RunEnergy(
        joules=total,
        parts=joules,
        dollars=dollars_of(total, record.header.dollars_per_kwh),
        steps=sum(window.last_step - window.first_step + 1 for window, _ in known),
        seconds=math.fsum(window.seconds for window, _ in known),
    )


def energy_text(found: RunEnergy) -> str:
    """``"1.20 kWh ($0.18) in 5 min of steps, 310 J each: GPUs 0.90 kWh and processors 0.30 kWh, nothing else"``."""
    each = format_energy(found.joules / found.steps)
    return (
        f"{format_energy(found.joules)}{cost_text(found.dollars)} in {format_span(found.seconds)} of steps, {each} each: "
        f"{parts_text(found.parts)}, nothing else"
    )
