"""A saved probe, read: links, curves, findings, comparison and next step, from the probe and the catalog alone.

This is the one place that knows which module answers which question. Pure: the same probe and catalog always give
the same reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from stash.analysis.findings.against import (
    Comparison,
    Near,
    compare,
    nearest_types,
    network_shortfalls,
    shortfall_findings,
)
from stash.analysis.findings.inside import inside_findings
from stash.analysis.findings.machine import (
    Finding,
    machine_findings,
    model_of,
    network_findings,
    working_gpus,
)
from stash.analysis.findings.part_checks import is_disturbed, standing_findings, state_findings
from stash.analysis.findings.rates import Curve, Link, exchange_rate, list_links, make_curve
from stash.analysis.findings.standings import FigureStanding, PastProbe, compare_figures
from stash.catalog.facts import GpuFacts, Instance
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.records.base import Record
from stash.core.records.host import Host, Probe


class Likeness(Record):
    """The types that one machine of unknown type is most like."""

    hostname: str
    types: tuple[Near, ...]


class Reading(Record):
    """Everything derived from one probe."""

    links: tuple[Link, ...]
    exchanges: tuple[Curve, ...]
    findings: tuple[Finding, ...]
    comparisons: tuple[Comparison, ...] = ()
    """One for each host whose type is known, or all against the type that was asked for."""
    nearest: tuple[Likeness, ...] = ()
    notes: tuple[str, ...] = ()
    standings: tuple[FigureStanding, ...] = ()
    """Figures against their like, where there is any."""


def read_probe(
    probe: Probe, catalog: Catalog, against: str | None = None, past: Sequence[Probe] = ()
) -> Reading:
    """The reading of ``probe``; ``against`` names the type every host is held to, else each is held to its own.

    ``past``: earlier probes, of which those of machines like these are peers.
    Raises UserError with the nearest names when ``against`` is not in the catalog.
    """
    wanted = catalog.instance(against) if against is not None else None
    hosts = probe.hosts
    types = [wanted or _type_of(host, catalog) for host in hosts]
    findings: list[Finding] = []
    comparisons, nearest = [], []
    for node, (host, reference) in enumerate(zip(hosts, types, strict=True)):
        findings += [*machine_findings(host, reference, catalog), *inside_findings(host, reference)]
        findings += state_findings(host)
        if reference is not None:
            findings += shortfall_findings(hosts, node, reference)
            comparisons.append(compare(hosts, node, reference))
        elif host.instance is None and (alike := nearest_types(hosts, node, catalog)):
            nearest.append(Likeness(hostname=host.hostname, types=alike))
    findings += network_findings(hosts)
    # What is between nodes belongs to all of them: held to a type only if they are all of it.
    if types and types[0] is not None and all(reference == types[0] for reference in types):
        findings += network_shortfalls(hosts, types[0])
    standing = _stand_against_past(probe, catalog, past)
    findings += [finding for host in hosts for finding in standing_findings(host, standing)]
    return Reading(
        links=tuple(link for node, host in enumerate(hosts) for link in list_links(host, node)),
        exchanges=tuple(
            make_curve(exchange, host.hostname)
            for host in hosts
            for exchange in (host.links.exchanges if host.links is not None else ())
        ),
        findings=tuple(findings),
        comparisons=tuple(comparisons),
        nearest=tuple(nearest),
        notes=tuple(_list_notes(hosts, types)),
        standings=standing,
    )


def _stand_against_past(
    probe: Probe, catalog: Catalog, past: Sequence[Probe]
) -> tuple[FigureStanding, ...]:
    sheets = {
        host.hostname: sheet
        for host in probe.hosts
        if (sheet := _sheet_of(host, catalog)) is not None
    }
    like = [
        PastProbe(hostname=one.hosts[0].hostname, created=one.created, links=every_link(one.hosts))
        for one in past
        if one.created != probe.created
        and are_alike(one, probe)
        and not any(map(is_disturbed, one.hosts))
    ]
    return compare_figures(every_link(probe.hosts), like, sheets)


def _list_notes(hosts: Sequence[Host], types: Sequence[Instance | None]) -> Iterator[str]:
    known = zip(hosts, types, strict=True)
    for name in sorted({h.instance for h, reference in known if h.instance and reference is None}):
        yield (
            f"the catalog does not know {name}, so nothing is compared with it (`stash catalog refresh` may "
            "add it)"
        )
    for gpu in (gpu for host in hosts for gpu in host.gpus if "MIG" in gpu.name):
        yield (
            f"GPU {gpu.index} is a slice, {gpu.name}: data sheets are of whole GPUs, so it is only compared with "
            "other slices"
        )


def are_alike(one: Probe, other: Probe) -> bool:
    """Whether two probes are of as many machines of the same type: as the cloud names it, else by what they have."""

    def kind(host: Host) -> tuple[object, ...]:
        gpus = tuple(gpu.name for gpu in working_gpus(host))
        return (host.instance, gpus) if host.instance else (host.cpu, host.cores, gpus)

    return [kind(host) for host in one.hosts] == [kind(host) for host in other.hosts]


def every_link(hosts: Sequence[Host]) -> tuple[Link, ...]:
    """All figures of a probe, all-reduces among them."""
    return tuple(
        link
        for node, host in enumerate(hosts)
        for link in (*list_links(host, node), *exchange_links(host, node))
    )


def exchange_links(host: Host, node: int) -> tuple[Link, ...]:
    """One message of each all-reduce as a figure."""
    exchanges = host.links.exchanges if host.links is not None else ()
    found = [(each, rated) for each in exchanges if (rated := exchange_rate(each)) is not None]
    return tuple(
        Link(
            hostname=host.hostname,
            node=node,
            part="exchanges",
            member="",
            unit="bytes/s",
            group=f"all-reduce, {each.backend}, {each.ranks} ranks on {each.nodes}, {size} bytes",
            rate=rate,
        )
        for each, (size, rate) in found
    )


def _sheet_of(host: Host, catalog: Catalog) -> GpuFacts | None:
    """Of its GPUs, where they are of one known variant and no slices of one: those have their own figures."""
    gpus = working_gpus(host)
    if (
        not gpus
        or any("MIG" in gpu.name for gpu in gpus)
        or len({model_of(gpu, catalog) for gpu in gpus}) != 1
    ):
        return None
    with suppress(UserError):
        return catalog.gpu(gpus[0].name)
    return None


def _type_of(host: Host, catalog: Catalog) -> Instance | None:
    for name in (f"{host.cloud}/{host.instance}", host.instance) if host.instance else ():
        with suppress(UserError):
            return catalog.instance(name)
    return None
