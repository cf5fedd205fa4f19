"""What other tools get of a profile: facts as text, figures as numbers, the verdict as a sentence. Pure.

Names are the same everywhere, with a slash where a tool groups by it: ``stall/prep_seconds``. What is unknown is left
out, since none of the tools can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import recorded_facts
from stash.analysis.step_times import step_matrix
from stash.core.artefact import to_bytes
from stash.core.ladder import rung
from stash.core.printable import printable_line
from stash.core.records.profile import Profile
from stash.store.storage import digest_of

_MAX_FACT = 250
"""Characters of a fact; MLflow's oldest servers take as many."""


@dataclass(frozen=True)
class ExportedRun:
    """One profile, ready to be handed over."""

    id: str
    """Of its content: the same profile is the same run, however often it is exported."""
    workload: str
    created: str
    """ISO 8601 in UTC."""
    facts: dict[str, str]
    """Of job, machines and software, as comparisons name them."""
    figures: dict[str, float]
    """Seconds per step, shares of it from 0 to 1, samples per second."""
    rounds: dict[str, tuple[float, ...]]
    """Seconds of a step under each rung, round after round."""
    verdict: str
    artefact: bytes
    """The profile's own file."""

    @property
    def title(self) -> str:
        return f"{self.workload} {self.created[:16]}"


def exported(profile: Profile) -> ExportedRun:
    """What is handed over; raises StashError if nothing can be derived."""
    breakdown, content = attribute(profile), to_bytes(profile)
    times = step_matrix(profile)
    return ExportedRun(
        id=digest_of(content),
        workload=printable_line(profile.workload.name, _MAX_FACT),
        created=printable_line(profile.created, _MAX_FACT),
        facts={_name(name): printable_line(value, _MAX_FACT) for name, value in recorded_facts(profile).items()},
        figures=dict(_figures(breakdown)),
        rounds={
            rung(name).name: tuple(float(value) for value in times.matrix[:, number])
            for number, name in enumerate(times.rungs)
        },
        verdict=printable_line(verdict(breakdown, profile).text),
        artefact=content,
    )


def _figures(breakdown: Breakdown) -> Iterator[tuple[str, float]]:
    known = {
        "step_seconds": breakdown.step_seconds,
        "step_low_seconds": breakdown.step.low,
        "step_high_seconds": breakdown.step.high,
        "samples_per_second": breakdown.samples_per_second,
    }
    for stall in breakdown.stalls:
        known[f"stall/{stall.name}_seconds"] = stall.seconds
        known[f"stall/{stall.name}_low_seconds"] = stall.low
        known[f"stall/{stall.name}_high_seconds"] = stall.high
        known[f"stall/{stall.name}_share"] = stall.share
    return ((name, value) for name, value in known.items() if value is not None)


def _name(name: str) -> str:
    """A fact's name in letters that every tool takes."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-./") else "_" for each in name)[:_MAX_FACT]
