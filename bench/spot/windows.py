"""spotDNN's own search, Algorithm 1 (Shang et al., IWQoS 2023), as the paper prints it and as its code does it.

Both sort all machines by their lone iteration and weigh windows of that list. They differ in the order, in how many
machines a window may have, and in whether it wraps: the code's own slips are kept, since they are what it rents.
"""

from __future__ import annotations

import math

import numpy as np

from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, FleetWish, weigh
from stash.spot.model.queueing import bandwidth
from stash.spot.records.fleets import Contention, FleetPool


def paper_upper(contention: Contention) -> int | None:
    """(15) ⌊((1 − β₁) / α₁)²⌋: the workers from which P is 1. No bound on good fleets; ``None`` unless α₁ > 0."""
    return math.floor(((1 - contention.beta) / contention.alpha) ** 2) if contention.alpha > 0 else None


def lower_bound(wish: FleetWish) -> int:
    """(16) ⌈bmin · ((γ₂ · bmin + γ₃) · √γ₄ / (Lobj − γ₅) − γ₁) / (vmax · Tobj)⌉, without R in √γ₄ = 1.

    No bound: as γ₂ is negative the smallest batch needs the most updates, not the fewest.
    """
    curve, kinds = wish.pool.loss, wish.pool.types
    batch = min(kind.samples for kind in kinds)
    root = 1.0 if curve.gamma4 is None else math.sqrt(curve.gamma4)
    updates = (curve.gamma2 * batch + curve.gamma3) * root / (wish.loss - curve.gamma5) - curve.gamma1
    return math.ceil(batch * updates / (max(kind.samples_per_second for kind in kinds) * wish.deadline_seconds))


def printed(wish: FleetWish) -> tuple[Array | None, int]:
    """(counts of the cheapest window in time, windows weighed): slowest first, from (16) to (15) machines."""
    assert wish.pool.contention is not None
    machines = _machines(wish.pool, slowest_first=True)
    upper = paper_upper(wish.pool.contention)
    most = len(machines) if upper is None else min(upper, len(machines))
    best, least, weighed = None, math.inf, 0
    before = np.concatenate([np.zeros((1, len(wish.quotas))), np.cumsum(np.eye(len(wish.quotas))[machines], axis=0)])
    for size in range(max(1, lower_bound(wish)), most + 1):
        counts = before[size:] - before[:-size]
        weighed += len(counts)
        found = weigh(wish, counts)
        dollars = np.where(found.feasible, found.dollars, math.inf)
        at = int(np.argmin(dollars))
        if dollars[at] < least:
            best, least = counts[at], float(dollars[at])
    return best, weighed


def shipped(wish: FleetWish) -> tuple[Array | None, int]:
    """The same of the code: fastest first, windows that wrap, of any size, PCIe counted twice, figures rounded."""
    machines = _machines(wish.pool, slowest_first=False)
    best, least = None, math.inf
    for size in range(1, len(machines)):
        seconds, dollars = _as_shipped(wish, machines, size)
        dollars = np.where((seconds > 0) & (seconds <= wish.deadline_seconds), dollars, math.inf)
        at = int(np.argmin(dollars))
        if dollars[at] < least:
            window = [machines[(at + step) % len(machines)] for step in range(size)]
            best, least = np.bincount(window, minlength=len(wish.quotas)).astype(float), float(dollars[at])
    return best, len(machines) * (len(machines) - 1)


def _machines(pool: FleetPool, slowest_first: bool) -> list[int]:
    order = sorted(range(len(pool.types)), key=lambda kind: pool.types[kind].single_seconds, reverse=slowest_first)
    return [kind for kind in order for _ in range(pool.types[kind].quota)]


def _as_shipped(wish: FleetWish, machines: list[int], size: int) -> tuple[Array, Array]:
    """(seconds, dollars) of the window from each machine on as predictor.py has them: [machine].

    Server and start-up are forgotten.
    """
    pool, curve = wish.pool, wish.pool.loss
    assert pool.contention is not None
    exchanged, wanted = pool.exchange_bytes, pool.worker_bytes_per_second
    carried = pool.server.count * pool.server.bytes_per_second
    network = float(bandwidth(np.array([float(size)]), wanted, carried, pool.contention)[0])
    times = np.array(
        [
            kind.single_seconds
            - (2 * exchanged / wanted - 2 * kind.gpus * exchanged / pool.pcie_bytes_per_second)
            + 2 * exchanged / network
            for kind in pool.types
        ]
    )[machines]
    updates, samples = _windows(1 / times, size), _windows(wish.samples[machines] / times, size)
    batch = np.round(samples / updates, 1)
    needed = (curve.gamma2 * batch + curve.gamma3) * math.sqrt(size) / (wish.loss - curve.gamma5) - curve.gamma1
    seconds = np.round(batch * np.round(needed) / samples, 2)
    dollars: Array = _windows(wish.prices[machines], size) * seconds / HOUR
    return seconds, np.round(dollars, 6)


def _windows(values: Array, size: int) -> Array:
    """Sums over ``size`` neighbours from each on, the first following the last."""
    before = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values]))])
    found: Array = before[size : size + len(values)] - before[: len(values)]
    return found
