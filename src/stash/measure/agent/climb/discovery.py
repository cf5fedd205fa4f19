"""Discovery: what the job is, which rungs it has, and whether scopes can be switched inside it.

Runs between warm-up and the first block, on every rank; the leader decides and writes down what was found.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from stash.base.ladder import Situation, reachable
from stash.measure.agent.climb import blocks, survey
from stash.measure.agent.wraps import collectives, replicas

if TYPE_CHECKING:
    from stash.measure.agent.climb.climber import Climber


def choose_rungs(climber: Climber) -> tuple[str, ...]:
    """Tell the leader what each rank is; agree on the rungs."""
    place = climber.control.place
    report = {
        "rank": place.rank,
        "node": place.node,
        "local_rank": place.local_rank,
        "device": str(climber.device),
        "cores": len(os.sched_getaffinity(0)) if climber.plan.pin else None,
        "host": climber.plan.host if place.local_rank == 0 else None,
    }

    def choose(reports: list[Any]) -> tuple[tuple[str, ...], dict[str, str]]:
        situation = Situation(
            world_size=place.world_size,
            nodes=place.nodes,
            ranks_per_node=max(sum(r["node"] == n for r in reports) for n in range(place.nodes)),
            accelerator=climber.device.type != "cpu",
            loader=bool(climber.feeds),
        )
        rungs, skipped = reachable(situation, climber.plan.rungs)
        if climber.plan.isolated:
            skipped = {} if climber.feeds else {name: skipped[name] for name in ("warm", "cold")}
            rungs = tuple(name for name in climber.plan.rungs if name not in skipped)
        elif "node" in rungs and place.nodes > 1:
            why = replicas.obstacle_to_node_scope() or _beyond_node()
            if why is not None:
                rungs, skipped = tuple(r for r in rungs if r != "node"), {**skipped, "node": why}
        _write_survey(climber, reports, rungs, skipped)
        return rungs, skipped

    rungs, _ = climber.agree(report, choose)
    if "node" in rungs and place.nodes > 1 and any(d.find_unused_parameters for d in replicas.modules()):
        climber.note("find_unused_parameters exchanges a small map over the network under the node rung too")
    if "node" in rungs and place.nodes > 1 and not climber.plan.isolated:
        replicas.prepare_node_scope()
    return rungs


def _beyond_node() -> str | None:
    names = collectives.beyond_node_scope()
    return f"the script calls {', '.join(names)}, which cannot be confined to a node" if names else None


def _write_survey(climber: Climber, reports: list[Any], rungs: tuple[str, ...], skipped: dict[str, str]) -> None:
    hosts = {r["node"]: r["host"] for r in reports if r["host"] is not None}
    climber.trace.write("ranks", ranks=[{k: v for k, v in r.items() if k != "host"} for r in reports])
    climber.trace.write("hosts", hosts=[hosts[n] for n in sorted(hosts)])
    facts = survey.workload_facts(climber.reference)
    climber.trace.write("workload", **facts, **standing_facts(climber))
    climber.trace.write("software", versions=survey.software())
    climber.trace.write("ladder", rungs=list(rungs), skipped=skipped)


def standing_facts(climber: Climber) -> dict[str, Any]:
    """Fields of ``records.Workload`` that are better known the longer the job runs."""
    facts = blocks.loader_facts(climber.feeds)
    if climber.steps_counted:
        per_step = {name: round(n / climber.steps_counted, 3) for name, n in collectives.issued.items()}
        facts["collectives_per_step"] = per_step
    return facts


def try_switching(climber: Climber) -> Generator[None, None, str | None]:
    """Two steps of every rank with no exchange: the value says why switching is unsafe here, or is None.

    All ranks take part, so a collective nobody wrapped still completes, and is noticed by the process
    groups' sequence numbers before any rank is left to step alone.
    """
    climber.drifted = True  # from here on batches are replayed and gradients not always exchanged
    if climber.plan.isolated:
        return None
    if replicas.sharded:
        names = " and ".join(replicas.sharded)
        return f"{names} shards parameters: their all-gather cannot be switched off"
    climber.set_scope("self")
    for feed in climber.feeds:
        feed.begin("replay", 0, again=False)
    yield  # the first step may still finish what was under way
    before = collectives.sequence_numbers()
    flops = survey.FlopCounter()
    flops.begin()
    yield
    counted = flops.end()
    gradients = survey.GradientClock(survey.trained_parameters(climber.reference))
    gradients.begin()
    yield
    ready = gradients.end()
    moved = [n for n, count in collectives.sequence_numbers().items() if count != before.get(n, count)]
    for feed in climber.feeds:
        feed.ring.judge()
    if climber.control.leads:
        climber.trace.write("workload", flops_per_step=counted, gradients=ready)

    def judge(reports: list[Any]) -> str | None:
        return "collectives that Stash cannot intercept are issued in every step" if any(reports) else None

    verdict = climber.agree(bool(moved), judge)
    climber.set_scope("world")
    return verdict


def without_switching(climber: Climber, rungs: tuple[str, ...], why: str) -> tuple[str, ...]:
    """The rungs left when neither the scope can be switched nor the job started in other sizes."""
    climber.switches = False
    place = climber.control.place
    top = "cluster" if place.nodes > 1 else "node"
    for name in rungs:
        if climber.control.leads and name not in (top, "warm", "cold"):
            climber.trace.write("skipped", rung=name, why=f"{why}, and this job cannot be started in other sizes")
    return tuple(name for name in rungs if name in (top, "warm", "cold"))
