"""The report of a probe: what was found about the machines first, then what each is and what its links carry."""

from __future__ import annotations

from stash.base.records import Probe
from stash.base.words.counting import counted
from stash.base.words.quantities import listed
from stash.derive.findings import Reading
from stash.show.probe.view import view
from stash.show.report.hosts import link_charts, machines
from stash.show.report.page import Chapter, Page


def page(probe: Probe, reading: Reading, source: str) -> Page:
    """The report of one probe, saved as ``source``."""
    shown = view(probe, reading, source)
    names = list(dict.fromkeys(host.hostname for host in probe.hosts))
    several = len(probe.hosts) > 1
    return Page(
        title=listed(names, most=4),
        source=source,
        subtitle=(counted(len(probe.hosts), "machine"), "links measured by stash probe"),
        verdict=shown.findings,
        next_steps=shown.next_steps,
        chapters=(
            Chapter("hosts", "The machines", label="Machines", grids=(machines(probe.hosts),)),
            Chapter("links", "The links", label="Links", charts=link_charts(reading, several)),
            Chapter("tables", "Every link, beside the catalog", label="Tables", grids=shown.grids),
            Chapter("unknown", "What is not known, and notes", label="Notes", facts=shown.notes),
        ),
        made=f"{probe.created.replace('T', ' ')[:16]} UTC, Stash {probe.stash_version}",
    )
