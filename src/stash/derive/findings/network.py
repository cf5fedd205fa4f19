"""Findings about the network between machines: one flow against several, slow nodes, claims of the interface.

Reads the streams of all hosts together. Knows what a machine's interface claims; what its type promises is
``shortfall``'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.base.records import Host, Nic, Record
from stash.base.stats.intervals import Interval, unevenness
from stash.base.words.quantities import bits, listed
from stash.base.words.units import format_bits
from stash.derive.findings.finding import Fact, Finding, unlike
from stash.derive.findings.rates import stream_rate

SEVERAL_HELP = 1.25
"""How many times more several flows must carry than one to be worth a word."""
_CLAIM_TOLERANCE = 0.10
"""Headers and acknowledgements take part of what an interface signals."""

Flows = dict[tuple[int, int], Interval]


class Reach(Record):
    """What the network between the fastest pair of nodes carries."""

    source: int
    target: int
    one: Interval | None
    """With one flow."""
    best: Interval
    flows: int
    """Number of flows that carried most."""


def by_flows(hosts: Sequence[Host]) -> dict[int, Flows]:
    """Rates of all streams, by number of flows, then by (source, target)."""
    found: dict[int, Flows] = {}
    for host in hosts:
        for stream in host.links.streams if host.links is not None else ():
            rate = stream_rate(stream)
            if rate is not None:
                found.setdefault(stream.flows, {})[stream.source, stream.target] = rate
    return found


def reach(hosts: Sequence[Host]) -> Reach | None:
    """The fastest stream of all and what one flow does between the same nodes; ``None`` without streams."""
    rates = by_flows(hosts)
    streams = [(rate.value, flows, pair) for flows, pairs in rates.items() for pair, rate in pairs.items()]
    if not streams:
        return None
    _, flows, pair = max(streams)
    return Reach(source=pair[0], target=pair[1], one=rates.get(1, {}).get(pair), best=rates[flows][pair], flows=flows)


def network_findings(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Findings from the streams between nodes."""
    rates = by_flows(hosts)
    fastest = reach(hosts)
    if fastest is None:
        return
    yield from _one_flow(fastest)
    # With several flows the machines and the wire show, with one flow its TCP window too.
    yield from _uneven_nodes(hosts, rates[max(rates)])
    yield from _claims(hosts, fastest)


def _one_flow(fastest: Reach) -> Iterator[Finding]:
    one, best = fastest.one, fastest.best
    if one is None or fastest.flows == 1 or not one.slower_than(best, SEVERAL_HELP):
        return
    text = (
        f"one TCP flow reaches {bits(one)}, {fastest.flows} reach {bits(best)} (node {fastest.source} to "
        f"{fastest.target}): exchange over one connection leaves part of the network unused"
    )
    fact = Fact(value=best.value, unit="bytes/s", about=f"{fastest.flows} flows between the same nodes")
    yield unlike(fact, one, "one-flow", text)


def _uneven_nodes(hosts: Sequence[Host], rates: Flows) -> Iterator[Finding]:
    uneven = unevenness(rates)
    if uneven is None:
        return
    fastest, slow = uneven
    sound = {node for pair in rates if pair not in slow for node in pair}
    blamed = [node for node in sorted({node for pair in slow for node in pair}) if node not in sound]
    who = f"node{'s' if len(blamed) > 1 else ''} {listed([_named(hosts, node) for node in blamed])}"
    verb = "have" if len(blamed) > 1 else "has"
    start = f"{who} {verb} a slower network than the others" if blamed else "some nodes reach each other more slowly"
    worst = slow[0]
    text = (
        f"{start}: {bits(rates[worst])} from node {worst[0]} to {worst[1]}, {bits(rates[fastest])} from node "
        f"{fastest[0]} to {fastest[1]}; the slowest node sets the pace of every exchange"
    )
    fact = Fact(value=rates[fastest].value, unit="bytes/s", about=f"node {fastest[0]} to {fastest[1]}")
    only = hosts[blamed[0]] if len(blamed) == 1 and blamed[0] < len(hosts) else None
    yield unlike(fact, rates[worst], "uneven-nodes", text, only)


def _named(hosts: Sequence[Host], node: int) -> str:
    return f"{node} ({hosts[node].hostname})" if node < len(hosts) else str(node)


def claiming(host: Host) -> Nic | None:
    """The one interface with hardware or a hypervisor behind it that claims a rate; ``None`` if there are several.

    Bridges and virtual pairs inside a machine claim rates too, and mean nothing by it: they have no driver.
    """
    claims = [nic for nic in host.nics if nic.bytes_per_second is not None and nic.driver is not None]
    return claims[0] if len(claims) == 1 else None


def _claims(hosts: Sequence[Host], fastest: Reach) -> Iterator[Finding]:
    if fastest.source >= len(hosts):
        return
    host = hosts[fastest.source]
    nic = claiming(host)
    if nic is None or nic.bytes_per_second is None:
        return
    claim, best = nic.bytes_per_second, fastest.best
    fact = Fact(value=claim, unit="bytes/s", about=f"what {nic.name} claims")
    if best.above(claim):
        end = "so the claim means nothing"
    elif best.below(claim, _CLAIM_TOLERANCE):
        end = f"less than the {format_bits(claim)} it claims: the network behind it is limited, shared or far away"
    else:
        return
    text = f"{nic.name} claims {format_bits(claim)} and TCP reaches {bits(best)}, {end}"
    yield unlike(fact, best, "nic-claim", text, host)
