"""What other work on the machine cost each step, as the kernel's scheduler counted it; and a profile without that.

A thread that is ready to run and has no core was kept from running by somebody. The kernel counts that delay; this
module divides it. What the job's own loaders, exchange threads and surplus ranks cause is the job's and stays in its
stalls; so does what the limit of its own control group causes. What strangers cause is subtracted from the step, as
far as the step would have been shorter without: a rank that waits for a slower one, or for samples that sleep or come
from a disk, gains nothing. What slows a running thread (a shared cache, a lower clock) shows in no delay and is not
known here; nor is what an accelerator waits for, whose host runs ahead of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import NAMES, UNTOUCHED, rung
from stash.core.records.base import Record
from stash.core.records.profile import Block, OtherProgram, Profile

Key = tuple[int, str]
"""Round and rung."""
_KNOWN = (*NAMES, UNTOUCHED.name)
DOUBT = 0.1
"""Half-width of the share of strangers in a delay, by what recordings of known truth showed (``bench.noise``)."""
_BUSY = (0.6, 0.9)
"""Share of their time in which a loader's workers make batches: below nothing waits for them on average, above all
that they lose is lost to the step."""
_STEAL = 0.01
"""Of the machine's time: less is not told from nothing, as the kernel tells it in hundredths of a second."""


class Lost(NamedTuple):
    """Of a rank's block, in seconds per step."""

    seconds: float
    """What strangers cost the step."""
    doubt: float
    """Half-width of that."""


class Undisturbed(NamedTuple):
    """A profile as it would have been without other work on its machines."""

    profile: Profile
    """Its blocks have no delays any more: there is nothing left to subtract."""
    lost: Mapping[Key, Mapping[int, Lost]]
    """What was subtracted, by rank; nothing of blocks whose delays are unknown."""


def undisturbed(profile: Profile) -> Undisturbed:
    """``profile`` without what strangers cost; blocks whose delays are unknown are left as they were."""
    together: dict[Key, list[Block]] = defaultdict(list)
    for block in profile.blocks:
        if (
            block.steps > 0
            and len(block.step_delays) == len(block.step_seconds) == block.steps
            and block.rung in _KNOWN
        ):
            together[block.round, block.rung].append(block)
    if not together:
        return Undisturbed(profile, {})
    machines = {rank.rank: rank.machine or str(rank.node) for rank in profile.ranks}
    on_cpu = {rank.rank for rank in profile.ranks if rank.device == "cpu"}
    cores = {host: machine_cores(profile, host) for host in range(len(profile.hosts))}
    nodes = {rank.rank: rank.node for rank in profile.ranks}
    workers = sum(loader.workers or 0 for loader in profile.workload.loaders)
    calm: dict[tuple[int, str, int, float], Block] = {}
    lost: dict[Key, dict[int, Lost]] = {}
    for key, blocks in together.items():
        ranks = [
            _Rank.of(
                block,
                [each for each in blocks if machines.get(each.rank) == machines.get(block.rank)],
                cores.get(nodes.get(block.rank, 0)),
                workers,
                block.rank in on_cpu,
            )
            for block in blocks
        ]
        subtracted = _of_side_by_side(ranks, in_step=rung(key[1]).exchanges)
        lost[key] = {}
        for block, (seconds, waits, making, doubt) in zip(blocks, subtracted, strict=True):
            lost[key][block.rank] = Lost(float(seconds.sum()) / block.steps, doubt)
            calm[block.round, block.rung, block.rank, block.started] = _without(block, seconds, waits, making)
    blocks_now = tuple(calm.get((b.round, b.rung, b.rank, b.started), b) for b in profile.blocks)
    return Undisturbed(profile.model_copy(update={"blocks": blocks_now}), lost)


def without_delays(profile: Profile) -> Profile:
    """``profile`` without its delays: nothing is known any more of what strangers cost."""
    return profile.model_copy(update={"blocks": tuple(replace(block, step_delays=()) for block in profile.blocks)})


class Disturbance(Record):
    """What other work on the job's machines cost a step as it was seen; the stalls do not contain it."""

    time: Interval
    """Seconds of a step."""
    doubts: dict[str, float]
    """Half-widths in seconds by rung: how far what was subtracted of its steps may be wrong."""
    steal: float | None = None
    """Of the machine's time, what its own host gave to others."""
    programs: tuple[OtherProgram, ...] = ()
    """Those that used most processor time meanwhile, the busiest first."""


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
        steal=fmean(steals) if steals else None,
        programs=profile.others,
    )


def machine_cores(profile: Profile, node: int) -> float | None:
    """Cores of a node's machine that its ranks may use; ``None`` if unknown."""
    host = profile.hosts[node]
    allowed = host.limits.cpus if host.limits is not None else None
    known = [float(each) for each in (host.cores, allowed) if each]
    return min(known, default=None)


# One rank's delays

Steps = NDArray[np.float64]
"""A number for each step of a block, in seconds."""


@dataclass(frozen=True)
class _Rank:
    """What a rank's block shows of its delays, and which part of them strangers caused."""

    block: Block
    seconds: Steps
    delays: Steps
    windows: Steps
    """From its last gradient until its backward pass was over; zeros where that is unknown."""
    window_delays: Steps
    wait_delays: Steps
    """Of ``delays``, those while it waited for its loader or loaded itself."""
    in_local: float
    """Strangers' share of the delays while it computes and loads."""
    in_window: float
    """… while it exchanges."""
    stolen: float
    """Of every second that it ran, what the machine's own host kept it from."""
    spare: float
    """What its block could be shorter by, with its workers' delays gone: less than that, samples would be late."""
    workers_lost: float
    """Seconds of making batches that strangers cost its workers, all together."""
    extra: float
    """Seconds that the block waited because its workers were delayed by more than itself."""

    @classmethod
    def of(cls, block: Block, beside: Sequence[Block], cores: float | None, workers: int, on_cpu: bool) -> _Rank:
        seconds, delays = np.asarray(block.step_seconds), np.asarray(block.step_delays)
        nothing = np.zeros(block.steps)
        windows, within = (
            np.asarray(each) if len(each) == block.steps else nothing
            for each in (block.step_exchanges, block.step_exchange_delays)
        )
        waiting = np.asarray(block.step_wait_delays) if len(block.step_wait_delays) == block.steps else nothing
        if not on_cpu:  # its host runs ahead: a delay there costs a step nothing until the device has run dry
            windows, within, delays = nothing, nothing, waiting
        delays = np.minimum(delays, seconds)
        wall, window = float(seconds.sum()), float(windows.sum())
        own = sum((each.cpu_seconds or 0.0) + (each.worker_cpu_seconds or 0.0) for each in beside)
        strangers = max(0.0, (block.machine_cpu_seconds or 0.0) - own) / wall
        loaders = sum(each.worker_cpu_seconds or 0.0 for each in beside) / wall
        helpers = sum(max(0.0, (each.cpu_seconds or 0.0) - (each.thread_cpu_seconds or 0.0)) for each in beside)
        surplus = _surplus(beside, cores, wall)
        in_local = _share(strangers, loaders + surplus + helpers / wall * (1 - window / wall))
        in_window = _share(strangers, loaders + surplus + (helpers / window if window else 0.0))
        kept = _not_throttled(block, float(delays.sum()))
        in_local, in_window = in_local * kept, in_window * kept
        lost = in_local * (block.worker_delay_seconds or 0.0) * kept
        spare, extra = _supply(block, wall, in_local * float((delays - within).sum()), lost, workers)
        return cls(
            block, seconds, delays, windows, np.minimum(within, delays), np.minimum(waiting, delays),
            in_local, in_window, _stolen(block), spare, lost, extra,
        )  # fmt: skip

    @property
    def local(self) -> Steps:
        """What strangers cost each step until its last gradient."""
        ran = np.maximum(0.0, self.seconds - self.windows - self.delays)
        of_running = min(1.0, (self.block.thread_cpu_seconds or 0.0) / float(ran.sum() or 1.0))
        found = self.in_local * (self.delays - self.window_delays) + self.stolen * of_running * ran
        total = float(found.sum())
        return np.asarray(found * min(1.0, self.spare / total) if total > 0 else found)


def _share(strangers: float, own: float) -> float:
    """Who competes for cores gets delays in proportion to what it takes of them."""
    return strangers / (strangers + own) if strangers > 0 else 0.0


def _surplus(beside: Sequence[Block], cores: float | None, wall: float) -> float:
    """Cores' worth of what the ranks of one machine would want beyond what there is, as far as they got it."""
    if cores is None:
        return 0.0
    ran = sum(each.thread_cpu_seconds or 0.0 for each in beside) / wall
    wanted = ran + sum(sum(each.step_delays) for each in beside) / wall
    running = min(float(len(beside)), wanted)
    return max(0.0, running - cores) * (ran / wanted if wanted else 0.0)


def _not_throttled(block: Block, delay: float) -> float:
    """Share of the delay that the limit of the job's own control group does not explain."""
    throttled = block.throttled_seconds or 0.0
    return max(0.0, 1 - throttled / delay) if delay > 0 and throttled > 0 else 1.0


def _stolen(block: Block) -> float:
    """Of every second on a core, what the machine's own host took."""
    if block.steal is None or not block.cpu or block.steal < _STEAL:
        return 0.0
    return block.steal / (block.cpu + block.steal)


def _supply(block: Block, wall: float, own: float, lost: float, workers: int) -> tuple[float, float]:
    """By how much a block's samples would let it be shorter, and what it waited only because they were late.

    ``own``: what strangers cost the training thread, ``lost``: what they cost its workers. Where workers are busy all
    the time training waits for them, and no step is shorter than the samples take that it trains on.
    """
    making = block.fetch_seconds
    if not rung(block.rung).reads_data or not workers or making is None:
        return wall, 0.0
    busy = min(1.0, making / workers / wall)
    bound = min(1.0, max(0.0, (busy - _BUSY[0]) / (_BUSY[1] - _BUSY[0])))
    late = bound * min(max(0.0, lost / workers - own), block.wait_seconds or 0.0)
    return max(0.0, wall - (making - lost) / workers), late


# Ranks side by side


def _of_side_by_side(ranks: Sequence[_Rank], in_step: bool) -> list[tuple[Steps, Steps, float, float]]:
    """Of each rank: what to subtract of each step and of its waits, of making batches, and the doubt of a step."""
    found = []
    in_step = in_step and len(ranks) > 1 and len({len(rank.seconds) for rank in ranks}) == 1
    shared = _of_the_last(ranks) if in_step and all(rank.windows.any() for rank in ranks) else None
    for rank in ranks:
        steps = rank.block.steps
        seconds = rank.local + rank.in_window * rank.window_delays if shared is None else shared[0]
        late = max((each.extra for each in ranks), default=0.0) if in_step else rank.extra
        seconds = np.minimum(seconds + late / steps, 0.95 * rank.seconds)
        waits = rank.in_local * rank.wait_delays + late / steps
        subtracted = float(seconds.sum())
        delay = float(rank.delays.sum()) if shared is None else shared[1]
        doubt = DOUBT * max(subtracted, min(delay, rank.block.seconds)) / steps
        found.append((seconds, waits, rank.workers_lost, doubt))
    return found


def _of_the_last(ranks: Sequence[_Rank]) -> tuple[Steps, float]:
    """Of ranks that wait for each other in every step: by how much the last one would have come earlier, and delays.

    What a step takes is what its last rank takes until its last gradient, and what is left of the exchange then. Of
    that, the threads that exchange were delayed too, on each rank in turn: each waits for the other's next part.
    """
    before = np.array([rank.seconds - rank.windows for rank in ranks])
    without = before - np.array([rank.local for rank in ranks])
    gained = before.max(axis=0) - without.max(axis=0)
    windows = np.array([rank.windows for rank in ranks])
    last = windows.argmin(axis=0)
    step = np.arange(windows.shape[1])
    own = np.array([rank.in_window * rank.window_delays for rank in ranks])[last, step]
    open_for = windows.min(axis=0)
    helped = _of_helpers(ranks, float(open_for.sum())) / windows.shape[1]
    exchange = np.minimum(own + helped, open_for)
    delay = max(float(rank.delays.sum()) for rank in ranks) + helped * windows.shape[1]
    return np.asarray(gained + exchange), delay


def _of_helpers(ranks: Sequence[_Rank], open_for: float) -> float:
    """What strangers cost the threads that exchange, of the ``open_for`` seconds that the last ranks waited for them.

    Several are delayed at once, so it is no more than the share that such delays have of the time they were ready.
    """
    delayed = sum(rank.block.helper_delay_seconds or 0.0 for rank in ranks)
    ran = sum(max(0.0, (r.block.cpu_seconds or 0.0) - (r.block.thread_cpu_seconds or 0.0)) for r in ranks)
    by_strangers = sum(rank.in_window * (rank.block.helper_delay_seconds or 0.0) for rank in ranks)
    return min(by_strangers, open_for * by_strangers / (ran + delayed)) if by_strangers else 0.0


def _without(block: Block, seconds: Steps, waits: Steps, making: float) -> Block:
    """The block with what strangers cost subtracted, and without delays."""
    steps = tuple((np.asarray(block.step_seconds) - seconds).tolist())
    changes: dict[str, object] = {
        "seconds": block.seconds - float(seconds.sum()), "step_seconds": steps, "step_delays": (),
        "step_exchanges": (), "step_exchange_delays": (), "step_wait_delays": (), "helper_delay_seconds": None,
    }  # fmt: skip
    if block.wait_seconds is not None and len(block.step_waits) == block.steps:
        left = np.maximum(0.0, np.asarray(block.step_waits) - waits)
        changes |= {"step_waits": tuple(left.tolist()), "wait_seconds": float(left.sum())}
    if block.fetch_seconds is not None and making:
        changes["fetch_seconds"] = max(block.fetch_seconds - making, block.fetch_cpu_seconds or 0.0)
    return replace(block, **changes)  # type: ignore[arg-type]
