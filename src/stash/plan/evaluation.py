"""Forecasts and bills of candidates, made only when they are asked for, and shared where nothing differs.

Prices do not change a forecast: types at several prices share theirs. A candidate goes through three stages: nothing
but what forecasts of fewer nodes prove (``bounds``), the step it would take with as many loader workers as it has
threads for, and its whole bill. Each stage is a bound of the next. Knows how to evaluate one candidate; which ones to
evaluate is for ``search``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from stash.plan.bill import Bill, BillFacts, hourly_cost, make_bill
from stash.plan.bounds import LowerBounds, Measure, raise_bounds
from stash.plan.candidates import Rentable
from stash.plan.hourly_prices import kept_share, quantile_at
from stash.plan.records import Goal, Rental, Setting, Unranked
from stash.plan.settings import Shape
from stash.predict.cluster import NodeTransport
from stash.predict.draws import Array
from stash.predict.forecast import StallDraws
from stash.predict.forecasting import lost_stalls, stall_draws
from stash.predict.passes import Base
from stash.predict.pipeline import cached_share

WORTH = 0.01
"""Of a step: loader workers that save less are not worth a change of the job's settings."""
FLOOR, STEP, WHOLE = 0, 1, 2
"""Stages of a candidate: only from ``STEP`` on it is forecast."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One candidate with its forecast and its bill."""

    rentable: Rentable
    shape: Shape
    number: int
    """Of its node count among the shape's."""
    rental: Rental
    setting: Setting
    drawn: StallDraws
    billed: Bill
    goal: Goal

    @property
    def steps(self) -> float:
        return float(self.shape.steps[self.number])

    @property
    def samples(self) -> float:
        """Samples of a step."""
        return float(self.shape.samples[self.number])

    @property
    def seconds(self) -> float:
        return float(self.billed.seconds.mean())

    @property
    def dollars(self) -> float:
        return float(self.billed.dollars.mean())

    @property
    def sure_seconds(self) -> float:
        return float(quantile_at(self.billed.seconds, self.goal.surely_in_time))

    @property
    def sure_dollars(self) -> float:
        return float(quantile_at(self.billed.dollars, self.goal.surely_in_budget))

    @cached_property
    def objective(self) -> Array:
        """What is to be least, ``[draws]``: seconds, or dollars with what being late costs."""
        goal, bill = self.goal, self.billed
        if goal.aim == "seconds":
            return bill.seconds
        if not goal.weighs_lateness or goal.deadline_seconds is None or goal.late_dollars is None:
            return bill.dollars
        return np.asarray(
            bill.dollars + np.where(bill.seconds > goal.deadline_seconds, goal.late_dollars, 0.0)
        )

    @property
    def expected_objective(self) -> float:
        """Mean of the objective."""
        return float(self.objective.mean())

    def chance_in_time(self, goal: Goal) -> float | None:
        return kept_share(self.billed.seconds, goal.deadline_seconds)

    def chance_in_budget(self, goal: Goal) -> float | None:
        return kept_share(self.billed.dollars, goal.budget_dollars)


@dataclass(eq=False)
class CandidateChain:
    """One type in one shape, at one price: all its node counts, with what is known of each so far."""

    rentable: Rentable
    shape: Shape
    price: Array
    """Dollars an hour of one node, as ``hourly_cost`` gives them."""
    least: LowerBounds
    stage: Array
    """``[node counts]``."""
    own: bool
    """Whether it was profiled on just these machines."""

    @property
    def onward_from(self) -> int:
        """Nodes from which on more of them never shorten a step: beyond a single pair, and what is as it was measured."""
        return max(3, self.shape.base.target.nodes + 1) if self.own else 3


class Evaluator:
    """All candidates of one question."""

    def __init__(
        self,
        goal: Goal,
        facts: BillFacts,
        transport: NodeTransport | None,
        forecasts: dict[tuple[object, ...], StallDraws] | None = None,
    ) -> None:
        self.goal, self._facts = goal, facts
        self._transport = transport
        self._forecasts = {} if forecasts is None else forecasts
        self._evaluated: dict[tuple[int, int], Evaluation] = {}
        self.unknown: dict[str, Unranked] = {}
        """What could not be forecast, by type."""

    def change_goal(self, goal: Goal) -> Evaluator:
        """The same forecasts for another goal."""
        return Evaluator(goal, self._facts, self._transport, self._forecasts)

    def chain(self, rentable: Rentable, shape: Shape, own: bool) -> CandidateChain:
        """Start a chain; raises UserError where nothing is known of the device's speed."""
        assert shape.compute > 0, "a known speed"
        price, count = hourly_cost(rentable.price, rentable.key, shape.base.draws), len(shape.nodes)
        least = {measure: np.zeros(count) for measure in get_args(Measure)}
        return CandidateChain(rentable, shape, price, least, np.zeros(count), own)

    def advance(self, chain: CandidateChain, number: int) -> None:
        """Take one node count a stage further, and raise what follows from it."""
        if chain.stage[number] == STEP:
            self._evaluate_whole(chain, number)
            return
        most = _most_workers(chain.rentable, chain.shape.base)
        drawn = self._draw_stalls(
            chain, int(chain.shape.nodes[number]), most, self._cached_share(chain)
        )
        missing = lost_stalls(chain.shape.base, drawn)
        if missing:
            # This node count is left out, and every other that lacks the same fact.
            why, shape = missing[0].why, chain.shape
            lacking = (shape.nodes if missing[0].name == "network" else shape.ranks) > 1
            if chain.own:
                # measured, whatever else is unknown
                lacking &= shape.nodes != shape.base.target.nodes
            lacking[number] = True
            for bound in chain.least.values():
                bound[lacking] = np.inf
            if np.isfinite(chain.least["seconds"]).any():
                why = f"on other node counts than those ranked: {why}"
            self.unknown[chain.rentable.key] = chain.rentable.make_unranked(why)
            return
        self._raise(chain, number, drawn.step)
        chain.stage[number] = STEP

    def evaluate(self, chain: CandidateChain, number: int) -> Evaluation:
        """A candidate at its last stage."""
        while chain.stage[number] < WHOLE:
            self.advance(chain, number)
        return self._evaluated[id(chain), number]

    def _raise(self, chain: CandidateChain, number: int, step: Array) -> None:
        """Bounds of this node count, and of those that cannot take less, to those of such a step, ``[draws]``."""
        onward = int(chain.shape.nodes[number]) >= chain.onward_from
        compute = chain.shape.compute if onward else None
        raise_bounds(chain.least, number, step, chain.shape, chain.price, self.goal, compute)

    def _evaluate_whole(self, chain: CandidateChain, number: int) -> None:
        base, shape, nodes = chain.shape.base, chain.shape, int(chain.shape.nodes[number])
        most, share = _most_workers(chain.rentable, base), self._cached_share(chain)
        drawn, workers = self._draw_stalls(chain, nodes, most, share), most
        if most is not None:
            usual = self._draw_stalls(chain, nodes, None, share)
            longer = usual.step - drawn.step
            if np.all(longer >= 0) and longer.mean() <= WORTH * drawn.step.mean():
                drawn, workers = usual, None
        first, loaders = None, base.profile.workload.loaders
        if share and loaders and loaders[0].samples:
            # of all steps
            epochs = np.minimum(1.0, loaders[0].samples / shape.samples / shape.steps)
            longer = self._draw_stalls(chain, nodes, workers, None).step - drawn.step
            first = shape.steps[number] * epochs[number] * longer
            if workers == most:
                self._raise(chain, number, drawn.step + epochs.min() * longer)
        rental = chain.rentable.rental(nodes)
        billed = make_bill(
            drawn, float(shape.steps[number]), rental, self._facts, first, base.draws
        )
        wanted = shape.alteration
        setting = Setting(batch=wanted.batch, accumulate=wanted.accumulate, workers=workers)
        evaluation = Evaluation(
            chain.rentable, shape, number, rental, setting, drawn, billed, self.goal
        )
        self._evaluated[id(chain), number] = evaluation
        for measure, bound in chain.least.items():
            bound[number] = getattr(evaluation, measure)
        chain.stage[number] = WHOLE

    def _draw_stalls(
        self, chain: CandidateChain, nodes: int, workers: int | None, share: float | None
    ) -> StallDraws:
        shape = chain.shape  # which base a type is forecast from follows from the type
        key = (chain.rentable.key, shape.batch, shape.accumulate, nodes, workers, share)
        if key not in self._forecasts:
            update: dict[str, object] = {"workers": workers, "cache": share}
            if not (
                chain.own and nodes == chain.shape.base.target.nodes
            ):  # what was measured stays so
                kind = "instance" if chain.rentable.machine is None else "cluster"
                update |= {"nodes": nodes, kind: chain.rentable.key, "transport": self._transport}
            base = chain.shape.base
            self._forecasts[key] = stall_draws(base, chain.shape.alteration.replace_facts(**update))
        return self._forecasts[key]

    def _cached_share(self, chain: CandidateChain) -> float | None:
        """Of the data set, that a node's memory holds after the first epoch; ``None``: unknown, and so none."""
        loading, memory = chain.shape.base.loading, chain.rentable.memory_bytes
        size = None if loading is None else loading.dataset_bytes
        return None if not size or not memory else cached_share(memory, size)


def _most_workers(rentable: Rentable, base: Base) -> int | None:
    """Loader workers for which a rank has hardware threads, where those are more than now; ``None``: as now."""
    if base.loading is None or rentable.threads is None:
        return None
    most = int(rentable.threads / rentable.devices)
    return most if most > base.loading.pipeline.workers else None
