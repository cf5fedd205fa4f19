"""The rows of one artefact in every table of a store, each made by column name so that none lands in another's place.

A stall that is unknown has a row with its reason and no seconds. Links and findings are of a probe, or of a profile
that a probe was embedded in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.findings.machine import Finding
from stash.analysis.findings.probe_reading import Reading, read_probe
from stash.catalog.layers import load as load_catalog
from stash.core.artefact import Artefact
from stash.core.errors import StashError
from stash.core.fix_records import Fix
from stash.core.intervals import Interval
from stash.core.records.host import Host, Probe
from stash.core.records.profile import Profile
from stash.core.trace_records import Trace
from stash.store.schema import DERIVED, TABLES, TableRow, TableRows

Values = Mapping[str, Any]
"""Values by column, without the id."""


def digest_rows(artefact: Artefact, id: str, file: str) -> TableRows:
    """The rows of every table but blocks; raises StashError if the artefact has nothing that could be derived."""
    if isinstance(artefact, Fix):
        tables = _fix_rows(artefact)
    elif isinstance(artefact, Trace):
        tables = _trace_rows(artefact)
    else:
        tables = _profile_rows(artefact) if isinstance(artefact, Profile) else _probe_rows(artefact)
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


def _pick_columns(table: str, *sources: object) -> dict[str, Any]:
    """What the ``sources`` have under the names of the table's columns; the first that has one gives it."""
    found: dict[str, Any] = {}
    for source in sources:
        for column in TABLES[table][1:]:
            if column.name not in found and hasattr(source, column.name):
                found[column.name] = getattr(source, column.name)
    return found


def _profile_rows(profile: Profile) -> dict[str, list[Values]]:
    breakdown = attribute(profile)
    workload = profile.workload
    advice = verdict(breakdown, profile)
    shares = {f"{stall.name}_pct": 100 * stall.share for stall in breakdown.stalls}
    reading = _reading(profile.hosts)
    first = profile.hosts[0] if profile.hosts else None
    head = {
        **_pick_columns("artefacts", profile, advice, breakdown),
        "kind": "profile",
        "name": workload.name,
        "ranks": profile.world_size,
        "machine": _machine(profile.hosts),
        "stall_pct": shares.get(f"{advice.stall}_pct"),
        "findings": None if reading is None else len(reading.findings),
    }
    facts = {
        **_pick_columns("profiles", breakdown, profile, workload, first),
        "workload": workload.name,
        "command": " ".join(workload.command),
        "workers": workload.loaders[0].workers if workload.loaders else None,
        "torch": profile.software.get("torch"),
        "device": profile.ranks[0].device.partition(":")[0] if profile.ranks else None,
        "gpu": _gpu(first),
        "gpus": sum(len(host.gpus) for host in profile.hosts),
        "step_low": breakdown.step.low,
        "step_high": breakdown.step.high,
        **{f"paper_{name}": value for name, value in breakdown.paper.model_dump().items()},
        "stable": breakdown.stability.ok,
        "verdict": advice.kind,
        "stall": advice.stall,
        **shares,
    }
    return {
        "artefacts": [head],
        "profiles": [facts],
        "stalls": [
            _pick_columns("stalls", each) for each in (*breakdown.stalls, *breakdown.skipped)
        ],
        "ranks": [_pick_columns("ranks", rank) for rank in profile.ranks],
        **_host_rows(profile.hosts, reading),
    }


def _probe_rows(probe: Probe) -> dict[str, list[Values]]:
    reading = _reading(probe.hosts)
    head = {
        "kind": "probe",
        "name": ", ".join(dict.fromkeys(host.hostname for host in probe.hosts)),
        "nodes": len(probe.hosts),
        "machine": _machine(probe.hosts),
        "findings": None if reading is None else len(reading.findings),
    }
    return {"artefacts": [head], **_host_rows(probe.hosts, reading)}


def _fix_rows(fix: Fix) -> dict[str, list[Values]]:
    head = {
        "kind": "fix",
        "name": fix.workload,
        "ranks": fix.ranks,
        "nodes": 1,
        "step_seconds": fix.step_seconds,
        "findings": len(fix.kept),
    }
    changes: list[Values] = [
        {
            **_pick_columns("fixes", each, fix),
            "workload": fix.workload,
            **_spread("saves", each.saves),
        }
        for each in fix.tried
    ]
    return {"artefacts": [head], "fixes": changes}


def _trace_rows(trace: Trace) -> dict[str, list[Values]]:
    largest = trace.largest_stall
    head = {
        "kind": "trace",
        "name": trace.workload,
        "ranks": trace.world_size,
        "nodes": trace.nodes,
        "step_seconds": trace.step_seconds,
        "stall": None if largest is None else largest.name,
        "stall_pct": None if largest is None else 100 * largest.share,
    }
    unknown = [{"name": name, "why": why} for name, why in trace.unknown.items()]
    known = [
        {
            "name": part.name,
            **_spread("seconds", part.time),
            "share": part.share,
            "within_noise": part.time.within_noise,
        }
        for part in trace.traced
    ]
    return {"artefacts": [head], "stalls": [*known, *unknown]}


def _host_rows(hosts: tuple[Host, ...], reading: Reading | None) -> dict[str, list[Values]]:
    rows: list[Values] = [
        {
            **_pick_columns("hosts", host),
            "node": node,
            "gpu": _gpu(host),
            "gpus": len(host.gpus),
            "probed": host.links is not None,
        }
        for node, host in enumerate(hosts)
    ]
    return {
        "hosts": rows,
        "links": [] if reading is None else list(_links(reading)),
        "findings": [] if reading is None else [_finding(each) for each in reading.findings],
    }


def _reading(hosts: tuple[Host, ...]) -> Reading | None:
    """What the links of these machines mean against the catalog; ``None`` where none was measured."""
    if all(host.links is None for host in hosts):
        return None
    probe = Probe(stash_version="", created="", hosts=hosts, budget_seconds=0, elapsed_seconds=0)
    try:
        return read_probe(probe, load_catalog())
    except StashError:  # the catalog's own files, which are no part of the artefact
        return None


def _links(reading: Reading) -> Iterator[Values]:
    for link in reading.links:
        yield {**_pick_columns("links", link), "link": link.group, **_spread("rate", link.rate)}
    for curve in reading.exchanges:
        for size in curve.sizes:
            yield {
                "hostname": curve.hostname,
                "part": "exchanges",
                "member": f"{size.bytes} bytes",
                "unit": "bytes/s",
                "link": f"{curve.backend}, {curve.ranks} ranks on {curve.nodes} nodes",
                **_spread("rate", size.bus_bytes_per_second),
            }


def _finding(finding: Finding) -> Values:
    fact = finding.fact
    row = {**_pick_columns("findings", finding), **_spread("measured", finding.measured)}
    if fact is not None:
        row |= {
            "expected": fact.value,
            "source": ", ".join(filter(None, [fact.source, fact.as_of])),
        }
    return row


def _spread(name: str, found: Interval | None) -> dict[str, float | None]:
    """A value under its column's name, with its ends; nothing of an unknown one."""
    return {} if found is None else {name: found.value, "low": found.low, "high": found.high}


def _gpu(host: Host | None) -> str | None:
    return host.gpus[0].name if host is not None and host.gpus else None


def _machine(hosts: tuple[Host, ...]) -> str | None:
    """What the first machine is, in a word or two."""
    if not hosts:
        return None
    host = hosts[0]
    gpus = f"{len(host.gpus)} x {host.gpus[0].name}" if host.gpus else None
    return host.instance or gpus or host.cpu
