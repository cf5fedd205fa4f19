"""The rows of one artefact in every table of a store, each made by column name so that none lands in another's place.

A stall that is unknown has a row with its reason and no seconds. Links and findings are of a probe, or of a profile
that a probe was embedded in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.findings.probe_reading import Reading, read
from stash.catalog.layers import load as load_catalog
from stash.core.errors import StashError
from stash.core.records.host import Host, Probe
from stash.core.records.profile import Profile
from stash.store.schema import DERIVED, STALL_NAMES, TABLES, TableRow, TableRows

Values = Mapping[str, Any]
"""Values by column, without the id."""


def digest_rows(artefact: Profile | Probe, id: str, file: str) -> TableRows:
    """The rows of every table but blocks; raises StashError if the artefact has nothing that could be derived."""
    tables = _of_profile(artefact) if isinstance(artefact, Profile) else _of_probe(artefact)
    (head,) = tables["artefacts"]
    tables["artefacts"] = [
        {**head, "file": file, "created": artefact.created, "stash_version": artefact.stash_version}
    ]
    return {table: _rows(table, id, tables.get(table, ())) for table in DERIVED}


def block_rows(profile: Profile, id: str) -> list[TableRow]:
    """The rows of ``blocks``: everything but the lists in them."""
    names = [column.name for column in TABLES["blocks"][1:]]
    return [[id, *(getattr(block, name) for name in names)] for block in profile.blocks]


def _rows(table: str, id: str, cells: Iterable[Values]) -> list[TableRow]:
    names = [column.name for column in TABLES[table][1:]]
    rows: list[TableRow] = []
    for each in cells:
        if not each.keys() <= set(names):
            raise AssertionError(f"{table} has no columns {each.keys() - set(names)}")
        rows.append([id, *(each.get(name) for name in names)])
    return rows


# Profiles -------------------------------------------------------------------------------------------------


def _of_profile(profile: Profile) -> dict[str, list[Values]]:
    breakdown = attribute(profile)
    advice = verdict(breakdown, profile)
    shares = {stall.name: 100 * stall.share for stall in breakdown.stalls}
    reading = _reading(profile.hosts)
    head = {
        "kind": "profile",
        "name": profile.workload.name,
        "ranks": profile.world_size,
        "nodes": profile.nodes,
        "machine": _machine(profile.hosts),
        "step_seconds": breakdown.step_seconds,
        "samples_per_second": breakdown.samples_per_second,
        "stall": advice.stall,
        "stall_pct": shares.get(advice.stall or ""),
        "findings": None if reading is None else len(reading.findings),
    }
    facts = {
        **_of_workload(profile),
        **_of_machines(profile),
        **_of_breakdown(breakdown),
        "verdict": advice.kind,
        "stall": advice.stall,
        **{f"{name}_pct": shares.get(name) for name in STALL_NAMES},
    }
    return {
        "artefacts": [head],
        "profiles": [facts],
        "stalls": list(_stalls(breakdown)),
        "ranks": [rank.model_dump() for rank in profile.ranks],
        **_of_hosts(profile.hosts, reading),
    }


def _of_workload(profile: Profile) -> Values:
    workload = profile.workload
    return {
        "created": profile.created,
        "workload": workload.name,
        "command": " ".join(workload.command),
        "git_commit": workload.git_commit,
        "git_dirty": workload.git_dirty,
        "world_size": profile.world_size,
        "nodes": profile.nodes,
        "batch": workload.batch,
        "precision": workload.precision,
        "parameters": workload.parameters,
        "parameter_bytes": workload.parameter_bytes,
        "workers": workload.loaders[0].workers if workload.loaders else None,
        "torch": profile.software.get("torch"),
        "stash_version": profile.stash_version,
        "ended": profile.ended,
        "elapsed_seconds": profile.elapsed_seconds,
    }


def _of_machines(profile: Profile) -> Values:
    first = profile.hosts[0] if profile.hosts else None
    return {
        "device": profile.ranks[0].device.partition(":")[0] if profile.ranks else None,
        "cloud": first.cloud if first else None,
        "instance": first.instance if first else None,
        "gpu": _gpu(first),
        "gpus": sum(len(host.gpus) for host in profile.hosts),
        "cpu": first.cpu if first else None,
    }


def _of_breakdown(breakdown: Breakdown) -> Values:
    return {
        "rounds": breakdown.rounds,
        "rounds_dropped": breakdown.rounds_dropped,
        "step_seconds": breakdown.step_seconds,
        "step_low": breakdown.step.low,
        "step_high": breakdown.step.high,
        "samples_per_second": breakdown.samples_per_second,
        **{f"paper_{name}": value for name, value in breakdown.paper.model_dump().items()},
        "stable": breakdown.stability.ok,
    }


def _stalls(breakdown: Breakdown) -> Iterator[Values]:
    for stall in breakdown.stalls:
        yield {
            "name": stall.name, "seconds": stall.seconds, "low": stall.low, "high": stall.high, "share": stall.share,
            "within_noise": stall.within_noise,
        }  # fmt: skip
    for missing in breakdown.skipped:
        yield {"name": missing.name, "why": missing.why}


# Machines -------------------------------------------------------------------------------------------------


def _of_probe(probe: Probe) -> dict[str, list[Values]]:
    reading = _reading(probe.hosts)
    head = {
        "kind": "probe",
        "name": ", ".join(dict.fromkeys(host.hostname for host in probe.hosts)),
        "nodes": len(probe.hosts),
        "machine": _machine(probe.hosts),
        "findings": None if reading is None else len(reading.findings),
    }
    return {"artefacts": [head], **_of_hosts(probe.hosts, reading)}


def _of_hosts(hosts: tuple[Host, ...], reading: Reading | None) -> dict[str, list[Values]]:
    return {
        "hosts": [_host(node, host) for node, host in enumerate(hosts)],
        "links": [] if reading is None else list(_links(reading)),
        "findings": [] if reading is None else list(_findings(reading)),
    }


def _reading(hosts: tuple[Host, ...]) -> Reading | None:
    """What the links of these machines mean beside the catalog; ``None`` where none was measured."""
    if all(host.links is None for host in hosts):
        return None
    probe = Probe(stash_version="", created="", hosts=hosts, budget_seconds=0, elapsed_seconds=0)
    try:
        return read(probe, load_catalog())
    except StashError:  # the catalog's own files, which are no part of the artefact
        return None


def _host(node: int, host: Host) -> Values:
    return {
        "node": node,
        "gpu": _gpu(host),
        "gpus": len(host.gpus),
        "probed": host.links is not None,
        **{
            name: getattr(host, name)
            for name in (
                "hostname", "cpu", "cores", "memory_bytes", "kernel", "disk", "virtualization", "cloud", "instance",
                "steal_fraction",
            )
        },
    }  # fmt: skip


def _links(reading: Reading) -> Iterator[Values]:
    for link in reading.links:
        yield {
            "node": link.node, "hostname": link.hostname, "part": link.part, "link": link.group,
            "member": link.member, "unit": link.unit, "rate": link.rate.value, "low": link.rate.low,
            "high": link.rate.high,
        }  # fmt: skip
    for curve in reading.exchanges:
        for size in curve.sizes:
            rate = size.bus_bytes_per_second
            yield {
                "hostname": curve.hostname, "part": "exchanges", "member": f"{size.bytes} bytes", "unit": "bytes/s",
                "link": f"{curve.backend}, {curve.ranks} ranks on {curve.nodes} nodes", "rate": rate.value,
                "low": rate.low, "high": rate.high,
            }  # fmt: skip


def _findings(reading: Reading) -> Iterator[Values]:
    for finding in reading.findings:
        measured, fact = finding.measured, finding.fact
        dated = fact is not None and fact.as_of is not None
        yield {
            "hostname": finding.hostname,
            "name": finding.name,
            "text": finding.text,
            "unit": finding.unit,
            "measured": None if measured is None else measured.value,
            "low": None if measured is None else measured.low,
            "high": None if measured is None else measured.high,
            "expected": None if fact is None else fact.value,
            "source": None if fact is None else f"{fact.source}, {fact.as_of}" if dated else fact.source,
        }


def _gpu(host: Host | None) -> str | None:
    return host.gpus[0].name if host is not None and host.gpus else None


def _machine(hosts: tuple[Host, ...]) -> str | None:
    """What the first machine is, as shortly as it can be said."""
    if not hosts:
        return None
    host = hosts[0]
    gpus = f"{len(host.gpus)} x {host.gpus[0].name}" if host.gpus else None
    return host.instance or gpus or host.cpu
