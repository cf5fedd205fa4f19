"""Markets drawn at random: instance types with facts of many kinds at random prices, and goals that are near to them.

Types are a fixed pool, so that their forecasts can be kept; prices, constraints and goals are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from catalogs import box
from forecast_profiles import CALM, WIGGLE, around, gpu_job

from stash.catalog.facts import Instance, Price
from stash.catalog.layers import merge
from stash.catalog.offers import Catalog
from stash.core.measured import Memory
from stash.core.records.profile import Profile
from stash.plan.evaluation import STEP, Evaluation
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.plan.search import CandidateSet, PlanProblem
from stash.predict.changes import Alteration
from stash.predict.forecast import StallDraws
from stash.predict.forecasting import stall_draws
from stash.predict.passes import Base

GPUS = merge(None, None).gpus
SAMPLES = 5_000_000


def kind(gpu: str, count: int, gbit: float | None, **more: Any) -> Instance:
    """A type of that many GPUs behind a network of so many Gbit/s."""
    found = next(each for each in GPUS if each.name == gpu)
    facts: dict[str, Any] = {
        "gpu": gpu,
        "gpu_model": found.model,
        "gpu_count": count,
        "gpu_memory_bytes": found.memory_bytes,
        "vcpus": 8.0 * count,
        "memory_bytes": 61e9 * count,
        "network_bytes_per_second": None if gbit is None else gbit * 1.25e8,
        "pcie_bytes_per_second": 15.75e9,
        "interconnect": "pcie3",
        "remote_disk_bytes_per_second": 4e8,
    }
    return box(f"{gpu.partition('-')[0].lower()}x{count}-{gbit}", **{**facts, **more})


POOL = (
    kind("V100-SXM2-16GB", 1, 10),
    kind("V100-SXM2-16GB", 4, 25, interconnect="nvlink2", interconnect_bytes_per_second=150e9),
    kind("V100-SXM2-16GB", 8, 10, vcpus=16.0),
    kind("T4", 1, 5),
    kind("T4", 4, 50, memory_bytes=400e9),
    kind("T4", 2, None),
    kind("K80", 8, 10),
    kind("K80", 1, 1, remote_disk_bytes_per_second=5e7),
    kind(
        "A100-SXM4-40GB",
        8,
        400,
        rdma=True,
        rdma_bytes_per_second=5e10,
        interconnect="nvlink3+nvswitch",
        interconnect_bytes_per_second=600e9,
    ),
    kind("A100-SXM4-40GB", 1, 100, vcpus=64.0),
    kind("A100-SXM4-40GB", 2, 2),
    kind("T4", 8, 100, vcpus=2.0),
    kind("V100-SXM2-16GB", 2, 10),
    kind("V100-SXM2-16GB", 4, 800, rdma=True, rdma_bytes_per_second=1e11),
)


def jobs() -> tuple[Profile, ...]:
    """One job profiled in several ways: on two nodes, on one, with noise below zero, and bound by its data.

    Its step takes 6 GB of a device, or 13, which a K80 has not.
    """
    noisy = {
        "resident": around(0.170, WIGGLE),
        "solo": around(0.169, WIGGLE),
        "crowd": around(0.1685, WIGGLE),
        "node": around(0.168),
        "cluster": around(0.1675, WIGGLE),
        "warm": around(0.167),
        "cold": around(0.1665, CALM),
    }
    slow = {"warm": {"wait_seconds": 2.0, "fetch_seconds": 20.0}}
    usual = gpu_job()
    spread = usual.model_copy(update={"blocks": _change_means(gpu_job(), noisy)})
    alone = gpu_job(ranks=2, nodes=1)
    small, large = ((Memory(rank=0, allocated_bytes=size * 10**9),) for size in (6, 13))
    own = tuple(
        host.model_copy(update={"instance": "v100x2-10", "cloud": "here"}) for host in usual.hosts
    )
    usual = usual.model_copy(update={"hosts": own})  # on two nodes of a type that is for rent, too
    return tuple(
        job.model_copy(update={"memory": peak})
        for job, peak in (
            (usual, small),
            (alone, large),
            (spread, small),
            (gpu_job(block_extra=slow), large),
        )
    )


def _change_means(profile: Profile, times: dict[str, list[float]]) -> Any:
    """The same blocks with other means."""
    return tuple(
        replace(block, seconds=10 * times[block.rung][block.round]) for block in profile.blocks
    )


def drawn_market(seed: int) -> tuple[Catalog, Goal, Constraints]:
    """Three to five types, some at two prices, and a goal that some of them may just keep."""
    chance = random.Random(seed)
    types = chance.sample(POOL, chance.randint(3, 5))
    prices = []
    for each in types:
        dollars = (
            float(each.gpu_count or 1)
            * chance.choice((0.4, 0.9, 1.0, 1.5, 3.0))
            * chance.uniform(0.8, 1.2)
        )
        prices.append(
            Price(
                "here", each.name, "r1", "on-demand", round(dollars, 3), "2026-11-20", "made up", ""
            )
        )
        if chance.random() < 0.4:
            prices.append(
                Price(
                    "here",
                    each.name,
                    "r2",
                    "on-demand",
                    round(dollars * 1.1, 3),
                    "2026-11-20",
                    "x",
                    "",
                )
            )
        if chance.random() < 0.4:
            prices.append(
                Price(
                    "here",
                    each.name,
                    "r1",
                    "spot",
                    round(dollars * 0.5, 3),
                    "2026-11-20",
                    "made up",
                    "",
                )
            )
    catalog = Catalog(GPUS, tuple(types), tuple(prices))
    scaling = chance.choice(("per device", "per device", "global"))
    goal = Goal(
        work=TrainingWork(samples=SAMPLES, text="some"),
        deadline_seconds=chance.choice((None, chance.uniform(400, 20_000))),
        budget_dollars=chance.choice((None, chance.uniform(2, 40))),
        confidence=chance.choice((0.75, 0.9)),
        scaling=scaling,
    )
    constraints = Constraints(
        most_nodes=chance.randint(1, 5), spot=chance.choice(("never", "allow"))
    )
    return catalog, goal, constraints


def remembering(bases: list[Base]) -> Callable[[Base, Alteration], StallDraws]:
    """``stall_draws`` that makes each forecast of these bases' profiles once, whatever the catalog's prices are."""
    kept: dict[tuple[int, Alteration], StallDraws] = {}
    numbers = {id(base.profile): number for number, base in enumerate(bases)}

    def drawn(base: Base, wanted: Alteration) -> StallDraws:
        key = numbers[id(base.profile)], wanted
        if key not in kept:
            kept[key] = stall_draws(base, wanted)
        return kept[key]

    return drawn


def every(question: PlanProblem, candidates: CandidateSet) -> list[Evaluation]:
    """All candidates that can be forecast, none left out: what a search has to find the best of."""
    found = []
    for chain in candidates.chains:
        for number in range(len(chain.shape.nodes)):
            while chain.stage[number] < STEP and chain.least["seconds"][number] < float("inf"):
                question.evaluator.advance(chain, number)
            if chain.least["seconds"][number] < float("inf"):
                found.append(question.evaluator.evaluate(chain, number))
    return found


def find_undominated(found: list[Evaluation]) -> list[tuple[float, float]]:
    """(dollars, seconds) that nothing beats in both, by comparing each with each."""
    points = {(each.dollars, each.seconds) for each in found}
    return sorted(
        one
        for one in points
        if not any(two != one and two[0] <= one[0] and two[1] <= one[1] for two in points)
    )
