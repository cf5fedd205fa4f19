"""The chapter about machines: what each is, what its links carry, what was found about them."""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.records import Host, Probe, Profile
from stash.base.words.quantities import listed
from stash.derive.findings import Reading
from stash.show.charts import linking
from stash.show.charts.chart import Blank, Chart
from stash.show.grid import Grid
from stash.show.probe.view import machine, view
from stash.show.report.page import Chapter

_NOT_PROBED = (
    "the machines were not probed: `stash probe` measures their links, and `stash report --probe FILE` adds them"
)


def probe_of(profile: Profile) -> Probe | None:
    """The links that a profile's hosts have, as the probe that measured them; ``None`` if they have none."""
    measured = [host.links for host in profile.hosts if host.links is not None]
    if not measured:
        return None
    return Probe(
        stash_version=profile.stash_version,
        created=min(links.created for links in measured),
        hosts=profile.hosts,
        budget_seconds=0.0,
        elapsed_seconds=max(links.elapsed_seconds for links in measured),
    )


def host_chapter(profile: Profile, reading: Reading | None) -> Chapter:
    """The machines of a profile, with the reading of their links where they were probed."""
    probe, title = probe_of(profile), "The machines"
    if probe is None or reading is None:
        blank = Blank("links", "Links", _NOT_PROBED)
        return Chapter("hosts", title, label="Machines", charts=(blank,), grids=(machines(profile.hosts),))
    shown = view(probe, reading)
    return Chapter(
        "hosts", title, label="Machines", charts=link_charts(reading, len(profile.hosts) > 1),
        grids=(machines(profile.hosts), *shown.grids), points=shown.findings, facts=shown.notes,
    )  # fmt: skip


def link_charts(reading: Reading, several: bool) -> tuple[Chart | Blank, ...]:
    """What links carry, and all-reduce by size."""
    return linking.links(reading, several), linking.all_reduce(reading.exchanges)


_MOST_COLUMNS = 6


def machines(hosts: Sequence[Host]) -> Grid:
    """What the hosts are, a column each; those that are alike share one, and of very many kinds some are shown."""
    sheets = [machine(host, node, len(hosts) > 1) for node, host in enumerate(hosts)]
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for sheet in sheets:
        alike.setdefault(sheet.facts, []).append(sheet.title)
    labels = dict.fromkeys(label for facts in alike for label, _ in facts)
    columns = [dict(facts) for facts in alike][:_MOST_COLUMNS]
    left_out = sum(len(names) for names in list(alike.values())[_MOST_COLUMNS:])
    return Grid(
        title="",
        head=tuple(listed(names, most=4) for names in list(alike.values())[:_MOST_COLUMNS]),
        rows=tuple((label, *(column.get(label, "none stated") for column in columns)) for label in labels),
        texts=frozenset(range(1 + len(columns))),
        below=f"{left_out} more machines differ from these in some of it." if left_out else "",
    )
