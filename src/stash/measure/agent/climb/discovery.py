"""Discovery: what the job is, which rungs it has, and whether scopes can be switched inside it.

Runs between warm-up and the first block, on every rank; the leader decides and writes down what was found.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from stash.base.ladder import Situation, reachable, rung
from stash.measure.agent import private
from stash.measure.agent.climb import survey
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.data.batches import why_immovable
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope
from stash.measure.run.messages import HostsSeen, JobFacts, LadderChosen, RankSeen, RungSkipped, SoftwareSeen

_UNSEEN_INPUT = 0.05
"""Share of a step before its first forward pass that is worth a sentence."""


@dataclass(frozen=True)
class Introduction:
    """What every rank tells the leader of itself; the first of each node also of its host."""

    rank: RankSeen
    host: dict[str, Any] | None


def choose_rungs(rank: OwnRank) -> tuple[str, ...]:
    """Tell the leader what each rank is; agree on the rungs."""
    place, orders = rank.place, rank.orders
    cores = len(os.sched_getaffinity(0)) if orders.pin else None
    seen = RankSeen(place.rank, place.node, place.local_rank, str(rank.device), cores)

    def choose(reports: list[Introduction]) -> tuple[str, ...]:
        situation = Situation(
            world_size=place.world_size,
            nodes=place.nodes,
            ranks_per_node=max(sum(r.rank.node == n for r in reports) for n in range(place.nodes)),
            accelerator=rank.device.type != "cpu",
            loader=bool(rank.feeds),
            immovable=_immovable(rank),
        )
        rungs, skipped = reachable(situation, orders.rungs)
        if orders.isolated:
            skipped = {} if rank.feeds else {name: why for name, why in skipped.items() if rung(name).reads_data}
            rungs = tuple(name for name in orders.rungs if name not in skipped)
        elif "node" in rungs and place.nodes > 1:
            why = replicas.obstacle_to_node_scope() or _beyond_node()
            if why is not None:
                rungs, skipped = tuple(r for r in rungs if r != "node"), {**skipped, "node": why}
        _write_survey(rank, reports, rungs, skipped)
        return rungs

    rungs = rank.agree(Introduction(seen, orders.host if place.local_rank == 0 else None), choose)
    if "node" in rungs and place.nodes > 1 and any(d.find_unused_parameters for d in replicas.modules()):
        rank.note("find_unused_parameters exchanges a small map over the network under the node rung too")
    if "node" in rungs and place.nodes > 1 and not orders.isolated:
        replicas.prepare_node_scope()
    return rungs


def _immovable(rank: OwnRank) -> str | None:
    """Why the leader's batches cannot be replayed from its device; tried with one of each loader."""
    if rank.device.type == "cpu":
        return None
    reasons = (why_immovable(feed.ring.kept[0], rank.device) for feed in rank.feeds)
    return next((why for why in reasons if why is not None), None)


def _beyond_node() -> str | None:
    names = scope.beyond_node()
    return f"the script calls {', '.join(names)}, which cannot be confined to a node" if names else None


def _write_survey(
    rank: OwnRank, reports: list[Introduction], rungs: tuple[str, ...], skipped: dict[str, str]
) -> None:
    hosts = {r.rank.node: r.host for r in reports if r.host is not None}
    for report in reports:
        rank.tell(report.rank)
    rank.tell(HostsSeen([hosts[n] for n in sorted(hosts)]))
    rank.tell(JobFacts(**survey.workload_facts(rank.optimizer)))
    rank.tell(standing_facts(rank))
    rank.tell(SoftwareSeen(survey.software()))
    rank.tell(LadderChosen(rungs, skipped))


def standing_facts(rank: OwnRank) -> JobFacts:
    """What is better known the longer the job runs."""
    return JobFacts(**survey.loader_facts(rank.feeds), collectives_per_step=rank.collectives_per_step())


def try_switching(rank: OwnRank) -> Generator[None, None, str | None]:
    """Three steps of every rank with no exchange: the value says why switching is unsafe here, or is None.

    All ranks take part, so a collective nobody wrapped still completes, and is noticed by the process
    groups' sequence numbers before any rank is left to step alone.
    """
    rank.drifted = True  # from here on batches are replayed and gradients not always exchanged
    if rank.orders.isolated:
        return None
    if replicas.sharded:
        names = " and ".join(replicas.sharded)
        return f"{names} shards parameters: their all-gather cannot be switched off"
    rank.set_scope("self")
    for feed in rank.feeds:
        feed.begin("replay", 0)
    yield  # the first step may still finish what was under way
    before = private.sequence_numbers()
    flops = survey.FlopCounter()
    flops.begin()
    yield
    counted = flops.end()
    gradients = survey.GradientClock(survey.trained_parameters(rank.optimizer))
    gradients.begin()
    inputs = survey.InputClock()
    inputs.begin()
    yield
    ready = gradients.end()
    _tell_of_unseen_input(rank, inputs.end())
    moved = [n for n, count in private.sequence_numbers().items() if count != before.get(n, count)]
    for feed in rank.feeds:
        feed.ring.judge()
    rank.tell(JobFacts(flops_per_step=counted, gradients=ready))

    def judge(reports: list[bool]) -> str | None:
        return "collectives that Stash cannot intercept are issued in every step" if any(reports) else None

    verdict = rank.agree(bool(moved), judge)
    rank.set_scope("world")
    return verdict


def _tell_of_unseen_input(rank: OwnRank, times: tuple[float, float] | None) -> None:
    """Batches come from memory in this step, so what still runs before its forward pass makes them elsewhere."""
    if times is None:
        return
    seconds, step = times
    if seconds < _UNSEEN_INPUT * step:
        return
    seen = "beside the loader that Stash sees" if rank.feeds else "which Stash sees no loader for"
    rank.note(
        f"{seconds * 1e3:.3g} ms pass from the end of a step to the first forward pass of the next, on batches "
        f"from memory, {seen}: if batches are made or changed there, that time is part of compute"
    )


def without_switching(rank: OwnRank, rungs: tuple[str, ...], why: str) -> tuple[str, ...]:
    """The rungs left when neither the scope can be switched nor the job started in other sizes."""
    rank.switches = False
    top = "cluster" if rank.place.nodes > 1 else "node"
    left = tuple(name for name in rungs if name == top or rung(name).reads_data)
    for name in rungs:
        if name not in left:
            rank.tell(RungSkipped(name, f"{why}, and this job cannot be started in other sizes"))
    return left
