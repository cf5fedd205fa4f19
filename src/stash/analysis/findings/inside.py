"""Findings about the links inside one machine, from measurements alone: PCIe, shared uplinks, pairs, cores, disk.

Compares a machine with itself: copies alone with copies together, one pair with another, one process with many,
the first seconds of a disk with the later ones. Whether a link is what its type should have, ``against`` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stash.analysis.findings.machine import (
    Fact,
    Finding,
    fact_of,
    format_origin,
    make_finding,
    working_gpus,
)
from stash.analysis.findings.rates import copy_rate, find_burst, gpu_index
from stash.catalog.facts import Instance
from stash.core.formatting import format_fact, format_quantity, join_names
from stash.core.intervals import Interval, find_uneven
from stash.core.records.host import Host, Links
from stash.core.units import format_seconds

_LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Of one PCIe lane, one direction, after line coding: PCI-SIG's 2.5, 5, 8, 16, 32 and 64 GT/s."""
_SHARED = 1.3
"""Copies this much slower together than alone share something."""


def inside_findings(host: Host, reference: Instance | None = None) -> Iterator[Finding]:
    """Findings about one machine's own links; ``reference`` is what it should be, if that is known."""
    if host.links is None:
        return
    alone = host_copies(host.links, "host to GPU", together=False)
    for gpu in working_gpus(host):
        rate = alone.get(gpu.index)
        now = pcie_bytes_per_second(gpu.pcie)
        most = pcie_bytes_per_second(gpu.pcie_max)
        # An idle link saves power and trains up under load: only copies as slow as the link says prove it.
        if rate is None or now is None or most is None or now >= most or not rate.is_below(now):
            continue
        text = (
            f"GPU {gpu.index}'s PCIe link runs at {gpu.pcie} and could at {gpu.pcie_max}: pinned copies reach "
            f"{format_quantity(rate, 'bytes/s')}, within the {format_fact(now, 'bytes/s')} of {gpu.pcie}, where "
            f"{gpu.pcie_max} "
            f"carries {format_fact(most, 'bytes/s')}"
        )
        about = f"PCIe {gpu.pcie_max}, as the driver states it"
        fact = Fact(value=most, unit="bytes/s", about=about, source="PCI-SIG")
        yield make_finding(host, "pcie-trained-down", text, rate, fact)
    yield from _shared_uplinks(host, host.links)
    yield from _uneven_pairs(host, host.links, reference)
    for read in host.links.reads:
        end = find_burst(read)
        if end is None:
            continue
        lasted = format_seconds(end.seconds)
        text = (
            f"{read.pattern} reads under {read.path} reach {format_quantity(end.first, 'bytes/s')} for {lasted}, "
            f"then {format_quantity(end.later, 'bytes/s')}: the disk has a burst that ends"
        )
        fact = Fact(value=end.first.value, unit="bytes/s", about=f"the first {lasted}")
        yield make_finding(host, "disk-burst", text, end.later, fact)


def pcie_bytes_per_second(text: str | None) -> float | None:
    """What ``gen3 x16`` can carry one way, before protocol overhead; ``None`` if it cannot be read."""
    match = re.fullmatch(r"gen(\d+) x(\d+)", text or "")
    lane = _LANE_BYTES_PER_SECOND.get(int(match[1])) if match else None
    return None if match is None or lane is None else lane * int(match[2])


def host_copies(links: Links, way: str, together: bool) -> dict[int, Interval]:
    """Rates of pinned copies by GPU; ``way`` is ``host to GPU`` or ``GPU to host``."""
    found = {}
    for copy in links.copies:
        source = gpu_index(copy.source)
        target = gpu_index(copy.target)
        gpu = target if way == "host to GPU" else source
        rate = copy_rate(copy)
        one_way = (source is None) != (target is None)
        if (
            one_way
            and gpu is not None
            and rate is not None
            and copy.together == together
            and copy.pinned
        ):
            found[gpu] = rate
    return found


def pair_copies(links: Links) -> dict[tuple[int, int], Interval]:
    """Rates of copies between two GPUs at a time, by pair (lower index first): of the slower direction."""
    found: dict[tuple[int, int], Interval] = {}
    for copy in links.copies:
        a = gpu_index(copy.source)
        b = gpu_index(copy.target)
        rate = copy_rate(copy)
        if a is None or b is None or a == b or rate is None or copy.together:
            continue
        pair = (min(a, b), max(a, b))
        if pair not in found or rate.value < found[pair].value:
            found[pair] = rate
    return found


def _shared_uplinks(host: Host, links: Links) -> Iterator[Finding]:
    """GPUs whose copies are slower while the others copy too, in the direction in which there are more of them."""
    slowed: dict[str, list[int]] = {}
    rates = {}
    for way in ("host to GPU", "GPU to host"):
        alone, together = (host_copies(links, way, together=both) for both in (False, True))
        rates[way] = alone, together
        slowed[way] = [
            g for g in sorted(alone) if g in together and together[g].slower_than(alone[g], _SHARED)
        ]
    way = max(slowed, key=lambda name: len(slowed[name]))
    if len(slowed[way]) < 2:
        return
    alone, together = rates[way]
    both_ways = ", both ways" if slowed["host to GPU"] == slowed["GPU to host"] else ""
    for group, known in _behind_one_switch(host, slowed[way]):
        worst = min(group, key=lambda gpu: together[gpu].value)
        names = join_names([str(gpu) for gpu in group], most=16)
        shares = f"GPUs {names} share an uplink" if known else f"GPUs {names} slow one another down"
        text = (
            f"{shares}{both_ways}: {way} {worst}, {format_quantity(together[worst], 'bytes/s')} while all GPUs copy, "
            f"{format_quantity(alone[worst], 'bytes/s')} alone"
        )
        fact = Fact(value=alone[worst].value, unit="bytes/s", about=f"{way} {worst} alone")
        yield make_finding(host, "shared-uplink", text, together[worst], fact)


def _behind_one_switch(host: Host, gpus: list[int]) -> list[tuple[list[int], bool]]:
    """The GPUs parted by PCIe switch, each part with whether the driver's routes say so.

    Copying all at once shows that GPUs share, not which with which; the topology knows. Where it joins none of
    them, they stay together, and all that is known is that they slow one another down.
    """
    near = {
        (route.a, route.b) for route in host.routes if route.kind in ("internal", "single switch")
    }
    groups: list[list[int]] = []
    for gpu in gpus:
        home = next(
            (group for group in groups if any((other, gpu) in near for other in group)), None
        )
        if home is None:
            groups.append([gpu])
        else:
            home.append(gpu)
    if any(len(group) < 2 for group in groups):
        return [(gpus, False)]
    return [(group, True) for group in groups]


def _uneven_pairs(host: Host, links: Links, reference: Instance | None) -> Iterator[Finding]:
    rates = pair_copies(links)
    uneven = find_uneven(rates)
    if uneven is None:
        return
    fastest, slow = uneven
    best = (
        fact_of(reference, "fastest pair", reference.pair_max_bytes_per_second, "bytes/s")
        if reference
        else None
    )
    names = join_names([f"{a}-{b}" for a, b in slow])
    several = (
        f"{len(slow)} of {len(rates)} pairs of GPUs copy"
        if len(slow) > 1
        else "one pair of GPUs copies"
    )
    text = (
        f"{several} much slower than the others ({names}): {slow[0][0]}-{slow[0][1]} reaches "
        f"{format_quantity(rates[slow[0]], 'bytes/s')}, {fastest[0]}-{fastest[1]} "
        f"{format_quantity(rates[fastest], 'bytes/s')}"
    )
    if best is not None:
        text += f"; {best.about}: {format_fact(best.value, 'bytes/s')} {format_origin(best)}"
    fact = best or Fact(
        value=rates[fastest].value, unit="bytes/s", about=f"GPUs {fastest[0]}-{fastest[1]}"
    )
    yield make_finding(host, "uneven-pairs", text, rates[slow[0]], fact)
