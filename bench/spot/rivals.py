"""How others would choose a fleet, each weighed by the same model as the plan: what they leave on the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from bench.spot.annealing import anneal
from bench.spot.windows import printed, shipped
from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import Everything, FleetWish, judged, weigh
from stash.spot.model.queueing import compute_seconds
from stash.spot.records.fleets import Baseline, Contention

Search = Callable[[FleetWish], Array | None]
"""The exact one: the cheapest fleet's counts, ``None`` if there is none."""
_EVALUATIONS = 1_000


def baselines(wish: FleetWish, best: Array | None, known: Everything | None, search: Search) -> tuple[Baseline, ...]:
    """All of them; ``known`` are all fleets where those were weighed anyway."""
    return tuple(_each(wish, best, known, search))


def _each(wish: FleetWish, best: Array | None, known: Everything | None, search: Search) -> Iterator[Baseline]:
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


def _black_box(wish: FleetWish, known: Everything | None) -> Baseline:
    chosen, course = anneal(wish.quotas, cost_of(wish, known), _EVALUATIONS)
    return judged("black box", "simulated annealing, without the model's structure", wish, chosen, len(course))


def cost_of(wish: FleetWish, known: Everything | None) -> Callable[[Array], float]:
    """Dollars of one fleet, infinite if it will not do: looked up where all are known, weighed otherwise."""
    if known is None:

        def weighed(counts: Array) -> float:
            found = weigh(wish, counts[None, :])
            return float(found.dollars[0]) if found.feasible[0] else math.inf

        return weighed
    shape = tuple(quota + 1 for quota in wish.quotas)

    def looked_up(counts: Array) -> float:
        at = int(np.ravel_multi_index(tuple(int(n) for n in counts), shape)) - 1
        return float(known.weighed.dollars[at]) if known.weighed.feasible[at] else math.inf

    return looked_up
