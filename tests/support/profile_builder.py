"""Profiles from hand-chosen step times, for tests: the numbers in a test are the numbers in the profile."""

from dataclasses import replace

from stash.core.ladder import NAMES, Situation, rung, split_reachable
from stash.core.measured import Block, Rank, Skipped
from stash.core.records.host import Host
from stash.core.records.profile import (
    LedgerRow,
    Loader,
    Profile,
    RankLedger,
    Settings,
    Workload,
)

STEPS = 10
ASKED = ("solo", "crowd", "node", "cluster", "warm", "cold")


def own_launches(sets):
    """Rungs with launches of their own, three rounds each: every set's ``crowd`` is 10 ms slower than the last."""
    times = {
        "solo": [0.1] * 3 * sets,
        "crowd": [0.21 + 0.01 * (i // 3) + 0.0001 * (i % 3 - 1) for i in range(3 * sets)],
    }
    profile = build(times)
    blocks = tuple(
        replace(b, launch=1 + 2 * (b.round // 3) + (b.rung == "crowd")) for b in profile.blocks
    )
    settings = profile.settings.model_copy(update={"isolated": True, "launches": 2 * sets})
    return profile.model_copy(update={"blocks": blocks, "settings": settings})


def build(
    times,
    *,
    ranks=2,
    nodes=1,
    factors=None,
    skipped=None,
    device="cpu",
    batch=8,
    block_extra=None,
    workload=None,
    host=None,
    **profile,
):
    """A profile whose job takes ``times[rung][round]`` seconds a step.

    ``factors[rank]`` scales that rank's time under ``crowd``; by default all are as slow as the job.
    ``block_extra[rung]`` adds fields to the rung's blocks.
    """
    per_node = ranks // nodes
    situation = Situation(ranks, nodes, per_node, accelerator=device != "cpu", loader=True)
    measurable, reasons = split_reachable(situation)
    reasons = {name: why for name, why in reasons.items() if name not in times}
    reasons |= {name: "not asked for (--rungs)" for name in measurable if name not in times}
    reasons |= dict(skipped or {})
    blocks = []
    for name in NAMES:
        for number, seconds in enumerate(times.get(name, ())):
            members = [0] if rung(name).active == "leader" else range(ranks)
            for rank in members:
                factor = 1.0
                if name == "crowd" and factors:
                    factor = factors.get(rank, 1.0)
                extra = dict((block_extra or {}).get(name, {}))
                blocks.append(
                    Block(
                        round=number,
                        rung=name,
                        rank=rank,
                        steps=STEPS,
                        seconds=seconds * STEPS * factor,
                        **extra,
                    )
                )
    defaults = {
        "stash_version": "0.1.0",
        "created": "2026-11-20T12:00:00+00:00",
        "workload": Workload(
            **{
                "command": ("train.py",),
                "name": "train.py",
                "batch": batch,
                "loaders": (Loader(kind="map", workers=1, samples=1000),),
                **(workload or {}),
            }
        ),
        "hosts": tuple(
            Host(hostname=f"node{i}", **{"cores": 8, "memory_bytes": 32 * 10**9, **(host or {})})
            for i in range(nodes)
        ),
        "ranks": tuple(
            Rank(
                rank=i,
                node=i // per_node,
                local_rank=i % per_node,
                device=device if device == "cpu" else f"{device}:{i % per_node}",
            )
            for i in range(ranks)
        ),
        "software": {"torch": "2.13.0", "python": "3.12.3"},
        "settings": Settings(
            precision=0.02,
            budget_seconds=120.0,
            rungs=tuple(name for name in NAMES if name in times),
            isolated=False,
            why="DistributedDataParallel: every rung in one launch",
        ),
        "blocks": tuple(blocks),
        "skipped": tuple(Skipped(rung=name, why=why) for name, why in reasons.items()),
        "ended": "precision",
        "elapsed_seconds": 41.8,
    }
    return Profile(**{**defaults, **profile})


def ledger(
    rank=0,
    steps=100,
    timed_steps=16,
    epoch_steps=None,
    startup=3.0,
    a_step=None,
    now_and_then=None,
    places=(),
    **fields,
):
    """One rank's: ``a_step[row]`` seconds in each step, and ``now_and_then[row]``'s by the step it began after.

    The first epoch's start lies in start-up.
    """
    rows = [LedgerRow(row="start-up", seconds=startup)]
    for name, seconds in (a_step or {}).items():
        rows.append(
            LedgerRow(row=name, seconds=seconds * steps, timed_seconds=seconds * timed_steps)
        )
    for name, found in (now_and_then or {}).items():
        counted = {at: seconds for at, seconds in found.items() if at or name != "epoch start"}
        rows.append(
            LedgerRow(
                row=name,
                seconds=sum(counted.values()),
                timed_seconds=sum(
                    each for at, each in counted.items() if at >= steps - timed_steps
                ),
                each=tuple(found.values()),
                at_steps=tuple(found),
                times=len(found),
            )
        )
    return RankLedger(
        rank=rank,
        seconds=sum(row.seconds for row in rows),
        steps=steps,
        timed_steps=timed_steps,
        timed_seconds=sum(row.timed_seconds for row in rows),
        epoch_steps=epoch_steps,
        rows=tuple(rows),
        places=tuple(places),
        **fields,
    )
