"""The product's decisions on the emulated fleet, and what they were worth: from kept profiles and truths alone.

Each goal is asked of ``stash.plan`` as a user would ask it, with the fleet as own machines whose links the profile
tells. Nothing that was run is looked at before all choices are made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from bench.plan.emulated import (
    CANDIDATES,
    MODELS,
    NODES,
    TYPES,
    Candidate,
    FleetModel,
    machines,
    profiled_candidate,
)
from bench.plan.fleet import Row, base_for, profile_path, rows
from bench.plan.judged import (
    SURELY,
    Truth,
    Verdict,
    judge,
    reliability_table,
    verdict_table,
)
from stash.catalog import own
from stash.catalog.offers import Catalog
from stash.core.artefact import load
from stash.core.errors import UserError
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, RentalPlan, TrainingWork
from stash.predict.passes import Base

SAMPLES = 1_000_000
DEADLINES = tuple(2.0 ** (-step / 3) for step in range(-4, 6))
"""Times what the training would take where it was profiled."""
BUDGETS = tuple(2.0 ** (-step / 3) for step in range(-1, 6))
"""Times what it would cost there."""
CONSTRAINTS = Constraints(
    clouds=(own.ON_PREMISE,),
    most_nodes=max(NODES),
    quotas={each.name: each.most_nodes for each in TYPES},
)


def fleet_catalog() -> Catalog:
    """A market of nothing but the fleet, as machines of one's own."""
    listed = [
        {
            "name": each.name,
            "price": f"${each.dollars_per_hour}/h",
            "network": each.network,
            "source": "the emulated fleet",
        }
        for each in TYPES
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "the emulated fleet"
        file.write_text(yaml.safe_dump({"instances": listed}))
        instances, prices = own.load_own_file(file).place_entries({})
    return Catalog((), tuple(instances.values()), prices, ("the emulated fleet",))


def goals(base: Base, confidence: float | None) -> list[Goal]:
    """Deadlines, budgets, and both: by what training takes where it was profiled, which is what a user knows."""
    here = profiled_candidate(MODELS[0])
    seconds = math.ceil(SAMPLES / here.samples_per_step) * base.breakdown.step_seconds
    dollars = seconds / 3600 * here.dollars_per_hour
    limits: list[tuple[float | None, float | None]] = [
        *((late, None) for late in DEADLINES),
        *((None, dear) for dear in BUDGETS),
        *product(DEADLINES[1::3], BUDGETS[::3]),
    ]
    work = TrainingWork(samples=SAMPLES, text=f"{SAMPLES:,} samples")
    return [
        Goal(
            work=work,
            confidence=confidence,
            deadline_seconds=None if late is None else late * seconds,
            budget_dollars=None if dear is None else dear * dollars,
        )
        for late, dear in limits
    ]


def truth_of(candidate: Candidate, row: Row) -> Truth:
    """What the training takes and costs by the step that was run."""
    steps = math.ceil(SAMPLES / candidate.samples_per_step)
    return Truth.make(steps * float(row["measured_step"]), candidate.dollars_per_hour)


@dataclass(frozen=True)
class Judged:
    """One model of the fleet: its goals, the plans for them, and the truth of every candidate."""

    model: FleetModel
    base: Base
    truths: dict[str, Truth]
    confidence: float | None
    """With which limits are to be kept."""

    @cached_property
    def goals(self) -> list[Goal]:
        return goals(self.base, self.confidence)

    @cached_property
    def plans(self) -> list[RentalPlan]:
        known, catalog, bill = machines(self.base.target), fleet_catalog(), BillFacts()
        listed, name = [each.name for each in TYPES], profile_path(self.model).name
        day = date.fromisoformat(self.base.profile.created[:10])
        return [
            recommend(
                [self.base],
                goal,
                CONSTRAINTS,
                catalog,
                bill,
                [name],
                day,
                machines=known,
                listed=listed,
            )
            for goal in self.goals
        ]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        chosen = [
            None if plan.chosen_choice is None else plan.chosen_choice.name for plan in self.plans
        ]
        return [
            judge(goal, self.truths, name) for goal, name in zip(self.goals, chosen, strict=True)
        ]

    def probabilities(self) -> list[tuple[float, bool]]:
        """(chance, came true) of every deadline and budget of every choice that a plan shows."""
        found = []
        for goal, plan in zip(self.goals, self.plans, strict=True):
            for choice in plan.choices:
                truth = self.truths[choice.name]
                if choice.on_time is not None and goal.deadline_seconds is not None:
                    found.append((choice.on_time, truth.seconds <= goal.deadline_seconds))
                if choice.within_budget is not None and goal.budget_dollars is not None:
                    found.append((choice.within_budget, truth.dollars <= goal.budget_dollars))
        return found


def judge_models(confidence: float | None) -> list[Judged]:
    """Every model; raises UserError while some of its candidates were not run."""
    kept = rows()
    left = [each.name for each in CANDIDATES if each.name not in kept]
    left += [profiled_candidate(model).name for model in MODELS if not profile_path(model).exists()]
    if left:
        raise UserError(
            f"{len(left)} runs are missing, like {left[0]}; `bench.plan.fleet` of tag archive-2026-11 does them"
        )
    truths = {each: truth_of(each, kept[each.name]) for each in CANDIDATES}
    return [
        Judged(
            model,
            base_for(load(profile_path(model))),
            {
                f"{each.nodes} × {each.type.name}": truth
                for each, truth in truths.items()
                if each.model == model
            },
            confidence,
        )
        for model in MODELS
    ]


def page() -> str:
    """Every table of the fleet."""
    sure, surer = judge_models(None), judge_models(SURELY)
    ours = [verdict for each in sure for verdict in each.verdicts]
    nothing = [each for each in ours if each.best is None]
    by_chooser = {
        "Stash": ours,
        f"Stash, {SURELY:.0%} sure": [verdict for each in surer for verdict in each.verdicts],
    }
    parts = (
        f"{len(ours)} goals, {len(ours) - len(nothing)} of which something keeps; {len(CANDIDATES)} candidates.",
        verdict_table(by_chooser),
        f"Of the {len(nothing)} goals that nothing keeps, {sum(each.right for each in nothing)} were recognised.",
        "Forecast chances of deadlines and budgets, and what came true:",
        reliability_table([pair for each in sure for pair in each.probabilities()]),
    )
    return "\n\n".join(parts)
