"""How one machine's figures stand against their like: its other parts, the user's other machines, the data sheet.

A figure is slow if it lies below what one more healthy part would reach, with an error rate that all figures of a
probe share. The logarithms of peers are taken to be normal; a typical variance moderates theirs and counts for one
degree of freedom (Smyth 2004), so that two peers that happen to agree prove little. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import numpy as np
from scipy.special import stdtrit

from stash.analysis.findings.rates import Link
from stash.catalog.facts import GpuFacts
from stash.catalog.reference import reached_rates
from stash.core.formatting import Unit
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.units import counted

ERROR_RATE = 1 / 200
"""Of probes of healthy machines, how many may call any part slow."""
TYPICAL_SPREAD: Mapping[str, float] = {"compute": 0.035, "copies": 0.035, "streams": 0.15, "reads": 0.15}
"""Standard deviations of logarithms between healthy machines of one type. Of what computes: GPUs of one model lie
14 % apart in matrix products (PRISM, 2026), four deviations; of links and disks an assumption."""
_SHEET_TOLERANCE = 0.14
"""Below what others reached of a data sheet: as far as GPUs of one model lie apart."""
_TYPICAL_FREEDOM = 1
LEAST_PEERS = 3
"""With fewer, a part would have to be several times slower to be called so."""


class Standing(Record):
    """One figure against its like."""

    hostname: str
    node: int
    part: str
    group: str
    member: str
    unit: Unit
    rate: Interval
    usual: float
    """The median of the peers, or what is reached of a data sheet."""
    low: float
    """A healthy part lies below it with the probability that the figure's share of the error rate allows."""
    peers: int
    """How many; 0 where a data sheet stands in for them."""
    about: str
    """Who they are, in words, with dates or a source."""
    slow: bool

    @property
    def ratio(self) -> float:
        """Of what is usual."""
        return self.rate.value / self.usual


class PastProbe(Record):
    """The links of one earlier probe of a machine of the same type."""

    hostname: str
    created: str
    links: tuple[Link, ...]


def lowest_healthy(values: Sequence[float], spread: float, tests: int) -> float:
    """The rate that one more healthy part stays above but for one in ``tests`` times 1/``ERROR_RATE`` of cases."""
    logs = np.log(values)
    count, mean = len(logs), float(np.mean(logs))
    freedom = _TYPICAL_FREEDOM + count - 1
    variance = (_TYPICAL_FREEDOM * spread**2 + float(np.sum((logs - mean) ** 2))) / freedom
    arm = float(stdtrit(freedom, ERROR_RATE / tests)) * math.sqrt(variance * (1 + 1 / count))
    return math.exp(mean + arm)


def standings(
    links: Sequence[Link], past: Sequence[PastProbe] = (), gpus: Mapping[str, GpuFacts] | None = None
) -> tuple[Standing, ...]:
    """Each figure against its other devices and nodes, and against earlier probes; against sheets where those lack.

    ``gpus``: the data sheet of each host's GPUs, by hostname, where they are of one known model.
    """
    asked = [
        (link, peers) for link in links for peers in (_beside(link, links), _before(link, past)) if peers is not None
    ]
    found = [_against(link, *peers, tests=len(asked)) for link, peers in asked]
    known = {(each.hostname, each.group, each.member) for each in found}
    alone = [link for link in links if (link.hostname, link.group, link.member) not in known]
    sheets = (_sheet(link, (gpus or {}).get(link.hostname)) for link in alone)
    return (*found, *(each for each in sheets if each is not None))


def _against(link: Link, values: Sequence[float], about: str, tests: int) -> Standing:
    low = lowest_healthy(values, TYPICAL_SPREAD.get(link.part, max(TYPICAL_SPREAD.values())), tests)
    return Standing(
        **link.model_dump(), usual=median(values), low=low, peers=len(values), about=about, slow=link.rate.value < low
    )


def _beside(link: Link, links: Sequence[Link]) -> tuple[list[float], str] | None:
    """Rates of the same figure on other devices and nodes, if they compute."""
    others = [each for each in links if each.group == link.group and each is not link and each.rate.value > 0]
    if link.part != "compute" or len(others) < LEAST_PEERS:
        return None
    what = "GPUs" if link.member else "machines"
    return [each.rate.value for each in others], f"{len(others)} other {what} of this probe"


def _before(link: Link, past: Sequence[PastProbe]) -> tuple[list[float], str] | None:
    """One rate for each earlier probe: the median of its like."""
    values, used = [], []
    for probe in past:
        alike = [
            e.rate.value for e in probe.links if (e.part, e.group) == (link.part, link.group) and e.rate.value > 0
        ]
        if alike:
            values.append(median(alike))
            used.append(probe)
    if len(values) < LEAST_PEERS:
        return None
    dates = sorted(probe.created[:10] for probe in used)
    machines = counted(len({probe.hostname for probe in used}), "machine")
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return values, f"{counted(len(values), 'earlier probe')} of {machines} of yours, {when}"


def _sheet(link: Link, gpu: GpuFacts | None) -> Standing | None:
    """Against what others reached of the data sheet's figure; ``None`` where nobody published it."""
    claimed = None if gpu is None or link.part != "compute" else _claimed(link.group, gpu)
    if claimed is None or gpu is None:
        return None
    figure, value = claimed
    every = [each for each in reached_rates() if each.figure == figure]
    own = [each for each in every if each.gpu == gpu.name] or [
        each for each in every if each.gpu.split("-")[0] == gpu.model
    ]
    if not every:
        return None
    shares = [each.reached / each.of for each in own or every]
    usual, least = value * median(shares), value * min(shares) * (1 - _SHEET_TOLERANCE)
    whose = f"of {gpu.name}" if own else f"of {gpu.name}, as other GPUs reach them"
    sources = ", ".join(dict.fromkeys(f"{each.source} ({each.published})" for each in own or every))
    about = f"{median(shares):.0%} of the data sheet {whose}: {gpu.source}, {sources}"
    return Standing(**link.model_dump(), usual=usual, low=least, peers=0, about=about, slow=link.rate.below(least))


def _claimed(group: str, gpu: GpuFacts) -> tuple[str, float] | None:
    """Which published figure a group of links is, and what the sheet says; only of the largest standard product."""
    if group.startswith("triad") and gpu.memory_bytes_per_second:
        return "triad", gpu.memory_bytes_per_second
    is_largest = "8192x8192x8192" in group
    halves = group.startswith(("gemm bfloat16", "gemm float16"))
    if is_largest and halves and gpu.tensor_fp16_flops_per_second:
        return "gemm 16 bits", gpu.tensor_fp16_flops_per_second
    return None


def slow(found: Iterable[Standing]) -> tuple[Standing, ...]:
    """Those that are, the worst first; each figure once."""
    worst: dict[tuple[str, str, str], Standing] = {}
    for each in sorted((each for each in found if each.slow), key=lambda each: each.ratio):
        worst.setdefault((each.hostname, each.group, each.member), each)
    return tuple(worst.values())
