"""A probe as a page and as JSON: what was found about the machines, what each is, what its links carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stash.advice.rental import RentalVerdict
from stash.advice.verdict import next_steps
from stash.analysis.findings.against import Compared, Comparison, Near
from stash.analysis.findings.machine import Finding
from stash.analysis.findings.probe_reading import Reading, every_link
from stash.analysis.findings.rates import Curve, Link
from stash.analysis.findings.standings import differ
from stash.core.formatting import (
    Unit,
    bits_parts,
    format_dollars,
    format_fact,
    format_quantity,
    join_names,
    split_spread,
)
from stash.core.grouping import group_by
from stash.core.intervals import Interval
from stash.core.records.host import Disk, Gpu, Host, Nic, Probe
from stash.core.units import format_bits, format_bytes, format_count, format_rate, format_seconds
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

UNKNOWN = "unknown"
_MAX_FINE = 8
_MAX_COLUMNS = 6


def page(
    probe: Probe, reading: Reading, saved: str | None = None, verdict: RentalVerdict | None = None
) -> Page:
    """What was found, the machines, and their links; ``saved`` is the file it is in, if any.

    With a ``verdict`` what to do with the machines comes first, and what it rests on.
    """
    findings = findings_of(reading, len(probe.hosts) > 1)
    sentences = [f"{format_count(len(findings), 'finding')}." if findings else "No findings."]
    subtitle = [format_count(len(probe.hosts), "machine"), "links measured by stash probe"]
    chapters = [
        Chapter("hosts", "The machines", "Machines", grids=(machines_grid(probe.hosts),)),
        Chapter(
            "tables",
            "Every link, against the catalog",
            "Tables",
            grids=link_grids(probe.hosts, reading),
        ),
        Chapter("unknown", "What is not known, and notes", "Notes", facts=notes(probe, reading)),
    ]
    if verdict is not None:
        sentences.insert(0, verdict.text)
        facts = _rental_facts(verdict)
        chapters.insert(0, Chapter("rental", "Keep it or give it back", "Verdict", facts=facts))
        if verdict.dollars_per_hour is not None:
            price = f"{verdict.instance}, {format_dollars(verdict.dollars_per_hour)} an hour"
            subtitle.append(f"{price} ({verdict.price_source})")
    return Page(
        title=join_names(list(dict.fromkeys(host.hostname for host in probe.hosts)), most=4),
        subtitle=tuple(subtitle),
        verdict=tuple(sentences),
        next_steps=tuple(_next_steps(probe, reading, saved)),
        warnings=findings,
        chapters=tuple(replace(chapter, brief=True) for chapter in chapters),
        made=f"{probe.created.replace('T', ' ')[:16]} UTC, Stash {probe.stash_version}",
    )


def _rental_facts(verdict: RentalVerdict) -> tuple[tuple[str, str], ...]:
    """What the verdict rests on: costs by part, what is as usual, what is unknown."""
    costs = []
    for loss in verdict.losses:
        text = f"unknown: {loss.why}"
        if loss.seconds is not None:
            text = f"{format_quantity(loss.seconds, 'seconds')} a step"
        costs.append((loss.part, text))
    compared = f"1 probe in {1 / verdict.error_rate:.0f} of healthy machines calls some part slow"
    if not verdict.compared:
        compared = "with no other machine: data sheets and the machine itself prove little about one rental"
    return (
        *costs,
        *(("fine", text) for text in verdict.fine[:_MAX_FINE]),
        ("compared", compared),
        ("unknown", "; ".join(verdict.unknown) or "nothing"),
    )


def findings_of(reading: Reading, several: bool) -> tuple[str, ...]:
    """A sentence each, with the machine's name if it is one of ``several``."""
    return tuple(_sentence(finding, several) for finding in reading.findings)


def link_grids(hosts: Sequence[Host], reading: Reading) -> tuple[Grid, ...]:
    """Links, exchanges, what the catalog says of the same machines, and machines like these."""
    several = len(hosts) > 1
    grids = []
    for node, host in enumerate(hosts):
        rows = link_rows([link for link in reading.links if link.node == node])
        title = f"links of node {node}, {host.hostname}" if several else "links"
        head = ("rate", "95 %", "")
        if rows:
            grids.append(Grid(title, head, rows, frozenset({0, 2, 3}), first="link", prose=True))
    # The same exchange inside each of several nodes is one.
    measured = (curve for curve in reading.exchanges if curve.sizes)
    kinds = group_by(measured, lambda curve: (curve.backend, curve.nodes, curve.ranks))
    grids += [_curve(curves, several) for curves in kinds.values()]
    grids += [_comparison(comparison, several) for comparison in reading.comparisons]
    # Machines that are like the same types in the same way share a table.
    tables: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for likeness in reading.nearest:
        alike = tuple((f"{near.cloud} {near.instance}", _nearness(near)) for near in likeness.types)
        tables.setdefault(alike, []).append(likeness.hostname)
    for alike, names in tables.items():
        title = f"{join_names(list(dict.fromkeys(names)))} most like" if several else "most like"
        grids.append(
            Grid(title, ("this machine has",), alike, frozenset({0, 1}), first="type", prose=True)
        )
    return tuple(grids)


def machines_grid(hosts: Sequence[Host]) -> Grid:
    """What the hosts are, a column each; those that are alike share one, and of very many kinds some are shown."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node, host in enumerate(hosts):
        alike.setdefault(tuple(_facts(host)), []).append(
            f"node {node}: {host.hostname}" if len(hosts) > 1 else host.hostname
        )
    labels = dict.fromkeys(label for facts in alike for label, _ in facts)
    columns = [dict(facts) for facts in alike][:_MAX_COLUMNS]
    left_out = sum(len(names) for names in list(alike.values())[_MAX_COLUMNS:])
    below = f"{left_out} more machines differ from these in some of it." if left_out else ""
    head = tuple(join_names(names, most=4) for names in list(alike.values())[:_MAX_COLUMNS])
    rows = tuple(
        (label, *(column.get(label, "none stated") for column in columns)) for label in labels
    )
    return Grid("", head, rows, frozenset(range(1 + len(columns))), below, upright=True)


def _facts(host: Host) -> Iterator[tuple[str, str]]:
    """What a host is, as labelled lines."""
    kind = _join(host.cloud, host.instance, between=" ") or UNKNOWN
    source = f" (from {host.instance_source})" if host.instance and host.instance_source else ""
    numa = f"{host.numa_nodes} NUMA nodes" if (host.numa_nodes or 0) > 1 else ""
    cores = f"{UNKNOWN} number of cores" if host.cores is None else f"{host.cores} cores"
    yield "type", f"{kind}{source}"
    yield "CPU", _join(host.cpu or "model unknown", cores, numa)
    yield "memory", UNKNOWN if host.memory_bytes is None else format_bytes(host.memory_bytes)
    if host.limits is not None:
        cpus, memory, reads = (
            host.limits.cpus,
            host.limits.memory_bytes,
            host.limits.read_bytes_per_second,
        )
        if limits := _join(
            "" if cpus is None else f"{cpus:g} CPUs",
            "" if memory is None else f"{format_bytes(memory)} of memory",
            "" if reads is None else f"reads at {format_rate(reads)}",
        ):
            yield "limits", limits
    yield "GPUs", _gpus(host.gpus)
    kinds: dict[str, list[str]] = {}
    for route in host.routes:
        lanes = format_count(route.nvlinks, "NVLink") if route.nvlinks else route.kind
        kinds.setdefault(lanes, []).append(f"{route.a}-{route.b}")
    if len(kinds) == 1:
        yield "GPU links", f"{next(iter(kinds))} between all pairs"
    elif kinds:
        pairs = (f"{kind}: {join_names(names, most=8)}" for kind, names in kinds.items())
        yield "GPU links", "; ".join(pairs)
    yield "network", "; ".join(map(_nic, host.nics)) or UNKNOWN
    yield "disk", "; ".join(map(_disk, host.disks)) or host.disk or UNKNOWN
    kernel = f"Linux {host.kernel}" if host.kernel else ""
    yield "system", _join(kernel, host.virtualization) or UNKNOWN


def _join(*parts: str | None, between: str = ", ") -> str:
    """Those that are known."""
    return between.join(filter(None, parts))


def _gpus(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "none"
    kinds: dict[str, list[int]] = {}
    for gpu in gpus:
        memory = UNKNOWN if gpu.memory_bytes is None else format_bytes(gpu.memory_bytes)
        link = f", PCIe {gpu.pcie}" if gpu.pcie else ""
        most = f" (of {gpu.pcie_max})" if gpu.pcie_max and gpu.pcie_max != gpu.pcie else ""
        text = f"{gpu.name}, does not answer"
        if gpu.fault is None:
            text = f"{gpu.name}, {memory} each{link}{most}"
        kinds.setdefault(text, []).append(gpu.index)
    alike = [f"{len(indices)} × {text}" for text, indices in kinds.items()]
    return "; ".join(
        [*alike, *(f"driver {d}" for d in sorted({g.driver for g in gpus if g.driver}))]
    )


def _nic(nic: Nic) -> str:
    rate = "rate not stated" if nic.bytes_per_second is None else format_bits(nic.bytes_per_second)
    driver = f" ({nic.driver})" if nic.driver else ""
    return _join(f"{nic.name}{driver} {rate}", nic.rdma and f"RDMA {nic.rdma}")


def _disk(disk: Disk) -> str:
    return _join(
        f"{disk.filesystem or UNKNOWN} on {disk.device or UNKNOWN}",
        disk.model,
        None if disk.size_bytes is None else format_bytes(disk.size_bytes),
        None if disk.free_bytes is None else f"{format_bytes(disk.free_bytes)} free",
    )


def link_rows(links: Sequence[Link]) -> tuple[tuple[str, ...], ...]:
    """One row for each group of links: its name, the slowest one's rate, the spread, which one it is."""
    groups = group_by(links, lambda link: link.group)
    return tuple(_group(name, members) for name, members in groups.items())


def _group(name: str, members: Sequence[Link]) -> tuple[str, ...]:
    slowest = min(members, key=lambda link: link.rate.value)
    fastest = max(members, key=lambda link: link.rate.value)
    value, spread = _rate_parts(slowest.rate, slowest.unit, slowest.part == "streams")
    if len(members) == 1:
        return name, value, spread, slowest.member
    best, _ = _rate_parts(fastest.rate, fastest.unit, slowest.part == "streams")
    return name, value, spread, f"{slowest.member}, slowest of {len(members)}; fastest {best}"


def _rate_parts(rate: Interval, unit: Unit, is_network: bool) -> tuple[str, str]:
    """Value and spread, of networks in bits."""
    return bits_parts(rate) if is_network else split_spread(rate, unit)


ProbedSide = tuple[str, Probe]
"""A probe and the file that it is in."""


def compared_document(before: ProbedSide, after: ProbedSide) -> dict[str, Any]:
    """Every figure that both have, and whether it differs beyond noise: JSON, a contract, see docs/probe.md."""
    first, second = (
        {(link.node, link.group, link.member): link for link in every_link(probe.hosts)}
        for _, probe in (before, after)
    )
    figures = [
        {
            **link.model_dump(exclude={"rate", "hostname", "sustained", "own"}),
            "before": link.rate.model_dump(),
            "after": second[key].rate.model_dump(),
            "differs": differ(link, second[key]),
        }
        for key, link in first.items()
        if key in second
    ]
    return {"before": before[0], "after": after[0], "figures": figures}


def compared_page(before: ProbedSide, after: ProbedSide) -> Page:
    """The same to be read."""
    rows = []
    changed = []
    for each in compared_document(before, after)["figures"]:
        old, new = (Interval(**each[side]) for side in ("before", "after"))
        shown = f"{new.value / old.value - 1:+.1%}" if each["differs"] else "in the noise"
        name = f"{each['group']}, {each['member']}" if each["member"] else each["group"]
        rows.append(
            (name, *split_spread(old, each["unit"]), *split_spread(new, each["unit"]), shown)
        )
        changed += [f"{name} {shown}"] if each["differs"] else []
    head = ("before", "95 %", "after", "95 %", "change")
    grid = Grid("", head, tuple(rows), frozenset({0}), first="figure")
    verdict = f"{join_names(changed)}." if changed else "No figure differs beyond its noise."
    return Page(
        title=f"{before[0]} and {after[0]}", verdict=(verdict,), grids=(grid,) if rows else ()
    )


def _curve(curves: Sequence[Curve], several: bool) -> Grid:
    """The slowest of the ``curves``, which are of one kind."""
    curve = min(curves, key=lambda item: item.sizes[-1].bus_bytes_per_second.value)
    inside = curve.hostname if several else "the node"
    where = f"across {curve.nodes} nodes" if curve.nodes > 1 else f"inside {inside}"
    of_several = f" (slowest of {len(curves)})" if len(curves) > 1 else ""
    rows = []
    for size in curve.sizes:
        time, spread = split_spread(size.seconds, "seconds")
        algorithm, _ = split_spread(size.algorithm_bytes_per_second, "bytes/s")
        bus, _ = split_spread(size.bus_bytes_per_second, "bytes/s")
        rows.append((format_bytes(size.bytes), time, spread, algorithm, bus))
    title = f"all-reduce, {curve.backend}, {curve.ranks} ranks {where}{of_several}"
    head = ("time", "95 %", "algorithm bandwidth", "bus bandwidth")
    return Grid(title, head, tuple(rows), frozenset({2}), below=_fit(curve), first="message")


def _fit(curve: Curve) -> str:
    fit = curve.fit
    if fit is None:
        return "No latency and bandwidth can be fitted: too few sizes, or time does not grow with size."
    misses = (
        f"misses by up to {fit.worst_relative_residual:.1%}, at {format_bytes(fit.worst_bytes)}"
    )
    if not fit.is_alpha_beta:
        return (
            f"One latency and one bandwidth do not describe this curve: their best fit {misses}. Use the table; the "
            "library changes its protocol between sizes, or something disturbed it."
        )
    latency = Interval(value=fit.alpha_seconds).symmetric(fit.alpha_error)
    bandwidth = Interval(value=fit.bytes_per_second).symmetric(fit.bytes_per_second_error)
    return (
        f"As a ring: latency {format_quantity(latency, 'seconds')} per hop, bandwidth "
        f"{format_quantity(bandwidth, 'bytes/s')} per link (standard errors); it {misses}."
    )


def _comparison(comparison: Comparison, several: bool) -> Grid:
    gpus = f"GPUs: {comparison.gpus_measured or UNKNOWN} here, {comparison.gpus_catalog or UNKNOWN} in the catalog."
    source = f"Catalog of {comparison.as_of}: {comparison.source}."
    below = _join(gpus, source, comparison.notes, between=" ")
    title = f"{comparison.hostname} " if several else ""
    head = ("measured", "catalog", "ratio", "")
    rows = tuple(map(_comparison_row, comparison.rows))
    title += f"against {comparison.instance}"
    return Grid(title, head, rows, frozenset({0, 4}), below, "what", prose=True)


def _comparison_row(row: Compared) -> tuple[str, ...]:
    found = fact = UNKNOWN
    if row.measured is not None:
        value, spread = _rate_parts(row.measured, row.unit, row.network)
        counted = row.measured.low == row.measured.high and row.measured.low is not None
        found = value if counted else f"{value} {spread}"
    if row.catalog is not None:
        fact = format_bits(row.catalog) if row.network else format_fact(row.catalog, row.unit)
    ratio = UNKNOWN if row.ratio is None else f"{row.ratio:.2f}"
    return row.name, found, fact, ratio, row.catalog_is


def _nearness(near: Near) -> str:
    missing = f"not compared: {', '.join(near.not_compared)}" if near.not_compared else ""
    return _join(*(near.differs or ("the same shape",)), missing, between="; ")


def _sentence(finding: Finding, several: bool) -> str:
    text = finding.text if finding.text.endswith(".") else f"{finding.text}."
    if several and finding.hostname is not None and finding.hostname not in text:
        return f"{finding.hostname}: {text}"
    return text[0].upper() + text[1:]


def _next_steps(probe: Probe, reading: Reading, saved: str | None) -> list[str]:
    steps = list(next_steps(reading.findings))
    if reading.nearest:
        steps.append(
            "Name the machine's type with --instance, or hold it to one with --expect, to compare its links."
        )
    if saved is not None and any(host.links is not None for host in probe.hosts):
        steps.append(
            f"`stash profile --probe {saved} train.py` keeps these links with the profile."
        )
    return steps


def notes(probe: Probe, reading: Reading) -> tuple[tuple[str, str], ...]:
    """Label and text: what was not measured, remarks, when it was measured."""
    several = len(probe.hosts) > 1
    found = []
    for host in probe.hosts:
        who = f"{host.hostname}, " if several else ""
        for skipped in host.links.skipped if host.links is not None else ():
            found.append(("unknown", f"{who}{skipped.link}: {skipped.why}"))
    if all(host.links is None for host in probe.hosts):
        found.append(("unknown", "no link was measured"))
    found += [("note", text) for text in (*probe.notes, *reading.notes)]
    when = probe.created.replace("T", " ")[:16]
    took = format_seconds(probe.elapsed_seconds)
    return (*found, ("probed", f"{when} UTC, in {took}, Stash {probe.stash_version}"))


# The document that ``stash probe --json`` prints: a contract with other programs, see docs/probe.md. What is not
# known is null. New keys may be added under the same ``schema``.

SCHEMA = 1


def document(
    probe: Probe, reading: Reading, verdict: RentalVerdict | None = None
) -> dict[str, Any]:
    """Keys in the order of the contract; ratios of a comparison are derived here, because they are not stored."""
    derived = reading.model_dump(mode="json")
    for comparison, record in zip(derived["comparisons"], reading.comparisons, strict=True):
        for row, its in zip(comparison["rows"], record.rows, strict=True):
            row["ratio"] = its.ratio
    return {
        "schema": SCHEMA,
        "probe": probe.model_dump(mode="json"),
        **derived,
        "next_steps": list(next_steps(reading.findings)),
        "verdict": None if verdict is None else verdict.brief,
    }
