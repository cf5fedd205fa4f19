"""What Stash finds on hosts made by ``probe_builder``, held against the shipped catalog."""

from probe_builder import GBIT, host, links, probe, stream

from stash import catalog
from stash.analysis.findings.probe_reading import read_probe

CATALOG = catalog.load()


def found(*hosts, against=None):
    """Texts of the findings, by name."""
    texts = {}
    for finding in read_probe(probe(*hosts), CATALOG, against).findings:
        texts.setdefault(finding.name, []).append(finding.text)
    return texts


def cluster(
    rate,
    nodes=3,
    flows=((1, 9.2), (8, 21.0)),
    noise=0.03,
    **fields,
):
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
