"""How one machine's figures stand against their like: its other parts, the user's other machines, the data sheet.

A figure is slow if it lies below what one more healthy part would reach, with an error rate that all figures of a
probe share. The logarithms of peers are taken to be normal; a typical variance of that kind of figure moderates
theirs (Smyth 2004), so that a few peers that happen to agree prove little. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from stash.analysis.findings.rates import Link
from stash.catalog.facts import GpuFacts
from stash.catalog.reference import reached_rates
from stash.core.distributions import student_quantile
from stash.core.intervals import NORMAL, subtract_runs
from stash.core.records.base import Record
from stash.core.units import format_count

ERROR_RATE = 1 / 200
"""Of probes of healthy machines, how many may call any part slow."""


class UsualSpread(NamedTuple):
    """How far a kind of figure scatters between healthy machines of a type, and between probes of one of them."""

    deviation: float
    """Standard deviation of its logarithm."""
    freedom: int
    """Degrees of freedom that this counts for beside what peers show."""


GPU_SPREAD, LINK_SPREAD, CORE_LINK_SPREAD = (
    UsualSpread(0.035, 1),
    UsualSpread(0.15, 1),
    UsualSpread(0.35, 4),
)
"""GPUs of one model lie 14 % apart in products (PRISM, 2026), four deviations; links and disks by assumption; an
all-reduce between cores of one machine as below."""
CPU_SPREADS: tuple[tuple[str, UsualSpread], ...] = (
    ("triad, 1 core", UsualSpread(0.07, 4)),
    ("triad", UsualSpread(0.25, 4)),
    ("copy", UsualSpread(0.1, 4)),
    ("JPEG", UsualSpread(0.13, 4)),
    ("gemm", UsualSpread(0.04, 4)),
)
"""By what a figure of the cores begins with: quiet probes of one virtual machine (2 cores of AMD EPYC, 2026-11-30,
`python -m bench.probe repeat`), and as far as GPUs lie apart. Where its host puts two virtual cores decides for some
minutes how much memory both reach, 35 or 50 GB/s, and how fast they all-reduce, 2.7 or 1.4 GB/s."""
_SHEET_TOLERANCE = 0.14
"""Below what others reached of a data sheet: as far as GPUs of one model lie apart."""
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
    usual_sustained: float | None = None
    usual_own: float | None = None

    @property
    def ratio(self) -> float:
        """Of what is usual."""
        return self.rate.value / self.usual

    @property
    def sustained_ratio(self) -> float:
        """Over all of its time, where that is known."""
        return (
            self.sustained / self.usual_sustained
            if self.sustained and self.usual_sustained
            else self.ratio
        )

    @property
    def own_ratio(self) -> float | None:
        """For each second that it had of its core; ``None`` where that is unknown."""
        return self.own / self.usual_own if self.own and self.usual_own else None


class PastProbe(Record):
    """The links of one earlier probe of a machine of the same type."""

    hostname: str
    created: str
    links: tuple[Link, ...]


MATERIAL = 0.05
"""Of the usual rate: what lacks less is not called slow, however well its peers agree."""


def usual_spread(link: Link) -> UsualSpread:
    """Of a figure's kind."""
    if link.part == "compute" and not link.member:
        return next(
            (spread for kind, spread in CPU_SPREADS if link.group.startswith(kind)), GPU_SPREAD
        )
    if link.part == "exchanges" and "gloo" in link.group and " ranks on 1," in link.group:
        return CORE_LINK_SPREAD
    return GPU_SPREAD if link.part in ("compute", "copies") else LINK_SPREAD


def differ(one: Link, other: Link) -> bool:
    """Whether two figures of one kind differ by more than their intervals and than such figures usually scatter.

    Bursts of one probe tell nothing of how far another process, or another hour, would have been from it.
    """
    arm = NORMAL * math.sqrt(2) * usual_spread(one).deviation
    is_apart = not subtract_runs(one.rate, other.rate).within_noise
    return is_apart and abs(math.log(other.rate.value / one.rate.value)) > arm


def lowest_healthy(values: Sequence[float], spread: UsualSpread, tests: int) -> float:
    """The rate that one more healthy part stays above but for one in ``tests`` times 1/``ERROR_RATE`` of cases."""
    logs = np.log(values)
    count = len(logs)
    mean = float(np.mean(logs))
    freedom = spread.freedom + count - 1
    variance = (spread.freedom * spread.deviation**2 + float(np.sum((logs - mean) ** 2))) / freedom
    arm = float(student_quantile(freedom, ERROR_RATE / tests)) * math.sqrt(
        variance * (1 + 1 / count)
    )
    return math.exp(mean + min(arm, math.log(1 - MATERIAL)))


def compare_figures(
    links: Sequence[Link],
    past: Sequence[PastProbe] = (),
    sheets: Mapping[str, GpuFacts] | None = None,
) -> tuple[FigureStanding, ...]:
    """Each figure against its other devices and nodes, and against earlier probes; against sheets where those lack.

    ``sheets``: of each host's GPUs, by hostname, where they are of one known model.
    """
    asked = [
        (link, each)
        for link in links
        for each in (_peer_rates(link, links), _past_rates(link, past))
        if each is not None
    ]
    found = [_standing(link, peers, len(asked)) for link, peers in asked]
    known = {(each.hostname, each.group, each.member) for each in found}
    for link in links:
        if (link.hostname, link.group, link.member) not in known and link.hostname in (
            sheets or {}
        ):
            found += _against_sheet(link, (sheets or {})[link.hostname])
    return tuple(found)


class _Peers(NamedTuple):
    """Figures of the like of one: a peer's own, or those of all its alike parts."""

    figures: tuple[tuple[Link, ...], ...]
    about: str

    def values(self, rate: Callable[[Link], float | None]) -> list[float]:
        """One rate for each peer, the median of its parts."""
        known = [
            [value for each in peer if (value := rate(each)) is not None] for peer in self.figures
        ]
        return [median(values) for values in known if values]


def _standing(link: Link, peers: _Peers, tests: int) -> FigureStanding:
    values = peers.values(lambda each: each.rate.value)
    sustained = peers.values(lambda each: each.sustained)
    own = peers.values(lambda each: each.own)
    low = lowest_healthy(values, usual_spread(link), tests)
    return FigureStanding(
        **link.model_dump(),
        usual=median(values),
        low=low,
        peers=len(values),
        about=peers.about,
        slow=link.rate.is_below(low),
        usual_sustained=median(sustained) if sustained else None,
        usual_own=median(own) if own else None,
    )


def _peer_rates(link: Link, links: Sequence[Link]) -> _Peers | None:
    """The same figure on other devices and nodes, if they compute; and who they are."""
    others = tuple((each,) for each in links if each.group == link.group and each is not link)
    if link.part != "compute" or len(others) < LEAST_PEERS:
        return None
    return _Peers(
        others, f"{len(others)} other {'GPUs' if link.member else 'machines'} of this probe"
    )


def _past_rates(link: Link, past: Sequence[PastProbe]) -> _Peers | None:
    """The figure in earlier probes that have it; and which these are."""
    alike = {
        probe: tuple(each for each in probe.links if each.group == link.group) for probe in past
    }
    found = {probe: figures for probe, figures in alike.items() if figures}
    if len(found) < LEAST_PEERS:
        return None
    first, last = (which(probe.created for probe in found)[:10] for which in (min, max))
    machines = format_count(len({probe.hostname for probe in found}), "machine")
    about = f"{format_count(len(found), 'earlier probe')} of {machines} of yours, {first} to {last}"
    return _Peers(tuple(found.values()), about)


def _against_sheet(link: Link, gpu: GpuFacts) -> Iterator[FigureStanding]:
    """Against what others reached of the data sheet's figure, if that was published: a usual product, or a triad."""
    figure = ""
    claimed = None
    if link.group.startswith("triad"):
        figure = "triad"
        claimed = gpu.memory_bytes_per_second
    elif link.group.startswith(("gemm bfloat16 8192x8192x8192", "gemm float16 8192x8192x8192")):
        figure = "gemm 16 bits"
        claimed = gpu.tensor_fp16_flops_per_second
    if claimed is None or link.part != "compute":
        return
    every = [each for each in reached_rates() if each.figure == figure]
    own = [each for each in every if each.gpu == gpu.name] or every
    shares = [each.reached / each.of for each in own]
    low = claimed * min(shares) * (1 - _SHEET_TOLERANCE)
    sources = ", ".join(
        dict.fromkeys(f"{each.source} ({each.gpu}, {each.published})" for each in own)
    )
    yield FigureStanding(
        **link.model_dump(),
        usual=claimed * median(shares),
        low=low,
        peers=0,
        slow=link.rate.is_below(low),
        about=f"{median(shares):.0%} of the data sheet of {gpu.name}: {gpu.source}, {sources}",
    )


def list_slow(found: Iterable[FigureStanding]) -> tuple[FigureStanding, ...]:
    """Those that are, the worst first; each figure once."""
    worst = sorted((each for each in found if each.slow), key=lambda each: -each.ratio)
    by_name = {(each.hostname, each.group, each.member): each for each in worst}
    return tuple(reversed(by_name.values()))
