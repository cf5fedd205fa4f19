"""spotDNN's own search, Algorithm 1 (Shang et al., IWQoS 2023), as the paper prints it and as its code does it.

Both sort all machines by their lone iteration and weigh windows of that list. They differ in the order, in how many
machines a window may have, and in whether it wraps: the code's own slips are kept, since they are what it rents.
"""

from __future__ import annotations

import math

import numpy as np

from stash.base.spot import FleetPool
from stash.derive.predict.draws import Array
from stash.derive.spot.sharing import bandwidth, paper_upper
from stash.derive.spot.weighing import HOUR, FleetWish, weigh


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
    windows = [
        machines[start : start + size]
        for size in range(max(1, lower_bound(wish)), most + 1)
        for start in range(len(machines) - size + 1)
    ]
    if not windows:
        return None, 0
    counts = np.array([np.bincount(window, minlength=len(wish.pool.types)) for window in windows], dtype=float)
    found = weigh(wish, counts)
    if not found.feasible.any():
        return None, len(windows)
    best: Array = counts[int(np.argmin(np.where(found.feasible, found.dollars, math.inf)))]
    return best, len(windows)


def shipped(wish: FleetWish) -> tuple[Array | None, int]:
    """The same of the code: fastest first, windows that wrap, of any size, PCIe counted twice, figures rounded."""
    machines = _machines(wish.pool, slowest_first=False)
    best, least, weighed = None, math.inf, 0
    last: tuple[int, ...] = ()
    for size in range(1, len(machines)):
        for start in range(len(machines)):
            window = machines[start : start + size]
            if start + size > len(machines):
                window += machines[: (start + size) % len(machines)]
            if tuple(window) == last:
                continue
            last = tuple(window)
            weighed += 1
            seconds, dollars = _as_shipped(wish, window)
            if 0 < seconds <= wish.deadline_seconds and dollars < least:
                best, least = np.bincount(window, minlength=len(wish.pool.types)).astype(float), dollars
    return best, weighed


def _machines(pool: FleetPool, slowest_first: bool) -> list[int]:
    order = sorted(range(len(pool.types)), key=lambda kind: pool.types[kind].lone_seconds, reverse=slowest_first)
    return [kind for kind in order for _ in range(pool.types[kind].quota)]


def _as_shipped(wish: FleetWish, window: list[int]) -> tuple[float, float]:
    """(seconds, dollars) as predictor.py has them, server and start-up forgotten."""
    pool, curve = wish.pool, wish.pool.loss
    assert pool.contention is not None
    kinds, size, wanted = pool.types, pool.exchange_bytes, pool.worker_bytes_per_second
    carried = pool.server.count * pool.server.bytes_per_second
    network = float(bandwidth(np.array([float(len(window))]), wanted, carried, pool.contention)[0])
    times = np.array(
        [
            kinds[kind].lone_seconds
            - (2 * size / wanted - 2 * kinds[kind].gpus * size / pool.pcie_bytes_per_second)
            + 2 * size / network
            for kind in window
        ]
    )
    samples = wish.samples[window]
    batch = round(float(samples @ (1 / times)) / float((1 / times).sum()), 1)
    updates = (curve.gamma2 * batch + curve.gamma3) * math.sqrt(len(window)) / (wish.loss - curve.gamma5)
    seconds = round(batch * round(updates - curve.gamma1) / float((samples / times).sum()), 2)
    return seconds, float(wish.prices[window].sum()) * seconds / HOUR
