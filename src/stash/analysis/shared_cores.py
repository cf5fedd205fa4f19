"""Who had the cores of ranks that ran a block side by side: what of their delays strangers cost, in seconds.

Who competes for cores is delayed in proportion to what it takes of them. What the job's own loaders, exchange threads
and surplus ranks cause is the job's; a step takes what its last rank takes, and no less than its samples do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stash.core.ladder import NAMES, UNTOUCHED, rung
from stash.core.measured import Block
from stash.core.records.profile import Profile

RUNGS = {name: rung(name) for name in NAMES} | {UNTOUCHED.name: UNTOUCHED}
"""By name, the job untouched among them."""
DOUBT = 0.1
"""Half-width of what is subtracted, as a share of it: assumed before anything was recorded, and not fitted since.
With it 93 % of the intervals of recorded profiles held the truth (``bench.noise.play``)."""
_BUSY = (0.6, 0.9)
"""Share of their time in which a loader's workers make batches: below nothing waits for them on average, above all
that they lose is lost to the step."""
_MOST = 0.95
"""Of a step: what is left is time in which its thread ran, which no other thread can have had."""
StepArray = NDArray[np.float64]
"""A number for each step of a block, in seconds."""
RankArray = NDArray[np.float64]
"""A number for each of the ranks that ran a block side by side."""


class JobCores(NamedTuple):
    """What is the same in all blocks."""

    machines: Mapping[int, str]
    """Of each rank."""
    cores: Mapping[int, float]
    """Of its machine that it may use; infinite if unknown."""
    on_cpu: frozenset[int]
    workers: int
    """Of the loaders of one rank."""

    @classmethod
    def read_profile(cls, profile: Profile) -> JobCores:
        cores = {}
        for node, host in enumerate(profile.hosts):
            allowed = host.limits.cpus if host.limits is not None else None
            cores[node] = min(
                (float(each) for each in (host.cores, allowed) if each), default=math.inf
            )
        return cls(
            machines={rank.rank: rank.machine or str(rank.node) for rank in profile.ranks},
            cores={
                rank.rank: min(cores.get(rank.node, math.inf), rank.cores or math.inf)
                for rank in profile.ranks
            },
            on_cpu=frozenset(rank.rank for rank in profile.ranks if rank.device == "cpu"),
            workers=sum(loader.workers or 0 for loader in profile.workload.loaders),
        )


class StrangersCost(NamedTuple):
    """What strangers cost one rank's block, in seconds."""

    seconds: StepArray
    waits: StepArray
    """Of its waits for the loader."""
    making: float
    """Of making batches, all workers together."""
    doubt: float
    """Half-width for a step, without …"""
    of_loops: float
    """… that of what threads that share parallel loops may have cost, which is alike in all blocks."""
    for_others: float
    """Of ``seconds``, what this rank waited for ranks that were kept from running, less what it was kept itself."""


@dataclass(frozen=True)
class RankDelays:
    """The delays of ranks that ran a block side by side, ``[rank, step]``, and who had the cores meanwhile."""

    blocks: Sequence[Block]
    job: JobCores
    seconds: StepArray
    delays: StepArray
    windows: StepArray
    """From a rank's last gradient until its backward pass was over; zeros where that is unknown."""
    within: StepArray
    """Of ``delays``, those in these windows."""
    waiting: StepArray
    """Of ``delays``, those while it waited for its loader, or loaded itself."""
    on_cpu: StepArray
    """1 of ranks that train on CPUs, else 0: a delay of a host that runs ahead of its device costs a step nothing
    until that has run dry, so of accelerators only waits for the loader count, as far as their queue felt them.
    ``[rank, 1]``"""

    @classmethod
    def read_blocks(cls, blocks: Sequence[Block], job: JobCores) -> RankDelays:
        def steps(name: str) -> StepArray:
            nothing = (0.0,) * blocks[0].steps
            rows = [getattr(block, name) for block in blocks]
            return np.array(
                [row if len(row) == len(nothing) else nothing for row in rows], dtype=np.float64
            )

        seconds, delays, windows, within, waiting = map(
            steps,
            (
                "step_seconds",
                "step_delays",
                "step_exchanges",
                "step_exchange_delays",
                "step_wait_delays",
            ),
        )
        on_cpu = np.array([[float(block.rank in job.on_cpu)] for block in blocks])
        felt = np.array(
            [1.0 if block.rank in job.on_cpu else _felt_share(block) for block in blocks]
        )
        waiting = felt[:, None] * waiting
        delays = np.minimum(np.where(on_cpu > 0, delays, waiting), seconds)
        within = np.minimum(on_cpu * within, delays)
        waiting = np.minimum(waiting, delays)
        return cls(blocks, job, seconds, delays, on_cpu * windows, within, waiting, on_cpu)

    def _block_values(self, name: str) -> RankArray:
        return np.array([getattr(block, name) or 0.0 for block in self.blocks], dtype=np.float64)

    def strangers_costs(self) -> list[StrangersCost]:
        """What is theirs of each rank's block."""
        in_local, in_window = self._shares()
        steps = self.seconds.shape[1]
        wall = self.seconds.sum(axis=1)
        worker_lost = in_local * self._block_values("worker_delay_seconds")
        local = in_local[:, None] * (self.delays - self.within)
        loops = in_local * self._unsure_of_loops(wall)
        local += loops[:, None] / steps
        spare, late = self._supply(wall, local.sum(axis=1), worker_lost)
        total = local.sum(axis=1)
        local *= np.minimum(1.0, np.divide(spare, total, out=np.ones_like(total), where=total > 0))[
            :, None
        ]
        of_window = in_window[:, None] * self.within
        own = local.sum(axis=1)
        delay = self.delays.sum(axis=1)
        unsure = 0.0
        if RUNGS[self.blocks[0].rung].exchanges and len(self.blocks) > 1:
            late = np.full_like(late, late.max())  # ranks wait for each other
            if self.windows.any(axis=1).all():
                found, unsure = self._last_rank_cost(local, of_window, in_window)
                local, of_window = np.tile(found, (len(self.blocks), 1)), np.zeros_like(local)
                delay = np.full_like(delay, delay.max())
        costs = np.minimum(local + of_window + late[:, None] / steps, _MOST * self.seconds)
        waits = in_local[:, None] * self.waiting + late[:, None] / steps
        doubts = (
            np.hypot(DOUBT * np.maximum(costs.sum(axis=1), np.minimum(delay, wall)), unsure) / steps
        )
        for_others = (costs.sum(axis=1) - own - late).tolist()
        rows = zip(
            costs,
            waits,
            worker_lost.tolist(),
            doubts.tolist(),
            (loops / steps).tolist(),
            for_others,
            strict=True,
        )
        return [StrangersCost(*each) for each in rows]

    def _shares(self) -> tuple[RankArray, RankArray]:
        """Strangers' share of the delays while a rank computes and loads, and while it exchanges.

        Who competes for cores gets delays in proportion to what it takes of them: the job's loaders, its threads that
        exchange, and ranks beyond the number of cores on one side, everybody else on the other.
        """
        names = [self.job.machines.get(block.rank, "") for block in self.blocks]
        _, machine = np.unique(names, return_inverse=True)

        def sum_per_machine(each: RankArray) -> RankArray:
            return np.asarray(np.bincount(machine, each)[machine])

        wall = self.seconds.sum(axis=1)
        window = self.windows.sum(axis=1)
        process = self._block_values("cpu_seconds")
        loaders = sum_per_machine(self._block_values("worker_cpu_seconds"))
        own_helpers = self._block_values("helper_cpu_seconds")
        helpers = sum_per_machine(own_helpers)
        threads = np.maximum(0.0, process - own_helpers)
        strangers = (
            np.maximum(
                0.0, self._block_values("machine_cpu_seconds") - sum_per_machine(process) - loaders
            )
            / wall
        )
        loops = np.array([sum(block.loop_delays) for block in self.blocks])
        ran = sum_per_machine(threads) / wall
        wanted = sum_per_machine(threads + self.delays.sum(axis=1) + loops) / wall
        cores = np.array([self.job.cores.get(block.rank, math.inf) for block in self.blocks])
        running = np.minimum(
            sum_per_machine(np.array([1.0 + len(block.loop_delays) for block in self.blocks])),
            wanted,
        )
        surplus = np.maximum(0.0, running - cores) * _divide_known(ran, wanted)
        own = loaders / wall + surplus
        in_local = _divide_known(strangers, strangers + own + helpers / wall * (1 - window / wall))
        in_window = _divide_known(
            strangers,
            strangers + own + _divide_known(sum_per_machine(self._helpers_in_windows()), window),
        )
        limited = np.maximum(
            0.0, 1 - _divide_known(self._block_values("throttled_seconds"), self.delays.sum(axis=1))
        )
        return in_local * limited, in_window * limited

    def _unsure_of_loops(self, wall: RankArray) -> RankArray:
        """Half of what delays of threads that share a rank's parallel loops may have cost beyond its own delays.

        A loop ends with the last of its threads: nothing, where they were delayed between loops or together with the
        training thread, or all of it. So that much is taken off, and is doubt.
        """
        delayed = np.array([max(block.loop_delays, default=0.0) for block in self.blocks])
        left = np.maximum(0.0, wall - self.delays.sum(axis=1))
        return np.asarray(np.minimum(delayed * self.on_cpu[:, 0], left) / 2)

    def _supply(
        self, wall: RankArray, own: RankArray, lost: RankArray
    ) -> tuple[RankArray, RankArray]:
        """By how much samples would let each block be shorter, and what it waited only because they were late.

        ``own``: what strangers cost the training thread, ``lost``: what they cost its workers. Where workers are busy
        all the time training waits for them, and no step is shorter than the samples take that it trains on.
        """
        making = self._block_values("fetch_seconds")
        workers = self.job.workers
        if not RUNGS[self.blocks[0].rung].reads_data or not workers or not making.any():
            return wall, np.zeros_like(wall)
        busy = np.minimum(1.0, making / workers / wall)
        bound = np.clip((busy - _BUSY[0]) / (_BUSY[1] - _BUSY[0]), 0.0, 1.0)
        late = bound * np.minimum(
            np.maximum(0.0, lost / workers - own), self._block_values("wait_seconds")
        )
        return np.maximum(0.0, wall - (making - lost) / workers), late

    def _last_rank_cost(
        self, local: StepArray, of_window: StepArray, in_window: RankArray
    ) -> tuple[StepArray, float]:
        """Of each step that ranks take together, by how much its last rank would have come earlier, and the exchange.

        A step takes what its last rank takes until its last gradient, and what is left of the exchange then. The
        second value is the doubt of the latter.
        """
        before = self.seconds - self.windows
        gained = before.max(axis=0) - (before - local).max(axis=0)
        last = self.windows.argmin(axis=0)
        open_for = self.windows.min(axis=0)
        own = of_window[last, np.arange(len(last))]
        helped, doubt = self._helper_cost(float(open_for.sum()), in_window)
        return np.asarray(gained + np.minimum(own + helped / len(last), open_for)), doubt

    def _helper_cost(self, open_for: float, in_window: RankArray) -> tuple[float, float]:
        """What strangers cost the threads that exchange while last ranks wait ``open_for`` seconds; and its doubt.

        Several may be delayed at once, so no more than the share of such delays in the time they were ready is taken
        off, and no more than one rank's: where an exchange waits for links its threads are seldom ready, and ranks
        wait for the same. How many were shows nowhere: half of what they may have cost beyond that is doubt.
        """
        delayed = self._block_values("helper_delay_seconds")
        ran = self._helpers_in_windows()
        of_ranks = in_window * delayed
        strange = float(of_ranks.sum())
        ready = float((ran + delayed).sum())
        if not strange:
            return 0.0, 0.0
        helped = min(float(of_ranks.max()), open_for * strange / ready)
        return helped, (min(strange, open_for) - helped) / 2

    def _helpers_in_windows(self) -> RankArray:
        """Processor time of the threads that exchange, in their windows; in the whole block if that is unknown."""
        known = all(block.helper_window_cpu_seconds is not None for block in self.blocks)
        return self._block_values("helper_window_cpu_seconds" if known else "helper_cpu_seconds")


def strangers_shares(
    blocks: Sequence[Block], machines: Mapping[int, str], cores: Mapping[int, float], on_cpu: bool
) -> tuple[RankArray, RankArray]:
    """Strangers' share of the delays of ranks that ran side by side: while they compute and load, and exchange.

    ``machines`` and ``cores`` that may be used on each are by rank; blocks have the delays and processor times of a
    profile's.
    """
    ranks = frozenset(block.rank for block in blocks)
    return RankDelays.read_blocks(
        blocks, JobCores(machines, cores, ranks if on_cpu else frozenset(), 0)
    )._shares()


def _felt_share(block: Block) -> float:
    """Share of the delays in waits for the loader that an accelerator's queue can have felt: what it ran dry for."""
    delayed = sum(block.step_wait_delays)
    dry = block.stage_seconds.get("input", 0.0)
    return min(1.0, dry / delayed) if block.stage_seconds and delayed > 0 else 1.0


def _divide_known(part: RankArray, whole: RankArray) -> RankArray:
    """``part / whole``; nothing where there is no whole."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
