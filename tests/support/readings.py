"""What Stash finds on hosts made by ``probe_builder``, held against the shipped catalog."""

from __future__ import annotations

from collections.abc import Callable

from probe_builder import GBIT, host, links, probe, stream

from stash import catalog
from stash.analysis.findings.probe_reading import read_probe
from stash.core.records.host import Host

CATALOG = catalog.load()


def found(*hosts: Host, against: str | None = None) -> dict[str, list[str]]:
    """Texts of the findings, by name."""
    texts: dict[str, list[str]] = {}
    for finding in read_probe(probe(*hosts), CATALOG, against).findings:
        texts.setdefault(finding.name, []).append(finding.text)
    return texts


def cluster(
    rate: Callable[[int, int], float],
    nodes: int = 3,
    flows: tuple[tuple[int, float], ...] = ((1, 9.2), (8, 21.0)),
    noise: float = 0.03,
    **fields: object,
) -> list[Host]:
    """Hosts of a cluster; ``rate(a, b)`` scales what the stream from a to b carries."""
    return [
        host(
            f"n{a}",
            links(
                streams=tuple(
                    stream(a, b, count, rate(a, b) * gbit * GBIT, noise=noise)
                    for b in range(nodes)
                    if b != a
                    for count, gbit in flows
                )
            ),
            **fields,
        )
        for a in range(nodes)
    ]
