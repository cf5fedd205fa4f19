"""The ladder with launches of its own for every communication rung, for jobs that cannot be switched.

``solo`` is the job started with one process; ``crowd`` as many such jobs side by side; the full job gives
the top of the ladder, with its data rungs in the same launch. The launches are interleaved set by set, so
drift of the machine is shared by all rungs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from stash.measure.launch.diagnose import Diagnosis
from stash.measure.launch.wishes import Member
from stash.measure.run.orders import Plan

if TYPE_CHECKING:
    from stash.measure.launch.climb import Expedition

_BLOCKS = 3
_MOST_SETS = 10


def climb(expedition: Expedition) -> Diagnosis | None:
    """Measure set after set until precise or out of budget; the value says what failed, if something did."""
    obstacle = _obstacle(expedition)
    alone = () if obstacle else tuple(r for r in ("solo", "crowd") if r in expedition.wishes.rungs)
    for name in {"resident", "solo", "crowd", "node"} - set(alone):
        if name in expedition.wishes.rungs:
            expedition.trace.skipped.setdefault(name, obstacle or _not_isolated(name, expedition))
    for number in range(_MOST_SETS):
        for name in list(alone):
            failure = _launch_alone(expedition, name, number)
            if failure is None:
                continue
            if number > 0:
                return failure
            expedition.trace.skipped[name] = f"the job does not run with one process: {failure.sentence}"
            alone = tuple(other for other in alone if other != name)
        failure = _launch_whole(expedition, number)
        if failure is not None:
            return failure
        if expedition.done():
            return None
    return None


def _obstacle(expedition: Expedition) -> str | None:
    """Why the job cannot be started with other numbers of processes."""
    cluster = expedition.cluster
    if expedition.job.kind == "command":
        return f"the launcher {expedition.job.target} decides how many processes there are"
    if cluster.inherited or cluster.nnodes > 1:
        return "separate launches need all ranks on this machine"
    if cluster.nproc == 1:
        return "one device"
    return None


def _not_isolated(name: str, expedition: Expedition) -> str:
    if name == "resident":
        on_cpu = "the job runs on CPUs: there is no host-to-device copy"
        return on_cpu if expedition.gpus == 0 else "not measured with separate launches"
    return "one device per node" if name == "node" and expedition.cluster.nproc == 1 else "not asked for (--rungs)"


def _plan(expedition: Expedition, rungs: tuple[str, ...], number: int) -> Plan:
    plan = expedition.plan(expedition.folder)
    return replace(plan, rungs=rungs, isolated=True, first_round=number * _BLOCKS, rounds=_BLOCKS)


def _launch_whole(expedition: Expedition, number: int) -> Diagnosis | None:
    """The full job: the highest replay rung it has, and the data rungs."""
    several = expedition.cluster.nnodes > 1
    top = "cluster" if several else "node" if expedition.cluster.nproc > 1 else "solo"
    expedition.trace.skipped.pop(top, None)
    if not several:
        expedition.trace.skipped.setdefault("cluster", "one node")
    rungs = tuple(name for name in (top, "warm", "cold") if name in expedition.wishes.rungs)
    return expedition.launch([Member(plan=_plan(expedition, rungs, number))])


def _launch_alone(expedition: Expedition, name: str, number: int) -> Diagnosis | None:
    """The job with one process, once or on every device at the same time."""
    count = expedition.cluster.nproc if name == "crowd" else 1
    single = replace(expedition.cluster, nproc=1)
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(expedition.gpus)))).split(",")
    members = []
    for index in range(count):
        plan = replace(_plan(expedition, (name,), number), gang=(index, expedition.cluster.nproc), crowd=count)
        variables = {"CUDA_VISIBLE_DEVICES": devices[index]} if expedition.gpus else {}
        members.append(Member(plan, single, index, variables))
    return expedition.launch(members)
