"""Every candidate that constraints leave, and the exact search among them: none left out but by proof.

Candidates stand in chains, one a type, price and shape, each node count with a lower bound of every number that is
compared (``bounds``). The one with the least bound is taken a stage further, until the least of all is no bound but
the number itself: nothing else can be less. That is A* on a set (Hart, Nilsson, Raphael 1968). A front is the same
search gone on: in ascending dollars, only what is sooner than all before it can belong to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from numpy.typing import NDArray

from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.units import format_count
from stash.plan.bill import BillFacts
from stash.plan.bounds import LowerBounds, Measure
from stash.plan.candidates import Market, Rentable, build_market
from stash.plan.evaluation import WHOLE, CandidateChain, Evaluation, Evaluator
from stash.plan.records import IN_BUDGET, IN_TIME, Constraints, Goal, Unranked
from stash.plan.settings import (
    PROFILED,
    StepPlan,
    add_machines,
    find_room,
    find_shapes,
    is_profiled_on,
    measured_machines,
    nearest_profile,
    why_not_divisible,
)
from stash.predict.cluster import NodeTransport, Target, transport_used
from stash.predict.passes import Base, profile_command

_FROM_CPUS = "the job was profiled on CPUs, which says nothing about GPUs or other CPUs"
_HOLES = {
    "memory_bandwidth": "memory_bytes_per_second",
    "fp32_tflops": "fp32_flops_per_second",
    "tensor_fp16_tflops": "tensor_fp16_flops_per_second",
}
"""What a GPU's speed is told from, by the names that fields have in a file of one's own."""


@dataclass(frozen=True)
class CandidateSet:
    """What may be rented under some constraints, and what is known of it for one goal."""

    evaluator: Evaluator
    market: Market
    chains: tuple[CandidateChain, ...]
    unranked: tuple[Unranked, ...]

    @property
    def combinations(self) -> int:
        """Combinations of offer, nodes and setting."""
        return sum(len(chain.shape.nodes) * chain.rentable.offers for chain in self.chains)

    @property
    def pruned_count(self) -> int:
        """Combinations skipped so far: dearer offers of the same machines, and what bounds kept from being billed."""
        count = 0
        for chain in self.chains:
            count += (chain.rentable.offers - 1) * len(chain.shape.nodes)
            is_known = np.isfinite(chain.least["seconds"])
            count += int(np.count_nonzero(is_known & (chain.stage < WHOLE)))
        return count

    def change_goal(self, goal: Goal) -> CandidateSet:
        """The same candidates for another goal, by the same forecasts."""
        other = self.evaluator.change_goal(goal)
        chains = tuple(other.chain(each.rentable, each.shape, each.own) for each in self.chains)
        return replace(self, evaluator=other, chains=chains)

    def least(self, measure: Measure, goal: Goal | None = None) -> Evaluation | None:
        """The one of least ``measure`` that keeps ``goal``; ``None`` if nothing does."""
        return find_least(self.evaluator, self.chains, measure, goal)

    def with_lateness_priced(self) -> CandidateSet:
        """The same for a goal that says what being late costs: else the bill of what is surely in time.

        That is what one who is late would rather have rented; where nothing is so sure, of what may be in time.
        """
        goal = self.evaluator.goal
        if not goal.weighs_lateness or goal.late_dollars is not None:
            return self
        for confidence in (IN_BUDGET, IN_TIME):
            sure = goal.model_copy(update={"confidence": confidence})
            found = self.change_goal(sure).least("dollars", sure)
            if found is not None:
                return self.change_goal(goal.model_copy(update={"late_dollars": found.dollars}))
        return self

    def types(self) -> dict[str, list[CandidateChain]]:
        """Chains by ``cloud/name``."""
        by_type: dict[str, list[CandidateChain]] = {}
        for chain in self.chains:
            by_type.setdefault(chain.rentable.key, []).append(chain)
        return by_type


class PlanProblem:
    """What is asked, whatever may be rented for it; forecasts are shared between sets of candidates."""

    def __init__(
        self,
        bases: Sequence[Base],
        plan: StepPlan,
        catalog: Catalog,
        facts: BillFacts,
        machines: Mapping[str, Target],
        now: date,
        transport: NodeTransport | None = None,
    ) -> None:
        self._given, self._now, self._transport = frozenset(machines), now, transport
        self._machines = {**measured_machines(bases, catalog, transport), **machines}
        self.bases = tuple(add_machines(base, catalog, self._machines) for base in bases)
        self._catalog = catalog
        self._plan = plan
        self.evaluator = Evaluator(plan.goal, facts, transport)

    @property
    def transport_note(self) -> str:
        """How several machines are taken to talk, in a sentence."""
        used = self._transport or transport_used(self.bases[0].target.network)
        if used == "rdma":
            return "machines talk over EFA or InfiniBand where a type has it, else over sockets (--transport sockets)"
        return "machines talk over sockets, which need no set-up (--transport efa: where a type has it)"

    def candidates(self, constraints: Constraints) -> CandidateSet:
        """Every candidate; raises UserError if there is none."""
        left = build_market(self._catalog, constraints, self._machines, self._now)
        chains: list[CandidateChain] = []
        unranked = list(left.unranked)
        self._refuse_unknown_cpus(left)
        for rentable in left.rentables:
            if rentable.device is None and self.bases[0].target.device is not None:
                continue  # a job of GPUs, and a machine without
            try:
                chains += self._chains(rentable)
            except UserError as error:
                unranked.append(rentable.make_unranked(f"{error}{self._sheet_holes(rentable)}"))
        if not chains:
            reasons = Counter(each.why for each in unranked).most_common(2)
            why = (
                "; ".join(f"{why} ({format_count(count, 'type')})" for why, count in reasons)
                or "none of it has a GPU"
            )
            raise UserError(f"nothing that may be rented can be forecast: {why}")
        return CandidateSet(self.evaluator, left, tuple(chains), tuple(unranked))

    def _sheet_holes(self, rentable: Rentable) -> str:
        """What the GPU's data sheet lacks, and what would fill it; empty where that is not what is missing."""
        known = [gpu for gpu in self._catalog.gpus if rentable.device in (gpu.name, gpu.model)]
        lacks = [
            name for name, field in _HOLES.items() if known and getattr(known[0], field) is None
        ]
        if "memory_bandwidth" not in lacks and "fp32_tflops" not in lacks:
            return ""
        return (
            f"; or add {join_names(lacks)} to {known[0].name} under gpus: in a file for --instances"
        )

    def _refuse_unknown_cpus(self, left: Market) -> None:
        """Raise UserError where all profiles are of CPUs, and none is of a type that may be rented."""
        on_cpus = all(base.target.device is None for base in self.bases)
        if on_cpus and not any(
            each.device is None and each.machine is not None for each in left.rentables
        ):
            again = profile_command(self.bases[0].profile)
            raise UserError(
                f"{_FROM_CPUS}; run `{again}` (about {PROFILED:.0f} s) on a machine with any GPU or, to rent CPUs, on "
                "the type you would rent"
            )

    def _chains(self, rentable: Rentable) -> list[CandidateChain]:
        base = nearest_profile(self.bases, rentable)
        own = rentable.instance.name not in self._given and is_profiled_on(base, rentable.instance)
        if base.target.device is None and rentable.machine is None:
            raise UserError(_FROM_CPUS)
        share = 1.0 if rentable.machine is None else rentable.machine.device_share
        if share != base.target.device_share:
            raise UserError(
                "the job was profiled on a slice of a GPU, and how fast others train does not follow"
            )
        fits = find_room(base, rentable)
        if not fits.largest:
            raise UserError(fits.why)
        shapes = find_shapes(rentable, base, self._plan, fits.largest)
        if not shapes:
            why = why_not_divisible(base, rentable, rentable.most_nodes)
            raise UserError(
                why
                or "no number of its devices shares out the batch evenly in parts that fit into their memory"
            )
        return [self.evaluator.chain(rentable, shape, own) for shape in shapes]


# The exact search


def can_keep_limits(goal: Goal | None, least: LowerBounds) -> NDArray[np.bool_]:
    """Which node counts may keep the goal's deadline and budget with its confidence, ``[node counts]``.

    Those that cannot be forecast never do. ``None``: whatever it takes.
    """
    kept = np.isfinite(least["seconds"])
    if goal is not None and goal.deadline_seconds is not None:
        kept &= least["sure_seconds"] <= goal.deadline_seconds
    if goal is not None and goal.budget_dollars is not None:
        kept &= least["sure_dollars"] <= goal.budget_dollars
    return kept


def find_least(
    evaluator: Evaluator,
    chains: Sequence[CandidateChain],
    measure: Measure,
    goal: Goal | None = None,
) -> Evaluation | None:
    """The candidate of least ``measure`` that keeps ``goal``; ``None`` if nothing does."""
    return next(iter_ascending(evaluator, chains, measure, goal), None)


def find_best(
    evaluator: Evaluator, chains: Sequence[CandidateChain], goal: Goal
) -> Evaluation | None:
    """The candidate that keeps ``goal`` of the least that it aims at, with what being late costs where that counts.

    That is never less than its bill: so in ascending order of bills, none after the first whose bill alone is more
    than the best so far can be better.
    """
    if not goal.weighs_lateness:
        return find_least(evaluator, chains, goal.aim, goal)
    best: Evaluation | None = None
    for each in iter_ascending(evaluator, chains, "dollars", goal):
        if best is not None and each.dollars >= best.expected_objective:
            break
        if best is None or each.expected_objective < best.expected_objective:
            best = each
    return best


def pareto_front(
    evaluator: Evaluator, chains: Sequence[CandidateChain], goal: Goal
) -> tuple[Evaluation, ...]:
    """Whatever keeps ``goal`` and nothing else is both cheaper and sooner than, by means, the cheapest first."""
    evaluations: list[Evaluation] = []
    for each in iter_ascending(evaluator, chains, "dollars", goal, sooner=True):
        if evaluations and evaluations[-1].dollars == each.dollars:
            evaluations.pop()  # as cheap, and later
        evaluations.append(each)
    return tuple(evaluations)


def iter_ascending(
    evaluator: Evaluator,
    chains: Sequence[CandidateChain],
    measure: Measure,
    goal: Goal | None,
    sooner: bool = False,
) -> Iterator[Evaluation]:
    """Candidates in ascending order of ``measure``; with ``sooner`` only those faster than all that came before."""
    rows = [chain.least for chain in chains]
    keys = np.array([row[measure][can_keep_limits(goal, row)].min(initial=np.inf) for row in rows])
    fastest = np.array([row["seconds"].min(initial=np.inf) for row in rows])
    seen: dict[int, list[int]] = {}
    soonest = np.inf
    while len(keys) and np.isfinite(keys.min()):
        number = int(keys.argmin())
        chain, values = chains[number], rows[number][measure]
        open_ = can_keep_limits(goal, rows[number]) & (rows[number]["seconds"] < soonest)
        open_[seen.get(number, [])] = False
        now = float(values[open_].min(initial=np.inf))
        if now > keys[number]:
            keys[number] = now
            continue
        place = int(np.flatnonzero(open_ & (values == now))[0])
        if chain.stage[place] < WHOLE:
            evaluator.advance(chain, place)
            continue
        seen.setdefault(number, []).append(place)
        evaluation = evaluator.evaluate(chain, place)
        if sooner:
            soonest = evaluation.seconds
            keys[fastest >= soonest] = np.inf
        yield evaluation
