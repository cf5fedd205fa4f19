"""What processes outside the job cost a window's steps: what the kernel counts of each rank's processes, shared out.

How delays are shared between the job and strangers is ``analysis/shared_cores``'s to say, as in a profile; here are
only a watcher's readings of ``/proc``, every ten seconds, and their place in the stages of a cycle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stash.analysis.shared_cores import strangers_shares
from stash.core.measured import Block
from stash.measure.linux import counters
from stash.measure.linux.processes import list_descendants
from stash.measure.linux.run_queue import Helpers, times_of
from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import STAGES, SecondsArray
from stash.monitor.collector import JoinedCycles

_INPUT, _EXCHANGE = STAGES.index(StepStage.INPUT), STAGES.index(StepStage.EXCHANGE)
_RUNNING = [
    STAGES.index(each)
    for each in (
        StepStage.OPTIMIZER,
        StepStage.BETWEEN,
        StepStage.TRANSFER,
        StepStage.FORWARD,
        StepStage.BACKWARD,
    )
]


@dataclass(frozen=True)
class CoreUse:
    """Of one rank, cores used on average since the last look: seconds in a second."""

    node: int
    cores: float
    """That its processes may run on."""
    own: float
    """By its own process."""
    workers: float
    """By the processes below it: its loaders' workers."""
    helpers: float
    """By its threads that exchange."""
    everybody: float
    """By all that runs on the machine."""
    loops: tuple[float, ...] = ()
    """Delay of each thread of its parallel loops."""


class ProcessLooks:
    """Looks at the processes of this node's ranks now and then."""

    def __init__(self) -> None:
        self.begun = False
        self.ours: set[int] = set()
        """The processes of the job, as of the last look: of its ranks, and those below them."""
        self._helpers: dict[int, Helpers] = {}
        self._before: dict[int, tuple[tuple[float, ...] | None, dict[int, float]]] = {}
        self._totals = counters.read_totals()
        self.activity = counters.activity_since(self._totals)
        """Of the machine, between the last two looks."""

    def sample_processes(
        self, processes: Mapping[int, int], seconds: float, node: int = 0
    ) -> dict[int, CoreUse]:
        """What the ranks used in the last ``seconds``; ``processes`` are theirs, by rank. Nothing the first time."""
        self.begun = True
        self.activity, self._totals = counters.activity_since(self._totals), counters.read_totals()
        found = {}
        self.ours = set(processes.values())
        for gone in self._helpers.keys() - self.ours:  # they keep files of its threads open
            del self._helpers[gone], self._before[gone]
        for rank, process in processes.items():
            helpers = self._helpers.get(process)
            if helpers is None:
                helpers = self._helpers[process] = Helpers(process, process)
            helpers.find_threads()
            ran = times_of(process)
            below = list_descendants(process)
            self.ours.update(below)
            workers = ran.ended + sum(map(sum, map(times_of, below)))
            now = (ran.own, workers, helpers.read_exchange().ran)
            known, (before, last) = helpers.loop_delays(), self._before.get(process, (None, {}))
            self._before[process] = now, known
            if before is None or seconds <= 0 or self.activity.cpu_seconds is None:
                continue
            own, workers, exchange = (
                max(0.0, a - b) / seconds for a, b in zip(now, before, strict=True)
            )
            late = tuple(
                (delay - last[thread]) / seconds
                for thread, delay in known.items()
                if thread in last
            )
            cores = float(len(os.sched_getaffinity(0)))
            everybody = self.activity.cpu_seconds / seconds
            found[rank] = CoreUse(node, cores, own, workers, exchange, everybody, late)
        return found


def strangers_cores(uses: Mapping[int, CoreUse]) -> float | None:
    """Cores of one machine that processes outside the job had; ``uses`` are its ranks'."""
    everybody = next((use.everybody for use in uses.values()), None)
    return (
        None
        if everybody is None
        else max(0.0, everybody - sum(use.own + use.workers for use in uses.values()))
    )


def lost_to_strangers(
    joined: JoinedCycles, uses: Mapping[int, CoreUse], on_cpu: bool
) -> SecondsArray | None:
    """Of each cycle, rank and stage the seconds that strangers cost; ``None`` where a rank's use is unknown."""
    if any(rank not in uses for rank in joined.ranks):
        return None
    seconds = np.moveaxis(joined.seconds, 2, 0)
    lost = np.zeros(seconds.shape)
    whole, of_input, of_exchange = np.moveaxis(joined.delays, 2, 0)
    sums = zip(
        seconds.sum(axis=0).sum(axis=0).tolist(),
        seconds[_EXCHANGE].sum(axis=0).tolist(),
        whole.sum(axis=0).tolist(),
        of_input.sum(axis=0).tolist(),
        of_exchange.sum(axis=0).tolist(),
        strict=True,
    )
    blocks = [
        _make_block(rank, uses[rank], *each) for rank, each in zip(joined.ranks, sums, strict=True)
    ]
    machines = {rank: str(uses[rank].node) for rank in joined.ranks}
    local, window = strangers_shares(
        blocks, machines, {rank: uses[rank].cores for rank in joined.ranks}, on_cpu
    )
    lost[_INPUT] = np.minimum(local * of_input, seconds[_INPUT])
    if on_cpu:  # of accelerators only waits for the loader count, as in a profile
        lost[_EXCHANGE] = np.minimum(window * of_exchange, seconds[_EXCHANGE])
        running = sum(seconds[stage] for stage in _RUNNING)
        cost = np.minimum(local * np.maximum(0.0, whole - of_input - of_exchange), running)
        share = np.divide(cost, running, out=np.zeros_like(cost), where=running > 0)
        for stage in _RUNNING:
            np.multiply(share, seconds[stage], out=lost[stage])
    return np.moveaxis(lost, 0, 2)


def _make_block(
    rank: int,
    use: CoreUse,
    wall: float,
    exchange: float,
    delay: float,
    of_input: float,
    of_exchange: float,
) -> Block:
    """A rank's cycles as the instrument takes them, all as one step: their delays are shared out alike."""
    return Block(
        round=0,
        rung="node",
        rank=rank,
        steps=1,
        seconds=wall,
        step_seconds=(wall,),
        step_delays=(delay,),
        step_wait_delays=(of_input,),
        step_exchange_delays=(of_exchange,),
        step_exchanges=(exchange,),
        cpu_seconds=use.own * wall,
        worker_cpu_seconds=use.workers * wall,
        helper_cpu_seconds=use.helpers * wall,
        machine_cpu_seconds=use.everybody * wall,
        loop_delays=tuple(each * wall for each in use.loops),
    )
