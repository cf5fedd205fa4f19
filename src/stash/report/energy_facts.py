"""What a profile says of energy: one line of its details, and the same for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stash.analysis.breakdown import Breakdown
from stash.analysis.energy import step_energy
from stash.core.formatting import format_dollars, plus_minus
from stash.core.records.circumstances import EnergyPart, EnergyUse
from stash.core.records.profile import Profile
from stash.core.units import scale_for
from stash.report.model_facts import all_significant

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
    if found.epoch_dollars is not None:
        text += f" ({format_dollars(found.epoch_dollars)})"
    where = "" if breakdown.nodes == 1 else " of the first node"
    return f"{text}: {parts_text(found.parts)}{where}, nothing else"


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


def document(breakdown: Breakdown, profile: Profile) -> dict[str, Any] | None:
    """``energy`` of ``stash show --json``; null was not read, and ``step`` is null where nothing was counted."""
    use, found = profile.energy, step_energy(breakdown, profile.energy)
    if use is None:
        return None
    step = None
    if found is not None:
        joules = all_significant(found.joules.model_dump())
        step = {**all_significant(found.model_dump()), "joules": joules}
    return {"step": step, "counts": use.counts, "unknown": use.unknown}
