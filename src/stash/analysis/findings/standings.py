"""How one machine's figures stand against their like: its other parts, the user's other machines, the data sheet.

A figure is slow if it lies below what one more healthy part would reach, with an error rate that all figures of a
probe share. The logarithms of peers are taken to be normal; a typical variance moderates theirs and counts for one
degree of freedom (Smyth 2004), so that two peers that happen to agree prove little. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from stash.analysis.findings.rates import Link
from stash.catalog.facts import GpuFacts
from stash.catalog.reference import reached_rates
from stash.core.distributions import student_quantile
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


class FigureStanding(Link):
    """One figure against its like."""

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
    arm = float(student_quantile(freedom, ERROR_RATE / tests)) * math.sqrt(variance * (1 + 1 / count))
    return math.exp(mean + arm)


def standings(
    links: Sequence[Link], past: Sequence[PastProbe] = (), sheets: Mapping[str, GpuFacts] | None = None
) -> tuple[FigureStanding, ...]:
    """Each figure against its other devices and nodes, and against earlier probes; against sheets where those lack.

    ``sheets``: of each host's GPUs, by hostname, where they are of one known model.
    """
    asked = [
        (link, each) for link in links for each in (_beside(link, links), _before(link, past)) if each is not None
    ]
    found = []
    for link, (values, about) in asked:
        spread = TYPICAL_SPREAD.get(link.part, max(TYPICAL_SPREAD.values()))
        low = lowest_healthy(values, spread, len(asked))
        usual, is_slow = median(values), link.rate.value < low
        found.append(
            FigureStanding(**link.model_dump(), usual=usual, low=low, peers=len(values), about=about, slow=is_slow)
        )
    known = {(each.hostname, each.group, each.member) for each in found}
    for link in links:
        if (link.hostname, link.group, link.member) not in known and link.hostname in (sheets or {}):
            found += _against_sheet(link, (sheets or {})[link.hostname])
    return tuple(found)


def _beside(link: Link, links: Sequence[Link]) -> tuple[list[float], str] | None:
    """Rates of the same figure on other devices and nodes, if they compute; and who they are."""
    others = [each.rate.value for each in links if each.group == link.group and each is not link]
    if link.part != "compute" or len(others) < LEAST_PEERS:
        return None
    return others, f"{len(others)} other {'GPUs' if link.member else 'machines'} of this probe"


def _before(link: Link, past: Sequence[PastProbe]) -> tuple[list[float], str] | None:
    """One rate for each earlier probe, the median of its like; and which these are."""
    alike = {probe: [each.rate.value for each in probe.links if each.group == link.group] for probe in past}
    found = {probe: median(values) for probe, values in alike.items() if values}
    if len(found) < LEAST_PEERS:
        return None
    first, last = (which(probe.created for probe in found)[:10] for which in (min, max))
    machines = counted(len({probe.hostname for probe in found}), "machine")
    about = f"{counted(len(found), 'earlier probe')} of {machines} of yours, {first} to {last}"
    return list(found.values()), about


def _against_sheet(link: Link, gpu: GpuFacts) -> Iterator[FigureStanding]:
    """Against what others reached of the data sheet's figure, if that was published: a usual product, or a triad."""
    figure, claimed = "", None
    if link.group.startswith("triad"):
        figure, claimed = "triad", gpu.memory_bytes_per_second
    elif link.group.startswith(("gemm bfloat16 8192x8192x8192", "gemm float16 8192x8192x8192")):
        figure, claimed = "gemm 16 bits", gpu.tensor_fp16_flops_per_second
    if claimed is None or link.part != "compute":
        return
    every = [each for each in reached_rates() if each.figure == figure]
    own = [each for each in every if each.gpu == gpu.name] or every
    shares = [each.reached / each.of for each in own]
    low = claimed * min(shares) * (1 - _SHEET_TOLERANCE)
    sources = ", ".join(dict.fromkeys(f"{each.source} ({each.gpu}, {each.published})" for each in own))
    yield FigureStanding(
        **link.model_dump(), usual=claimed * median(shares), low=low, peers=0, slow=link.rate.below(low),
        about=f"{median(shares):.0%} of the data sheet of {gpu.name}: {gpu.source}, {sources}",
    )  # fmt: skip


def slow(found: Iterable[FigureStanding]) -> tuple[FigureStanding, ...]:
    """Those that are, the worst first; each figure once."""
    worst = sorted((each for each in found if each.slow), key=lambda each: -each.ratio)
    by_name = {(each.hostname, each.group, each.member): each for each in worst}
    return tuple(reversed(by_name.values()))
