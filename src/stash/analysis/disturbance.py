"""What other work on the machine cost each step, as the kernel's scheduler counted it; and a profile without that.

A thread that is ready to run and has no core was kept from running by somebody. The kernel counts that delay; this
module divides it. What the job's own loaders, exchange threads and surplus ranks cause is the job's and stays in its
stalls; so does what the limit of its own control group causes. What strangers cause is subtracted from the step, as
far as the step would have been shorter without: a rank that waits for a slower one, or for samples that sleep or come
from a disk, gains nothing. What slows a running thread (a shared cache, a lower clock) shows in no delay and is not
known here; nor is what an accelerator waits for, whose host runs ahead of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import NAMES, UNTOUCHED, rung, stall_names
from stash.core.records.base import Record
from stash.core.records.circumstances import OtherProgram
from stash.core.records.profile import Block, Profile

BlockKey = tuple[int, str]
"""Round and rung."""
_RUNGS = {name: rung(name) for name in NAMES} | {UNTOUCHED.name: UNTOUCHED}
DOUBT = 0.1
"""Half-width of what is subtracted, as a share of it: assumed before anything was recorded, and not fitted since.
With it 93 % of the intervals of recorded profiles held the truth (``bench.noise.play``)."""
_BUSY = (0.6, 0.9)
"""Share of their time in which a loader's workers make batches: below nothing waits for them on average, above all
that they lose is lost to the step."""
_MOST = 0.95
"""Of a step: what is left is time in which its thread ran, which no other thread can have had."""
_SHARED = 0.15
"""Of its processor time, what a thread may need more where others use all the machine: a little more than the 11 %
that were the most seen in a few profiles; no fit."""
STEAL = 0.01
"""Of the machine's time: less cannot be distinguished from zero, as the kernel counts hundredths of a second."""


class Lost(NamedTuple):
    """What a rank's block lost to others, in seconds per step."""

    seconds: float
    """What strangers cost the step."""
    doubt: float
    """Half-width of that."""


class Undisturbed(NamedTuple):
    """A profile as it would have been without other work on its machines."""

    profile: Profile
    """Its blocks have no delays any more: there is nothing left to subtract."""
    lost: Mapping[BlockKey, Mapping[int, Lost]]
    """What was subtracted, by rank; nothing of blocks whose delays are unknown."""


def undisturbed(profile: Profile) -> Undisturbed:
    """``profile`` without what strangers cost; blocks whose delays are unknown are left as they were."""
    together: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for place, block in enumerate(profile.blocks):
        if block.step_delays and len(block.step_delays) == len(block.step_seconds) == block.steps:
            together[block.round, block.rung, block.steps].append(place)
    blocks, lost, job = list(profile.blocks), defaultdict[BlockKey, dict[int, Lost]](dict), _Job.of(profile)
    for (number, name, _), places in together.items():
        if name not in _RUNGS:
            continue
        own = [blocks[place] for place in places]
        subtracted = _Delays.of(own, job).by_strangers()
        for place, block, cost in zip(places, own, subtracted, strict=True):
            lost[number, name][block.rank] = Lost(float(cost.seconds.sum()) / block.steps, cost.doubt)
            blocks[place] = _without(block, cost)
    return Undisturbed(profile.model_copy(update={"blocks": tuple(blocks)}) if lost else profile, lost)


class Calming:
    """``undisturbed`` of a measurement under way: a large job's earlier rounds are not worked out in every round."""

    def __init__(self) -> None:
        self._seen: tuple[Block, ...] = ()
        self._blocks: tuple[Block, ...] = ()
        self._lost: dict[BlockKey, Mapping[int, Lost]] = {}

    def of(self, profile: Profile) -> Undisturbed:
        """The same as ``undisturbed(profile)``; what is kept are the rounds before the newest one."""
        blocks = profile.blocks
        if blocks[: len(self._seen)] != self._seen:  # a rung was left out
            self._seen, self._blocks, self._lost = (), (), {}
        kept = len(self._seen)
        fresh = undisturbed(profile.model_copy(update={"blocks": blocks[kept:]}))
        calm, lost = self._blocks + fresh.profile.blocks, {**self._lost, **fresh.lost}
        newest = max((block.round for block in blocks), default=0)
        while kept < len(blocks) and blocks[kept].round < newest:
            kept += 1
        self._seen, self._blocks = blocks[:kept], calm[:kept]
        self._lost = {key: each for key, each in lost.items() if key[0] < newest}
        return Undisturbed(profile.model_copy(update={"blocks": calm}), lost)


def without_delays(profile: Profile) -> Profile:
    """``profile`` without its delays: nothing is known any more of what strangers cost."""
    return profile.model_copy(update={"blocks": tuple(replace(block, step_delays=()) for block in profile.blocks)})


class Disturbance(Record):
    """What other work on the job's machines cost a step as it was seen; the stalls do not contain it."""

    time: Interval
    """Seconds of a step."""
    doubts: dict[str, float]
    """Half-widths in seconds by rung: how far what was subtracted of its steps may be wrong."""
    slowed: float = 0.0
    """Half-width in seconds of what the lowest rung's threads may have run more slowly next to so much other work."""
    steal: float | None = None
    """Of the machine's time, what its own host gave to others."""
    programs: tuple[OtherProgram, ...] = ()
    """Those that used most processor time meanwhile, the busiest first."""

    @property
    def doubt(self) -> float:
        """Half-width in seconds of what was subtracted of the step, and of how much slower its threads may run."""
        return math.hypot(list(self.doubts.values())[-1], self.slowed)

    def corrections(self) -> dict[str, float]:
        """Half-widths in seconds by stall: the doubt of its rung, and of the one below.

        What slows all running threads alike is the lowest rung's: it cancels where rungs are compared.
        """
        doubts = list(self.doubts.values())
        both = [math.hypot(one, other) for one, other in zip(doubts, [self.slowed, *doubts], strict=False)]
        return dict(zip(stall_names(tuple(self.doubts)), both, strict=True))


def disturbance(
    profile: Profile, calm: Undisturbed, rungs: Sequence[str], rounds: Sequence[int]
) -> Disturbance | None:
    """What was subtracted of the highest of ``rungs`` in these rounds; ``None`` if that is unknown."""
    doubts: dict[str, float] = {}
    for name in rungs:
        found = [calm.lost.get((number, name)) for number in rounds]
        if not found or not all(found):
            return None
        doubts[name] = fmean(max(each.doubt for each in ranks.values()) for ranks in found if ranks)
    top = [max(each.seconds for each in calm.lost[number, rungs[-1]].values()) for number in rounds]
    steals = [block.steal for block in profile.blocks if block.steal is not None and block.round in rounds]
    return Disturbance(
        time=mean_interval(top),
        doubts=doubts,
        slowed=_slowed(profile, rungs[0], rounds),
        steal=fmean(steals) if steals else None,
        programs=profile.others,
    )


def _slowed(profile: Profile, lowest: str, rounds: Sequence[int]) -> float:
    """Half-width of what running next to others may add to a step's processor time: caches and memory are shared."""
    cores = {
        rank.rank: profile.hosts[rank.node].cores
        for rank in profile.ranks
        if rank.node < len(profile.hosts) and rank.device == "cpu"
    }
    found = []
    for block in profile.blocks:
        of_machine = cores.get(block.rank)
        if block.rung == lowest and block.round in rounds and block.cpu is not None and of_machine:
            own = (block.cpu_seconds or 0.0) / block.seconds / of_machine
            found.append(_SHARED * max(0.0, block.cpu - own) * (block.thread_cpu_seconds or 0.0) / block.steps)
    return fmean(found) if found else 0.0


def own_delays(profile: Profile, calm: Undisturbed, rungs: Sequence[str], rounds: Sequence[int]) -> dict[str, float]:
    """Seconds of a step by rung in which the training thread had no core because of the job itself.

    Those of the rank with most; rungs where that is unknown are left out.
    """
    known: dict[str, dict[int, float]] = defaultdict(dict)
    for block in profile.blocks:
        lost = calm.lost.get((block.round, block.rung), {}).get(block.rank)
        if lost is not None and block.rung in rungs and block.round in rounds:
            own = max(0.0, sum(block.step_delays) / block.steps - lost.seconds)
            known[block.rung][block.round] = max(own, known[block.rung].get(block.round, 0.0))
    return {name: fmean(found.values()) for name, found in known.items()}


# Ranks side by side

StepArray = NDArray[np.float64]
"""A number for each step of a block, in seconds."""
RankArray = NDArray[np.float64]
"""A number for each of the ranks that ran a block side by side."""


class _Job(NamedTuple):
    """What is the same in all blocks."""

    machines: Mapping[int, str]
    """Of each rank."""
    cores: Mapping[int, float]
    """Of its machine that it may use; infinite if unknown."""
    on_cpu: frozenset[int]
    workers: int
    """Of the loaders of one rank."""

    @classmethod
    def of(cls, profile: Profile) -> _Job:
        cores = {}
        for node, host in enumerate(profile.hosts):
            allowed = host.limits.cpus if host.limits is not None else None
            cores[node] = min((float(each) for each in (host.cores, allowed) if each), default=math.inf)
        return cls(
            machines={rank.rank: rank.machine or str(rank.node) for rank in profile.ranks},
            cores={rank.rank: min(cores.get(rank.node, math.inf), rank.cores or math.inf) for rank in profile.ranks},
            on_cpu=frozenset(rank.rank for rank in profile.ranks if rank.device == "cpu"),
            workers=sum(loader.workers or 0 for loader in profile.workload.loaders),
        )


class _Cost(NamedTuple):
    """What strangers cost one rank's block, in seconds."""

    seconds: StepArray
    waits: StepArray
    """Of its waits for the loader."""
    making: float
    """Of making batches, all workers together."""
    doubt: float
    """Half-width for a step."""
    for_others: float
    """Of ``seconds``, what this rank waited for ranks that were kept from running, less what it was kept itself."""


@dataclass(frozen=True)
class _Delays:
    """The delays of ranks that ran a block side by side, ``[rank, step]``, and who had the cores meanwhile."""

    blocks: Sequence[Block]
    job: _Job
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
    def of(cls, blocks: Sequence[Block], job: _Job) -> _Delays:
        def steps(name: str) -> StepArray:
            nothing = (0.0,) * blocks[0].steps
            rows = [getattr(block, name) for block in blocks]
            return np.array([row if len(row) == len(nothing) else nothing for row in rows], dtype=np.float64)

        seconds, delays, windows, within, waiting = map(
            steps, ("step_seconds", "step_delays", "step_exchanges", "step_exchange_delays", "step_wait_delays")
        )
        on_cpu = np.array([[float(block.rank in job.on_cpu)] for block in blocks])
        felt = np.array([1.0 if block.rank in job.on_cpu else _felt(block) for block in blocks])
        waiting = felt[:, None] * waiting
        delays = np.minimum(np.where(on_cpu > 0, delays, waiting), seconds)
        within, waiting = np.minimum(on_cpu * within, delays), np.minimum(waiting, delays)
        return cls(blocks, job, seconds, delays, on_cpu * windows, within, waiting, on_cpu)

    def _of_blocks(self, name: str) -> RankArray:
        return np.array([getattr(block, name) or 0.0 for block in self.blocks], dtype=np.float64)

    def by_strangers(self) -> list[_Cost]:
        """What is theirs of each rank's block."""
        in_local, in_window = self._shares()
        steps, wall = self.seconds.shape[1], self.seconds.sum(axis=1)
        worker_lost = in_local * self._of_blocks("worker_delay_seconds")
        of_threads = self.on_cpu * (in_local[:, None] * self._in_loops() + self._stolen())
        local = in_local[:, None] * (self.delays - self.within) + of_threads
        spare, late = self._supply(wall, local.sum(axis=1), worker_lost)
        total = local.sum(axis=1)
        local *= np.minimum(1.0, np.divide(spare, total, out=np.ones_like(total), where=total > 0))[:, None]
        of_window = in_window[:, None] * self.within
        own, delay, unsure = local.sum(axis=1), self.delays.sum(axis=1), 0.0
        if _RUNGS[self.blocks[0].rung].exchanges and len(self.blocks) > 1:
            late = np.full_like(late, late.max())  # ranks wait for each other
            if self.windows.any(axis=1).all():
                found, unsure = self._of_the_last(local, of_window, in_window)
                local, of_window = np.tile(found, (len(self.blocks), 1)), np.zeros_like(local)
                delay = np.full_like(delay, delay.max())
        costs = np.minimum(local + of_window + late[:, None] / steps, _MOST * self.seconds)
        waits = in_local[:, None] * self.waiting + late[:, None] / steps
        doubts = np.hypot(DOUBT * np.maximum(costs.sum(axis=1), np.minimum(delay, wall)), unsure) / steps
        for_others = (costs.sum(axis=1) - own - late).tolist()
        rows = zip(costs, waits, worker_lost.tolist(), doubts.tolist(), for_others, strict=True)
        return [_Cost(*each) for each in rows]

    def _in_loops(self) -> StepArray:
        """What each step waited for threads of parallel loops that were delayed while the training thread was not.

        A loop ends with its last thread. Of threads that are delayed at random one at least is for the time of
        ``wall · (1 - Π(1 - delay / wall))``.
        """
        wall, local = self.seconds.sum(axis=1), (self.delays - self.within).sum(axis=1)
        undelayed = np.ones(len(wall))
        for rank, block in enumerate(self.blocks):
            for delay in block.loop_delays:
                undelayed[rank] *= 1 - min(1.0, delay / wall[rank])
        return np.asarray(((wall - local) * (1 - undelayed) / wall)[:, None] * self.seconds)

    def _shares(self) -> tuple[RankArray, RankArray]:
        """Strangers' share of the delays while a rank computes and loads, and while it exchanges.

        Who competes for cores gets delays in proportion to what it takes of them: the job's loaders, its threads that
        exchange, and ranks beyond the number of cores on one side, everybody else on the other.
        """
        names = [self.job.machines.get(block.rank, "") for block in self.blocks]
        _, machine = np.unique(names, return_inverse=True)

        def on_machine(each: RankArray) -> RankArray:
            return np.asarray(np.bincount(machine, each)[machine])

        wall, window = self.seconds.sum(axis=1), self.windows.sum(axis=1)
        process = self._of_blocks("cpu_seconds")
        loaders = on_machine(self._of_blocks("worker_cpu_seconds"))
        own_helpers = self._of_blocks("helper_cpu_seconds")
        helpers, threads = on_machine(own_helpers), np.maximum(0.0, process - own_helpers)
        strangers = np.maximum(0.0, self._of_blocks("machine_cpu_seconds") - on_machine(process) - loaders) / wall
        loops = np.array([sum(block.loop_delays) for block in self.blocks])
        ran, wanted = on_machine(threads) / wall, on_machine(threads + self.delays.sum(axis=1) + loops) / wall
        cores = np.array([self.job.cores.get(block.rank, math.inf) for block in self.blocks])
        running = np.minimum(on_machine(np.array([1.0 + len(block.loop_delays) for block in self.blocks])), wanted)
        surplus = np.maximum(0.0, running - cores) * _over(ran, wanted)
        own = loaders / wall + surplus
        in_local = _over(strangers, strangers + own + helpers / wall * (1 - window / wall))
        in_window = _over(strangers, strangers + own + _over(on_machine(self._helpers_in_windows()), window))
        limited = np.maximum(0.0, 1 - _over(self._of_blocks("throttled_seconds"), self.delays.sum(axis=1)))
        return in_local * limited, in_window * limited

    def _stolen(self) -> StepArray:
        """What the machine's own host took of the time in which each thread seemed to run."""
        steal, busy = self._of_blocks("steal"), self._of_blocks("cpu")
        if not (steal >= STEAL).any():
            return np.zeros_like(self.seconds)
        ran = np.maximum(0.0, self.seconds - self.windows - self.delays)
        of_running = np.minimum(1.0, _over(self._of_blocks("thread_cpu_seconds"), ran.sum(axis=1)))
        share = np.where((steal >= STEAL) & (busy > 0), _over(steal, busy + steal), 0.0)
        return np.asarray((share * of_running)[:, None] * ran)

    def _supply(self, wall: RankArray, own: RankArray, lost: RankArray) -> tuple[RankArray, RankArray]:
        """By how much samples would let each block be shorter, and what it waited only because they were late.

        ``own``: what strangers cost the training thread, ``lost``: what they cost its workers. Where workers are busy
        all the time training waits for them, and no step is shorter than the samples take that it trains on.
        """
        making, workers = self._of_blocks("fetch_seconds"), self.job.workers
        if not _RUNGS[self.blocks[0].rung].reads_data or not workers or not making.any():
            return wall, np.zeros_like(wall)
        busy = np.minimum(1.0, making / workers / wall)
        bound = np.clip((busy - _BUSY[0]) / (_BUSY[1] - _BUSY[0]), 0.0, 1.0)
        late = bound * np.minimum(np.maximum(0.0, lost / workers - own), self._of_blocks("wait_seconds"))
        return np.maximum(0.0, wall - (making - lost) / workers), late

    def _of_the_last(self, local: StepArray, of_window: StepArray, in_window: RankArray) -> tuple[StepArray, float]:
        """Of each step that ranks take together, by how much its last rank would have come earlier, and the exchange.

        A step takes what its last rank takes until its last gradient, and what is left of the exchange then. The
        second value is the doubt of the latter.
        """
        before = self.seconds - self.windows
        gained = before.max(axis=0) - (before - local).max(axis=0)
        last, open_for = self.windows.argmin(axis=0), self.windows.min(axis=0)
        own = of_window[last, np.arange(len(last))]
        helped, doubt = self._of_helpers(float(open_for.sum()), in_window)
        return np.asarray(gained + np.minimum(own + helped / len(last), open_for)), doubt

    def _of_helpers(self, open_for: float, in_window: RankArray) -> tuple[float, float]:
        """What strangers cost the threads that exchange while last ranks wait ``open_for`` seconds; and its doubt.

        Several may be delayed at once, so no more than the share of such delays in the time they were ready is taken
        off, and no more than one rank's: where an exchange waits for links its threads are seldom ready, and ranks
        wait for the same. How many were shows nowhere: half of what they may have cost beyond that is doubt.
        """
        delayed, ran = self._of_blocks("helper_delay_seconds"), self._helpers_in_windows()
        of_ranks = in_window * delayed
        strange, ready = float(of_ranks.sum()), float((ran + delayed).sum())
        if not strange:
            return 0.0, 0.0
        helped = min(float(of_ranks.max()), open_for * strange / ready)
        return helped, (min(strange, open_for) - helped) / 2

    def _helpers_in_windows(self) -> RankArray:
        """Processor time of the threads that exchange, in their windows; in the whole block if that is unknown."""
        known = all(block.helper_window_cpu_seconds is not None for block in self.blocks)
        return self._of_blocks("helper_window_cpu_seconds" if known else "helper_cpu_seconds")


def strangers_shares(
    blocks: Sequence[Block], machines: Mapping[int, str], cores: Mapping[int, float], on_cpu: bool
) -> tuple[RankArray, RankArray]:
    """Strangers' share of the delays of ranks that ran side by side: while they compute and load, and exchange.

    ``machines`` and ``cores`` that may be used on each are by rank; blocks have the delays and processor times of a
    profile's.
    """
    ranks = frozenset(block.rank for block in blocks)
    return _Delays.of(blocks, _Job(machines, cores, ranks if on_cpu else frozenset(), 0))._shares()


def _felt(block: Block) -> float:
    """Share of the delays in waits for the loader that an accelerator's queue can have felt: what it ran dry for."""
    delayed, dry = sum(block.step_wait_delays), block.stage_seconds.get("input", 0.0)
    return min(1.0, dry / delayed) if block.stage_seconds and delayed > 0 else 1.0


def _over(part: RankArray, whole: RankArray) -> RankArray:
    """``part / whole``; nothing where there is no whole."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _without(block: Block, cost: _Cost) -> Block:
    """The block with what strangers cost subtracted, and without delays."""
    changes: dict[str, object] = {
        "seconds": block.seconds - float(cost.seconds.sum()),
        "step_seconds": tuple((np.array(block.step_seconds) - cost.seconds).tolist()),
        "step_delays": (), "step_exchange_delays": (), "step_wait_delays": (), "helper_delay_seconds": None,
    }  # fmt: skip
    if block.wait_seconds is not None and len(block.step_waits) == block.steps:
        left = np.maximum(0.0, np.array(block.step_waits) - cost.waits)
        changes |= {"step_waits": tuple(left.tolist()), "wait_seconds": float(left.sum())}
    if block.fetch_seconds is not None and cost.making:
        changes["fetch_seconds"] = max(block.fetch_seconds - cost.making, block.fetch_cpu_seconds or 0.0)
    if (waited := sum(block.group_waits.values()) + block.stage_seconds.get("exchange", 0.0)) and block.group_waits:
        # What is left of the step is then its own work, less what it was kept from that itself.
        left_of_waits = max(0.0, 1 - cost.for_others / waited)
        changes["group_waits"] = {name: seconds * left_of_waits for name, seconds in block.group_waits.items()}
        changes["group_under_way"] = {
            name: seconds - (1 - left_of_waits) * block.group_waits.get(name, 0.0)
            for name, seconds in block.group_under_way.items()
        }
        if "exchange" in block.stage_seconds:
            exchange = block.stage_seconds["exchange"] * left_of_waits
            changes["stage_seconds"] = {**block.stage_seconds, "exchange": exchange}
    return replace(block, **changes)  # type: ignore[arg-type]
