"""Policies by name: how shares of time are decided, and how the simulator may act on them.

A policy is a pure function ``allocate(demand) -> ShareAllocation`` and some facts about it. Which jobs, cluster and
matrix a demand is made of, ``matrix.demand_of`` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from stash.core.errors import UserError
from stash.schedule import queues, shares
from stash.schedule.records import JobDemand, ShareAllocation


@dataclass(frozen=True)
class JobPolicy:
    """One policy."""

    name: str
    rule: Callable[[JobDemand], ShareAllocation] | None
    """``None`` of Hadar, which chooses places itself."""
    text: str
    """What it does, in a few words."""
    preempts: bool = True
    fills: bool = True
    """Whether GPUs that its shares leave free go to jobs that wait; a queue does its own filling, or none."""
    by_work: bool = False
    """Whether it looks at what jobs have left, so that its shares change with every step."""
    objective: str = ""
    """What its objective is, with its unit."""
    gain: str = ""
    """What one more GPU brings, in words and unit; empty where it is the objective's."""
    aware: bool = True
    """Whether it knows that types differ."""
    blind: bool = False
    """Whether it is asked as if they did not."""
    seeded: bool = False
    backfills: bool = True
    """Whether jobs may start before one that does not fit."""

    def allocate(self, demand: JobDemand, seed: int = 0) -> ShareAllocation:
        """Shares of time for these jobs; raises UserError for jobs that the policy cannot take."""
        if self.rule is None:
            raise ValueError(f"{self.name} chooses places, not shares")
        if self.blind:
            return shares.spread_over_types(demand, self.rule(shares.as_fastest(demand)))
        return queues.fifo(demand, seed) if self.seeded else self.rule(demand)

    def plain(self) -> JobPolicy:
        """As Gavel's code has it: max-min without water-filling."""
        return replace(self, rule=partial(shares.max_min, fill=False)) if self.rule is shares.max_min else self

    def blinded(self) -> JobPolicy:
        """The same policy not knowing types; raises UserError where it decides by them."""
        if not self.aware:
            return self
        if self.rule not in _BLINDABLE:
            raise UserError(f"--blind is for max-min, makespan and ftf; {self.name} decides by types: leave it out")
        text = f"{self.text}; taking every type for each job's fastest"
        return replace(self, name=f"{self.name} blind", text=text, aware=False, blind=True)


_BLINDABLE = (shares.max_min, shares.makespan, shares.finish_time_fairness)
_LEVEL, _T, _RHO = "times its equal share for the worst-off job", "seconds until all are finished", "worst ρ"
_SOONER, _FAIRER = "seconds less until all are finished", "less of the worst ρ"
POLICIES: Mapping[str, JobPolicy] = {
    each.name: each
    for each in (
        JobPolicy("max-min", shares.max_min, "equal progress, measured in each job's equal share", objective=_LEVEL),
        JobPolicy("makespan", shares.makespan, "all finished as early as possible", by_work=True, objective=_T,
                  gain=_SOONER),
        JobPolicy("ftf", shares.finish_time_fairness, "the worst finish time against a share of one's own least",
                  by_work=True, objective=_RHO, gain=_FAIRER),
        JobPolicy("cost", shares.cheapest, "most work per dollar, deadlines kept", by_work=True,
                  objective="seconds of work, each on its fastest type, per dollar an hour",
                  gain="seconds of work a second"),
        JobPolicy("fifo", queues.fifo, "first come first served, blind, no preemption, no backfill", by_work=True,
                  preempts=False, fills=False, aware=False, seeded=True, backfills=False),
        JobPolicy("fifo-aware", queues.fifo_aware, "first come first served, each on the fastest free type",
                  by_work=True, fills=False, backfills=False),
        JobPolicy("srtf", queues.shortest_remaining, "shortest remaining time first", fills=False, by_work=True),
        JobPolicy("allox", queues.allox, "least mean completion time by matching, one-GPU jobs", by_work=True,
                  preempts=False, fills=False, backfills=False),
        JobPolicy("hadar", None, "prices of nodes that rise as they fill", fills=False, by_work=True),
    )
}  # fmt: skip


def max_min() -> JobPolicy:
    """``POLICIES["max-min"]``, as Python code likes to say it."""
    return POLICIES["max-min"]
