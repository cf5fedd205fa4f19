"""The cases of the truth suite: jobs whose stalls are known beforehand, each with its truth worked out by hand.

Truth comes from injected times, from bytes over the rate a link was verified to carry, and from how
DistributedDataParallel overlaps buckets with the backward pass (Li et al., VLDB 2020, section 3.2). Nothing
here calls the code that measures or attributes; it only describes jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BUCKET = 2**20
"""DDP closes a bucket when it holds at least ``bucket_cap_mb`` MiB; with 1, a layer of this size has its own."""
COMPUTE = 0.06
"""A step's forward and backward pass in most cases, in seconds."""
Rates = Mapping[str, float]
"""Verified payload bytes per second: ``network`` (the slowest uplink), ``interconnect``; bursts in bytes."""


@dataclass(frozen=True)
class Layer:
    """Bytes of gradient, and seconds of its passes."""

    bytes: int
    forward: float
    backward: float


@dataclass(frozen=True)
class Paced:
    """An exchange by a future that completes after a set time; bytes per second."""

    interconnect: float
    network: float | None = None


@dataclass(frozen=True)
class Case:
    """One job on one emulated cluster; ``truth`` gives the stalls' seconds from the verified rates."""

    name: str
    truth: Callable[[Case, Rates], dict[str, float]]
    layers: tuple[Layer, ...]
    cause: tuple[str, ...] = ()
    """The stalls the verdict must name, the largest first; empty when there is none."""
    nodes: int = 1
    devices: int = 1
    network: str | None = None
    interconnect: str | None = None
    slow_uplinks: tuple[tuple[int, str], ...] = ()
    """(node, rate) of network cards that differ."""
    paced: Paced | None = None
    slow_ranks: tuple[tuple[int, float], ...] = ()
    """(rank, factor by which its compute takes longer)."""
    jitter: float = 0.0
    spread: float = 0.0
    """How far the compute of unlike batches lies from the mean at most, as a fraction of it."""
    prep: float = 0.0
    read: float = 0.0
    workers: int = 0
    files: int = 0
    """Files of the data set; 0 for none."""
    file_bytes: int = 4096
    batch: int = 4
    accumulate: int = 1
    """Batches to a step; the truths by hand are of one."""
    disk: str | None = None
    bucket_mb: int = 1
    """As ``bucket_cap_mb``."""
    neighbour: bool = False
    """Another process burns a core in bursts of half a second while the profile is taken."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    @property
    def compute(self) -> float:
        """Seconds of one rank's passes, if it is not slow."""
        return sum(layer.forward + layer.backward for layer in self.layers)

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    @property
    def slow_rank(self) -> int | None:
        """The rank a profile must name."""
        return max(self.slow_ranks, key=lambda pair: pair[1])[0] if self.slow_ranks else None


def exposed_seconds(
    layers: Sequence[Layer], seconds_of: Callable[[int], float], factor: float = 1.0
) -> float:
    """Exchange left over after the backward pass, one bucket per layer: ``finish = max(ready, finish) + t``."""
    ready = finish = 0.0
    for layer in reversed(layers):
        ready += layer.backward * factor
        finish = max(ready, finish) + seconds_of(layer.bytes)
    return finish - ready


def ring_wire(ranks: int, size: float) -> float:
    """Bytes every rank sends in a ring all-reduce: 2(p−1)/p of the message."""
    return 2 * (ranks - 1) / ranks * size


def one_burst(wire: Callable[[int], float], rate: float, burst: float) -> Callable[[int], float]:
    """Seconds of a bucket on a shaped link that lets a first burst pass at once after it was idle.

    Only for steps with a single bucket, or buckets with idle time between them.
    """
    return lambda size: max(0.0, wire(size) - burst) / rate


def network_truth(case: Case, rates: Rates) -> dict[str, float]:
    """One rank per node: the ring crosses every uplink once in each direction."""
    rate, burst = rates["network"], rates["network burst"]
    return assemble(case, network=one_burst(lambda n: ring_wire(case.nodes, n), rate, burst))


def interconnect_truth(case: Case, rates: Rates) -> dict[str, float]:
    """Ranks of one node share one medium: all of them together send p times what each does."""
    rate, burst, ranks = rates["interconnect"], rates["interconnect burst"], case.devices
    shared = one_burst(lambda n: ranks * ring_wire(ranks, n), rate, burst)
    return assemble(case, interconnect=shared)


def paced_truth(case: Case, rates: Rates) -> dict[str, float]:
    """The exchange is a future that completes after bytes / rate, one bucket after the other."""
    paced = case.paced
    if paced is None:
        return assemble(case)
    network = paced.network
    return assemble(
        case,
        interconnect=(lambda n: n / paced.interconnect) if case.devices > 1 else None,
        network=(lambda n: n / network) if network else None,
    )


def disk_truth(case: Case, rates: Rates) -> dict[str, float]:
    """Reads limited by the disk: a step's files over the limit, unless that hides behind the step."""
    return assemble(case, read=case.batch * case.file_bytes / rates["disk"])


def credit_truth(case: Case, rates: Rates) -> dict[str, float]:
    """The same without workers: a limit holds on average, so a step reads at once what its passes left unused."""
    reading = case.batch * case.file_bytes / rates["disk"]
    return {"compute": case.compute, "prep": 0.0, "fetch": max(0.0, reading - case.compute)}


def assemble(
    case: Case,
    interconnect: Callable[[int], float] | None = None,
    network: Callable[[int], float] | None = None,
    read: float | None = None,
) -> dict[str, float]:
    """The ladder's steps from the parts, and their differences: seconds per stall that exists in this case."""
    slowest = max((factor for _, factor in case.slow_ranks), default=1.0)
    step = case.compute
    truth = {"compute": step}

    def add(stall: str, new: float) -> None:
        nonlocal step
        truth[stall], step = new - step, new

    if case.ranks > 1:
        add("contention", case.compute * slowest)
    alone = step + jitter_wait(case)

    def together(seconds_of: Callable[[int], float] | None) -> float:
        exchanged = exposed_seconds(case.layers, seconds_of, slowest) if seconds_of else 0.0
        return alone + exchanged

    if case.devices > 1:
        add("interconnect", together(interconnect))
    if case.nodes > 1:
        add("network", together(network))
    making = case.prep / max(1, case.workers)
    add("prep", feed_step(case, step, making))
    if case.files:
        exchanged = step if case.workers else step - making
        slower = (case.prep + (case.read if read is None else read)) / max(1, case.workers)
        # Workers hide what fits behind the step that was there before the data, not behind their own delay.
        before = alone_with_exchange(truth) if case.workers else exchanged
        add("fetch", feed_step(case, before, slower))
    return truth


def alone_with_exchange(truth: Mapping[str, float]) -> float:
    """The replayed step: everything below the data rungs."""
    return sum(seconds for name, seconds in truth.items() if name not in ("prep", "fetch"))


def feed_step(case: Case, step: float, making: float) -> float:
    """A step that needs a batch: after its making, or in parallel with it if there are workers."""
    return max(step, making) if case.workers else step + making


def jitter_wait(case: Case) -> float:
    """Mean wait for the slower of two ranks whose steps vary normally: σ/√π (the expected maximum of two)."""
    return case.jitter * case.compute / math.sqrt(math.pi) if case.ranks == 2 else 0.0


def single(size: int = 1000) -> tuple[Layer, ...]:
    """One layer: nothing of its exchange can overlap."""
    return (Layer(size, COMPUTE / 3, COMPUTE * 2 / 3),)


def four(size: int = 1000) -> tuple[Layer, ...]:
    """Four equal layers, so that the exchange of three overlaps with the backward pass."""
    return tuple(Layer(size // 4, COMPUTE / 12, COMPUTE / 6) for _ in range(4))


def gradient_bytes(times: float, rate: float, wire: float, burst: float) -> int:
    """Gradient bytes whose exchange takes ``times`` the compute on a link of ``rate`` (4-byte multiples)."""
    return round((times * COMPUTE * rate + burst) / wire) // 4 * 4


def _network(
    times: float, layers: Callable[[int], tuple[Layer, ...]] = single, nodes: int = 2
) -> Case:
    overlap = "overlapped" if layers is four else "not overlapped"
    size = gradient_bytes(times, 25e6, ring_wire(nodes, 1), 65536)
    return Case(
        f"network {times:g}x, {nodes} nodes, {overlap}",
        network_truth,
        layers(size),
        ("network",),
        nodes,
        network="200mbit",
    )


def _interconnect(times: float) -> Case:
    return Case(
        f"interconnect {times:g}x, not overlapped",
        interconnect_truth,
        single(gradient_bytes(times, 50e6, 2, 262144)),
        ("interconnect",),
        devices=2,
        interconnect="400mbit",
    )


def _set_pace(
    name: str, *cause: str, layers: tuple[Layer, ...] | None = None, **fields: Any
) -> Case:
    """A single layer, as long as there are no others."""
    return Case(name, paced_truth, layers or single(), cause, **fields)


def _exchange(times: float, interconnect: float | None = None) -> Paced:
    """Rates at which ``BIG`` takes ``times`` the compute across nodes, and ``interconnect`` times inside one."""
    size = BIG
    within = size / (COMPUTE * interconnect) if interconnect else 1e12
    return Paced(within, size / (COMPUTE * times) if times else None)


FILES = 1200
BIG = 4 * BUCKET

CASES: tuple[Case, ...] = (
    # Nothing wrong: every stall is (nearly) nothing, and none may be invented.
    _set_pace("nothing, 1 rank"),
    _set_pace("nothing, 2 ranks", devices=2, workers=1),
    _set_pace("nothing, 2 nodes", nodes=2),
    # Network: bytes over a verified link, then in set times.
    *(_network(times) for times in (0.3, 1, 3)),
    *(_network(times, nodes=3) for times in (1,)),
    *(
        _set_pace(
            f"network {times:g}x in set time, overlapped",
            "network",
            layers=four(BIG),
            nodes=2,
            paced=_exchange(times),
        )
        for times in (1, 3)
    ),
    # Interconnect.
    *(_interconnect(times) for times in (0.3, 1, 3)),
    *(
        _set_pace(
            f"interconnect {times:g}x in set time, overlapped",
            "interconnect",
            layers=four(BIG),
            devices=2,
            paced=_exchange(0, times),
        )
        for times in (1, 3)
    ),
    # Prep and fetch, hidden behind the step as far as workers can.
    *(
        _set_pace(f"prep {times:g}x, no workers", "prep", prep=times * COMPUTE)
        for times in (0.3, 1, 3)
    ),
    # The batches of the warm-up take 0.7 times the mean: replays of those would make compute 20 points too small.
    _set_pace("prep 0.5x, batches that differ", "prep", prep=0.5 * COMPUTE, spread=0.5),
    _set_pace("prep 0.8x, hidden by 1 worker", prep=0.8 * COMPUTE, workers=1),
    _set_pace(
        "prep 4x, 2 workers, 2 ranks",
        "prep",
        devices=2,
        prep=4 * COMPUTE,
        workers=2,
    ),
    *(
        _set_pace(
            f"fetch {times:g}x, no workers",
            "fetch",
            read=times * COMPUTE,
            files=FILES,
        )
        for times in (0.3, 1, 3)
    ),
    _set_pace("fetch 3x, 2 workers", "fetch", read=3 * COMPUTE, files=FILES, workers=2),
    Case(
        "fetch from a disk of 20 MB/s",
        disk_truth,
        single(),
        ("fetch",),
        files=600,
        file_bytes=500_000,
        disk="20MB/s",
        workers=1,
    ),
    # After a pause the limit lets two steps' worth of bytes pass at once: a short block reads on credit.
    Case(
        "fetch from a disk that lends credit",
        credit_truth,
        (Layer(1000, 0.008, 0.016),),
        ("fetch",),
        files=600,
        file_bytes=500_000,
        batch=2,
        disk="20MB/s",
    ),
    # Contention: stragglers.
    *(
        _set_pace(
            f"rank 1 slow, {factor:g}x",
            "contention",
            devices=2,
            slow_ranks=((1, factor),),
        )
        for factor in (1.3, 2, 4)
    ),
    _set_pace("rank 0 slow, 2x", "contention", devices=2, slow_ranks=((0, 2.0),)),
    _set_pace(
        "rank 2 of 3 slow, 3 nodes",
        "contention",
        nodes=3,
        slow_ranks=((2, 2.0),),
    ),
    # Pairs.
    _set_pace(
        "network 2x and prep 4x behind 1 worker",
        "network",
        "prep",
        layers=single(BIG),
        nodes=2,
        paced=_exchange(2),
        prep=4 * COMPUTE,
        workers=1,
    ),
    _set_pace(
        "slow rank 3x and network 1x",
        "contention",
        "network",
        layers=single(BIG),
        nodes=2,
        paced=_exchange(1),
        slow_ranks=((1, 3.0),),
    ),
    _set_pace(
        "interconnect 1x, network 3x, 2 nodes of 2",
        "network",
        "interconnect",
        layers=single(BIG),
        nodes=2,
        devices=2,
        paced=_exchange(3, 1),
    ),
    _set_pace(
        "fetch 2x and prep 1x",
        "fetch",
        "prep",
        prep=COMPUTE,
        read=2 * COMPUTE,
        files=FILES,
    ),
    _set_pace(
        "interconnect 2x and prep 1x",
        "interconnect",
        "prep",
        layers=single(BIG),
        devices=2,
        paced=_exchange(0, 2),
        prep=COMPUTE,
    ),
    _set_pace(
        "network 1x and fetch 3x",
        "fetch",
        "network",
        layers=single(BIG),
        nodes=2,
        paced=_exchange(1),
        read=3 * COMPUTE,
        files=FILES,
    ),
    # All together.
    _set_pace(
        "all five at once, 2 nodes of 2",
        "network",
        "fetch",
        layers=four(BIG),
        nodes=2,
        devices=2,
        paced=_exchange(3, 1),
        slow_ranks=((1, 1.5),),
        prep=0.5 * COMPUTE,
        read=1.5 * COMPUTE,
        files=FILES,
    ),
    # Noise that must not become a stall.
    _set_pace(
        "jitter 5 %, network 1x",
        "network",
        layers=single(BIG),
        nodes=2,
        paced=_exchange(1),
        jitter=0.05,
    ),
    Case(
        "noisy neighbour, network 1x",
        network_truth,
        single(gradient_bytes(1, 25e6, 1, 65536)),
        ("network",),
        2,
        network="200mbit",
        neighbour=True,
    ),
    Case(
        "one of 3 NICs at half rate",
        network_truth,
        single(gradient_bytes(0.5, 25e6, 4 / 3, 65536)),
        ("network",),
        3,
        network="200mbit",
        slow_uplinks=((1, "100mbit"),),
    ),
)

QUICK = (
    "all five at once, 2 nodes of 2",
    "network 1x, 2 nodes, not overlapped",
    "fetch 3x, 2 workers",
    "prep 0.5x, batches that differ",
)
"""What CI runs; ``broken.py`` shows that no build passes whose scopes, caches or queues are wrong."""


def find_cases(text: str) -> list[Case]:
    """The cases whose name contains ``text``; all for an empty text."""
    return [case for case in CASES if text in case.name]


def quick() -> list[Case]:
    """The cases that CI runs."""
    return [case for case in CASES if case.name in QUICK]
