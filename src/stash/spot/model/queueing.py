"""How fast a fleet goes: workers and servers as a closed queueing network.

A worker thinks (computes, moves gradients over PCIe and its own link), then queues at a server's stations:
receive, apply, send. Of several servers it asks all at once, and waits for one of them, as all have the same
queue. Exact mean-value analysis (Reiser and Lavenberg, JACM 1980) gives every fleet within given counts at once.

    W_s(n) = D_s · (1 + Q_s(n − e) − (1 − ρ) · U_s(n − e)),   T_k = Z_k + Σ W_s, X_k = n_k / T_k, Q_s = Σ X_k · W_s

ρ is how much of the update in service an arrival finds still to do. 1 is the product form, exact for exponential
or shared service. Real workers repeat themselves: those that queued once come one after the other from then on.
At 0 they take turns and wait only when a station is full: T is Z + D until N updates take N · D. Between, ρ is
fitted; where no fleet was timed, it is what published ones came to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stash.api import Array
from stash.core.errors import UserError
from stash.spot.fleet_records import FleetPool

MAX_STATES = 2_000_000
"""Fleets that exact analysis holds at once: 300 MB with seven types."""
USUAL_RANDOMNESS = 0.3
"""The median of four fits to published fleets, 0.2 to 0.6 (``bench.spot.speeds``); emulated ones have 0."""
_STEPS_OF_NEWTON = 40
_CLOSE = 1e-12


@dataclass(frozen=True)
class ClosedNetwork:
    """Workers of several types, and the stations that all of them visit once in each iteration."""

    think: Array
    """Z, seconds: [type]."""
    demands: Array
    """D, seconds an update keeps one such station busy: [station]."""
    copies: Array
    """How many stations like it there are, as shards are alike: [station]."""
    randomness: float = 1.0

    @property
    def service(self) -> float:
        """What an update takes at all stations when no other is there."""
        return float(self.demands @ self.copies)


def network_of_pool(pool: FleetPool) -> ClosedNetwork:
    """The network of a pool's facts: each of K shards receives and sends S / K bytes and applies them on its cores.

    Every update goes to all shards at once, so one stands for all: what queues at one queues at the others, and takes
    as long there (``bench.spot.truth`` holds that against fleets with two servers). Several cores are one station
    that is as many times as fast, and the rest of the work a delay (Seidmann et al., 1987): both ends of the load are
    exact. Thinking is what a single worker's iteration leaves, that delay with it. Raises UserError where it leaves
    nothing.
    """
    server = pool.server
    link = pool.exchange_bytes / server.count / server.bytes_per_second
    apply = server.apply_seconds / server.count / server.cores
    demands = np.array([link, apply, link])
    served = float(demands.sum())
    for kind in pool.types:
        if kind.single_seconds <= served:
            raise UserError(
                f"types: {kind.name} takes {kind.single_seconds:.3g} s for an iteration, and the server alone "
                f"{served:.3g} s: one of samples_per_second, exchange_bytes, apply_seconds and the server's "
                "bytes_per_second is wrong"
            )
    single_seconds = np.array([kind.single_seconds for kind in pool.types])
    randomness = USUAL_RANDOMNESS if pool.randomness is None else pool.randomness
    return ClosedNetwork(single_seconds - served, demands, np.ones(3), randomness)


def count_fleets(limits: Sequence[int]) -> int:
    """Fleets within ``limits``, the empty one too."""
    return math.prod(limit + 1 for limit in limits)


def lattice(limits: Sequence[int]) -> Array:
    """Every fleet within ``limits``, the empty one first: [fleet, type]."""
    shape = tuple(limit + 1 for limit in limits)
    found: Array = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1).astype(
        float
    )
    return found


@dataclass(frozen=True)
class Fleets:
    """Every fleet within given counts, and the iteration time of each type in it."""

    counts: Array
    """[fleet, type]; the first is empty, the last has all."""
    seconds: Array
    """T, [fleet, type]; of a type that the fleet lacks, what it would take alone."""

    def iteration_seconds(self, counts: Array) -> Array:
        """T of some of these fleets, ``counts`` [fleet, type]."""
        shape = tuple(int(most) + 1 for most in self.counts[-1])
        found: Array = self.seconds[np.ravel_multi_index(tuple(counts.astype(int).T), shape)]
        return found


def solve_exactly(limits: Sequence[int], network: ClosedNetwork) -> Fleets:
    """All fleets of at most ``limits`` workers of each type, by exact mean-value analysis, smaller ones first used.

    As sub-fleets are needed anyway, the whole lattice costs no more than its largest fleet.
    """
    counts = lattice(limits)
    shape = tuple(limit + 1 for limit in limits)
    strides = np.array([math.prod(shape[kind + 1 :]) for kind in range(len(shape))])
    sizes = counts.sum(axis=1)
    queue = np.zeros((len(counts), len(network.demands)))
    busy = np.zeros_like(queue)
    seconds = np.tile(network.think + network.service, (len(counts), 1))
    order = np.argsort(sizes, kind="stable")
    starts = np.searchsorted(sizes[order], np.arange(int(sizes.max()) + 2))
    for size in range(1, len(starts) - 1):
        level = order[starts[size] : starts[size + 1]]
        found = np.zeros((len(level), len(shape)))
        waits = np.zeros((len(level), len(shape), len(network.demands)))
        for kind in range(len(shape)):
            fewer = np.where(counts[level, kind] > 0, level - strides[kind], 0)
            ahead = 1 + queue[fewer] - (1 - network.randomness) * busy[fewer]
            waits[:, kind] = network.demands * ahead
            found[:, kind] = network.think[kind] + waits[:, kind] @ network.copies
        seconds[level], queue[level], busy[level] = _settle_stations(
            network, counts[level], found, waits
        )
    return Fleets(counts, seconds)


def _settle_stations(
    network: ClosedNetwork, counts: Array, seconds: Array, waits: Array
) -> tuple[Array, Array, Array]:
    """Iterations, queues and utilisations, once no station does more than it can.

    The product form never asks for that. Where arrivals take turns, a full station makes all of them wait longer by
    the same w: Σ n / (T + w) = 1 / D, which is convex in w, so that Newton's method comes from below.
    """
    worst = int(np.argmax(network.demands))
    wait = np.zeros(len(counts))
    most = 1 / network.demands[worst] if network.demands[worst] > 0 else np.inf
    if network.randomness < 1 and np.isfinite(most):
        for _ in range(_STEPS_OF_NEWTON):
            longer = seconds + wait[:, None]
            excess = np.maximum((counts / longer).sum(axis=1) - most, 0.0)
            if (excess <= most * _CLOSE).all():
                break
            wait += excess / (counts / longer**2).sum(axis=1)
    longer = seconds + wait[:, None]
    rates = counts / longer
    queue = (rates[..., None] * waits).sum(axis=1)
    queue[:, worst] += rates.sum(axis=1) * wait / network.copies[worst]
    return longer, queue, rates.sum(axis=1)[:, None] * network.demands


def fleet_seconds(counts: npt.NDArray[np.int_], network: ClosedNetwork) -> Array:
    """T, [type], in one fleet; raises UserError for one that is too large."""
    limits = [int(count) for count in counts]
    if count_fleets(limits) > MAX_STATES:
        raise UserError(
            f"a fleet of {sum(limits)} workers of {len(limits)} types has too many parts to be predicted; ask about "
            "fewer workers, or fewer types"
        )
    found: Array = solve_exactly(limits, network).seconds[-1]
    return found


# Progress: equations (1), (2), (4) and (5) of spotDNN (Shang et al., IWQoS 2023)


@dataclass(frozen=True)
class FleetPace:
    """How fast fleets of unlike workers get on, one entry each."""

    updates_per_second: Array
    """(2) 1 / Texp = Σ 1 / Tᵢ."""
    samples_per_second: Array
    """(4) v = Σ vᵢ with vᵢ = bᵢ / Tᵢ."""
    imbalance: Array
    """(5) R = √((w₁ − 1)² + Σ_{i>1} wᵢ²) with wᵢ = vᵢ / v, worker 1 being the fastest: √(1 − 2 · w₁ + Σ wᵢ²)."""

    @property
    def mean_batch(self) -> Array:
        """(4) bw = v · Texp: samples of a mean update."""
        return self.samples_per_second / self.updates_per_second


def asynchronous(counts: Array, seconds: Array, samples: Array) -> FleetPace:
    """Pace of workers that never wait for each other; ``counts`` and ``seconds`` (of an iteration) are [fleet, type].

    ``samples`` are bᵢ, [type]. Each fleet has one worker at least.
    """
    rates = counts / seconds
    total = (rates * samples[None, :]).sum(axis=1)
    shares = samples[None, :] / seconds / total[:, None]
    fastest = np.where(counts > 0, shares, 0.0).max(axis=1)
    squared = 1 - 2 * fastest + (counts * shares**2).sum(axis=1)
    # of a single worker it is 0, or a rounding error below
    imbalance = np.sqrt(np.maximum(squared, 0.0))
    return FleetPace(rates.sum(axis=1), total, imbalance)
