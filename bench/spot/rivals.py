"""How others would choose a fleet, each weighed by the same model as the plan: what they leave on the table.

spotDNN's Algorithm 1 (Shang et al., IWQoS 2023) sorts all machines by their iteration alone and weighs windows of a
list. As the paper prints it and as its code does it differ in the order, in how many machines a window may have, and
in whether it wraps: the code's own slips are kept, since they are what it rents. A black box knows no structure, only
what a fleet costs: simulated annealing over counts of machines, as provisioners without a model of what they search
have it (Srifty, MLSys 2022, searches so).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, FleetWish, WeighedFleets, judged, weigh
from stash.spot.model.queueing import bandwidth, compute_seconds
from stash.spot.records.fleets import Baseline, Contention, FleetPool

Search = Callable[[FleetWish], Array | None]
"""The exact one: the cheapest fleet's counts, ``None`` if there is none."""
_EVALUATIONS = 1_000


def baselines(
    wish: FleetWish, best: Array | None, known: WeighedFleets | None, search: Search
) -> tuple[Baseline, ...]:
    """All of them; ``known`` are all fleets where those were weighed anyway."""
    return tuple(_each(wish, best, known, search))


def _each(wish: FleetWish, best: Array | None, known: WeighedFleets | None, search: Search) -> Iterator[Baseline]:
    for name, algorithm in (("spotdnn printed", printed), ("spotdnn shipped", shipped)):
        text = f"Algorithm 1 of spotDNN, as {'the paper prints it' if algorithm is printed else 'its code does it'}"
        if wish.pool.contention is None:
            yield Baseline(name=name, text=text, fleet=None, why="the pool has no contention: for equations (8), (9)")
        else:
            yield judged(name, text, wish, *algorithm(wish))
    yield _without_contention(wish, search)
    order = sorted(
        (kind for kind, quota in enumerate(wish.quotas) if quota),
        key=lambda kind: wish.pool.types[kind].single_seconds,
    )
    for name, kind in (("homogeneous slow", order[-1]), ("homogeneous fast", order[0])):
        yield _homogeneous(name, kind, wish)
    if known is not None:
        yield judged("exhaustive", "every fleet within the quotas", wish, best, len(known.counts))
    yield _black_box(wish, known)


def _without_contention(wish: FleetWish, search: Search) -> Baseline:
    """CM-DARE (Li et al., ICDCS 2020) adds up what workers do alone."""
    text = "CM-DARE-like: workers as fast together as alone"
    if (compute_seconds(wish.pool) <= 0).any():
        return Baseline(name="no contention", text=text, fleet=None, why="a type's speed contradicts its exchange")
    free = wish.pool.model_copy(update={"contention": Contention(alpha=0, beta=0)})
    chosen = search(replace(wish, pool=free, model="paper", budget_dollars=None))
    return judged("no contention", text, wish, chosen, 0)


def _homogeneous(name: str, kind: int, wish: FleetWish) -> Baseline:
    counts = np.zeros((wish.quotas[kind], len(wish.quotas)))
    counts[:, kind] = np.arange(1, wish.quotas[kind] + 1)
    found = weigh(wish, counts)
    text = f"only {wish.pool.types[kind].name}, the {'slowest' if 'slow' in name else 'fastest'} type alone"
    dollars = np.where(found.feasible, found.dollars, math.inf)
    at = int(np.argmin(dollars)) if found.feasible.any() else int(np.argmin(found.seconds))
    return judged(name, text, wish, counts[at], len(counts))


def _black_box(wish: FleetWish, known: WeighedFleets | None) -> Baseline:
    chosen, course = anneal(wish.quotas, cost_of(wish, known), _EVALUATIONS)
    return judged("black box", "simulated annealing, without the model's structure", wish, chosen, len(course))


def cost_of(wish: FleetWish, known: WeighedFleets | None) -> Callable[[Array], float]:
    """Dollars of one fleet, infinite if it will not do: looked up where all are known, weighed otherwise."""
    if known is None:

        def weighed(counts: Array) -> float:
            found = weigh(wish, counts[None, :])
            return float(found.dollars[0]) if found.feasible[0] else math.inf

        return weighed
    shape = tuple(quota + 1 for quota in wish.quotas)

    def looked_up(counts: Array) -> float:
        at = int(np.ravel_multi_index(tuple(int(n) for n in counts), shape)) - 1
        return float(known.dollars[at]) if known.feasible[at] else math.inf

    return looked_up


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


_HOT, _COLD = 0.3, 1e-3
"""Temperatures as fractions of a fleet's cost."""


def anneal(
    quotas: Sequence[int], cost: Callable[[Array], float], evaluations: int, seed: int = 17
) -> tuple[Array | None, list[float]]:
    """(best counts, cost of the best so far after each evaluation); ``cost`` is infinite where a fleet will not do.

    A step adds a machine, drops one, or swaps one for another; what will not do is never gone to from what does.
    """
    draw = np.random.default_rng(seed)
    most = np.array(quotas, dtype=float)
    here = most.copy()
    value = cost(here)
    best, course = (here, [value])
    for number in range(1, evaluations):
        heat = _HOT * (_COLD / _HOT) ** (number / evaluations)
        there = _neighbour(here, most, draw)
        new = cost(there)
        if new <= value or (0 < value < math.inf and draw.random() < math.exp(-min(new / value - 1, 700.0) / heat)):
            here, value = there, new
        if new < course[-1]:
            best = there
        course.append(min(course[-1], new))
    return (best if math.isfinite(course[-1]) else None), course


def _neighbour(here: Array, most: Array, draw: np.random.Generator) -> Array:
    """Another fleet within quotas, with one worker at least."""
    while True:
        there: Array = here.copy()
        for change in ((1, -1), (1,), (-1,))[draw.integers(3)]:
            there[draw.integers(len(here))] += change
        if (there >= 0).all() and (there <= most).all() and there.any() and (there != here).any():
            return there
        if most.sum() <= 1:
            return here
