"""Policies by name: how shares of time are decided, and how the simulator may act on them.

A policy is a pure function ``allocate(demand) -> ShareAllocation`` and some facts about it. Which jobs, cluster and
matrix a demand is made of, ``matrix.demand_of`` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

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
    seeded: bool = False
    backfills: bool = True
    """Whether jobs may start before one that does not fit."""

    def allocate(self, demand: JobDemand, seed: int = 0) -> ShareAllocation:
        """Shares of time for these jobs; raises UserError for jobs that the policy cannot take."""
        if self.rule is None:
            raise ValueError(f"{self.name} chooses places, not shares")
        return queues.fifo(demand, seed) if self.seeded else self.rule(demand)

    def plain(self) -> JobPolicy:
        """As Gavel's code has it: max-min without water-filling."""
        rules = {"max-min": shares.max_min, "max-min-blind": shares.max_min_blind}
        return replace(self, rule=partial(rules[self.name], fill=False)) if self.name in rules else self


def _makespan_blind(demand: JobDemand) -> ShareAllocation:
    return shares.blind(demand, shares.makespan(shares.as_fastest(demand)))


def _fairness_blind(demand: JobDemand) -> ShareAllocation:
    return shares.blind(demand, shares.finish_time_fairness(shares.as_fastest(demand)))


_LEVEL, _T, _RHO = "times its equal share for the worst-off job", "seconds until all are finished", "worst ρ"
_SOONER, _FAIRER = "seconds less until all are finished", "less of the worst ρ"
_AS_FASTEST = "the same, taking all types for each job's fastest"
POLICIES: Mapping[str, JobPolicy] = {
    each.name: each
    for each in (
        JobPolicy("max-min", shares.max_min, "equal progress, measured in each job's equal share", objective=_LEVEL),
        JobPolicy("max-min-blind", shares.max_min_blind, "the same, taking all types for equal", objective=_LEVEL,
                  aware=False),
        JobPolicy("makespan", shares.makespan, "all finished as early as possible", by_work=True, objective=_T,
                  gain=_SOONER),
        JobPolicy("makespan-blind", _makespan_blind, _AS_FASTEST, by_work=True, objective=_T, aware=False),
        JobPolicy("ftf", shares.finish_time_fairness, "the worst finish time against a share of one's own least",
                  by_work=True, objective=_RHO, gain=_FAIRER),
        JobPolicy("ftf-blind", _fairness_blind, _AS_FASTEST, by_work=True, objective=_RHO, aware=False),
        JobPolicy("cost", shares.cheapest, "most work per dollar, deadlines kept", by_work=True,
                  objective="seconds of work, each on its fastest type, per dollar an hour",
                  gain="seconds of work a second"),
        JobPolicy("cost-gavel", shares.cheapest_sum, "most steps per dollar added up, as Gavel's code has it",
                  by_work=True, objective="steps a second per dollar an hour"),
        JobPolicy("fifo", queues.fifo, "first come first served, blind, no preemption, no backfill", by_work=True,
                  preempts=False, fills=False, aware=False, seeded=True, backfills=False),
        JobPolicy("fifo-aware", queues.fifo_aware, "first come first served, each on the fastest free type",
                  by_work=True, fills=False, backfills=False),
        JobPolicy("srtf", queues.shortest_remaining, "shortest remaining time first", fills=False, by_work=True),
        JobPolicy("las-queues", queues.las_queues, "queues by service received, as Tiresias", fills=False,
                  by_work=True, aware=False),
        JobPolicy("allox", queues.allox, "least mean completion time by matching, one-GPU jobs", by_work=True,
                  preempts=False, fills=False, backfills=False),
        JobPolicy("hadar", None, "prices of nodes that rise as they fill", fills=False, by_work=True),
    )
}  # fmt: skip


def max_min() -> JobPolicy:
    """``POLICIES["max-min"]``, as Python code likes to say it."""
    return POLICIES["max-min"]
