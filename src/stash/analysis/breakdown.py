"""The breakdown of a step as frozen records: its stalls, and those unknown and why.

Times are in seconds per step, rates in samples per second of the whole job; ``None`` means "not known" and is
never written as zero. Nothing here is ever saved as if it had been measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import model_validator

from stash.analysis.as_typed import AsTyped, is_other_job
from stash.analysis.bubble import Seen
from stash.analysis.disturbance import Disturbance
from stash.analysis.host_lead import HostLead
from stash.analysis.run_account import RunAccount
from stash.core.errors import StashError
from stash.core.intervals import Interval
from stash.core.ladder import (
    BUBBLE,
    DATA_STALLS,
    EXCHANGE_STALLS,
    NAMES,
    STALLS,
    Situation,
    rung,
    rung_adding,
    stall_names,
    why_no_stall,
)
from stash.core.ledger_rows import FORWARD, LOOP
from stash.core.pagecache import PAGE
from stash.core.records.base import Record
from stash.core.records.profile import Profile

# Records

SIGNIFICANT_SHARE = 0.03
"""A stall smaller than this share of the step is not worth a sentence."""
SMALL_SHARE = 0.05
"""A stall whose interval stays below this share of the step is small for certain.

It is ``SIGNIFICANT_SHARE`` and 2 % together: a stall known to that is certain or small.
"""
MINOR_SHARE = 0.1
"""Of the step: a stall that certainly takes less, and is not certain to take ``SIGNIFICANT_SHARE``, is minor: it
keeps no verdict open."""
_HARDLY = 1.1
"""An interval of so many times what is not noise in it is hardly narrowed by more rounds."""
_ROUNDING = 1e-9
"""Of the largest stall: how exactly the stalls add up to the step."""


class Parts(Record):
    """What a stall's interval is made of: half-widths of 95 % intervals, in seconds; ``None`` if not known."""

    noise: float | None = None
    """Of rounds; the only part that more rounds narrow."""
    method: float | None = None
    """Of the method itself, as seen where truth is known; never known of transfer."""
    launch: float = 0.0
    """Of another launch of the same job."""
    correction: float | None = None
    """Of what was subtracted for other work on the machine."""

    @property
    def besides_noise(self) -> float:
        """Every part of the error but the noise, added in quadrature."""
        return math.hypot(self.method or 0.0, self.launch, self.correction or 0.0)

    @property
    def common(self) -> float:
        """What is the same in every launch of the job, so that several of them do not narrow it."""
        return math.hypot(self.method or 0.0, self.correction or 0.0)


class Stall(Record):
    """What one rung adds to a step; negative if the measurement says so."""

    name: str
    time: Interval
    """Seconds per step, with the whole interval that is to hold the truth; unknown after a single round."""
    share: float
    """Of the step."""
    parts: Parts = Parts()
    """What its interval is made of."""

    @property
    def seconds(self) -> float:
        return self.time.value

    @property
    def low(self) -> float | None:
        return self.time.low

    @property
    def high(self) -> float | None:
        return self.time.high

    @property
    def width(self) -> float:
        """The longer arm of its interval, in seconds; 0 if it has none."""
        return (
            0.0
            if self.low is None or self.high is None
            else max(self.high - self.seconds, self.seconds - self.low)
        )

    @property
    def narrows(self) -> bool:
        """Whether more rounds would narrow its interval by more than a tenth."""
        return self.width > _HARDLY * self.parts.besides_noise

    @property
    def within_noise(self) -> bool:
        """The interval contains zero: this stall may not exist."""
        return self.time.within_noise

    @property
    def significant(self) -> bool:
        """Known not to be zero, and at least 3 % of the step."""
        return self.low is not None and not self.within_noise and self.share >= SIGNIFICANT_SHARE


class Missing(Record):
    """A stall that was not measured, and why."""

    name: str
    why: str
    possible: bool = False
    """Whether a job of this shape can have such a stall at all."""
    contained_in: str | None = None
    """The measured stall that its time is part of."""
    share_at_most: float | None = None
    """Of the step; ``None`` if unknown."""

    @property
    def small(self) -> bool:
        """Whether it certainly takes too little to matter."""
        return self.share_at_most is not None and self.share_at_most < MINOR_SHARE

    @property
    def is_unknown(self) -> bool:
        """Whether it could have been measured and may matter."""
        return self.possible and not self.small


class Paper(Record):
    """The percentages of the ICDCS 2023 paper, from its formulas; ``None`` where a rung is missing."""

    interconnect_pct: float | None = None
    """(T1 − T0) / T1: all devices of a node against one device, synthetic data."""
    network_pct: float | None = None
    """(T − T1) / T1: all nodes against one node, synthetic data."""
    prep_pct: float | None = None
    """(T3 − T1) / T3: real data, cached, against synthetic data."""
    fetch_pct: float | None = None
    """(T2 − T3) / T2: real data, not cached, against cached."""


class Stability(Record):
    """Whether the numbers deserve trust; each warning says what to do about it."""

    ok: bool
    warnings: tuple[str, ...] = ()


class SlowRank(Record):
    """A rank that holds all others up, found where the ranks run side by side without exchanging anything."""

    rank: int
    seconds: float
    """Its step time under ``crowd``."""
    others_seconds: float
    """The median of the other ranks'."""


class SampleCounts(Record):
    """How many samples steps train, counted block by block."""

    per_rung: dict[str, float]
    """Of a step of the whole job under each rung, mean over the kept rounds."""
    least: float
    """Of one rank's step, in the block with the smallest steps."""
    most: float
    """The same, in the block with the largest."""


class Waits(Record):
    """The second, single-run estimator of data stalls: seconds per step that the slowest rank waited for its data."""

    warm: float | None = None
    """Of prep."""
    cold: float | None = None
    """Of prep and fetch together."""


class Rates(Record):
    """DS-Analyzer's rates of the whole job in samples per second: a data stall exists if G > min(P, F)."""

    device: float | None = None
    """G: devices and communication, on replayed batches."""
    prep: float | None = None
    """P: the loaders alone, files in the page cache."""
    fetch: float | None = None
    """F: the loaders alone, files not in the page cache."""
    prep_spread: float | None = None
    """Half-width of P's 95 % interval as a share of it; ``None`` if too few parts were timed to tell."""
    fetch_spread: float | None = None
    """The same of F."""


class Communication(Record):
    """A step's gradient exchange: by itself, and the part of it that the step had to wait for."""

    total_seconds: float | None = None
    exposed_seconds: float | None = None
    """Interconnect and network stall together."""
    exposed_low: float | None = None
    exposed_high: float | None = None
    """Ends of its 95 % interval."""
    bytes: int | None = None
    """What one rank exchanges: all its gradients' buckets, and what its script's own collectives carry."""
    wire_bytes_per_second: float | None = None
    """Bus bandwidth, as nccl-tests defines it: payload / time · 2(p−1)/p."""
    latency_seconds: float | None = None
    """Of the total: what it would still take without its bytes."""

    @property
    def hidden_seconds(self) -> float | None:
        """Exchange behind the backward pass, or ``None`` unless both parts are known; never more than all of it."""
        if self.total_seconds is None or self.exposed_seconds is None:
            return None
        return min(self.total_seconds, self.total_seconds - self.exposed_seconds)

    @property
    def is_slowed(self) -> bool:
        """Whether steps certainly wait longer for the exchange than it takes by itself."""
        if self.exposed_low is None or self.total_seconds is None:
            return False
        return self.exposed_low > self.total_seconds


class Surfacing(Record):
    """A stall hidden behind another: what appears once ``removed`` is gone."""

    removed: str
    appears: str
    seconds: float


class Breakdown(Record):
    """The stalls of one step of the whole job; their ``seconds`` add up to ``step_seconds``.

    Checks itself: one whose stalls do not add up, do not belong to its rungs or lie outside their own intervals is
    never made, and StashError says what contradicts what.
    """

    source: str = "the profile"
    """What it is a breakdown of, to be named in errors: a file, or a job."""
    step_seconds: float
    step: Interval
    """The same with its whole interval, which is no sum of the stalls' intervals."""
    samples: SampleCounts | None
    waits: Waits
    rounds: int
    """Complete ones."""
    rounds_dropped: int = 0
    """Those that lack blocks."""
    world_size: int
    nodes: int
    rungs: tuple[str, ...]
    """Those that were run, in ladder order, one per stall."""
    stalls: tuple[Stall, ...]
    skipped: tuple[Missing, ...]
    paper: Paper
    stability: Stability
    rates: Rates
    communication: Communication
    slow_rank: SlowRank | None = None
    surfacing: tuple[Surfacing, ...] = ()
    seen: Seen | None = None
    """Where stalls were seen because no rung leaves them out."""
    by_waits: bool = False
    """Data stalls are what steps waited for the loader, and not how rungs differ."""
    as_typed: AsTyped | None = None
    """The job's first steps, as it was typed; ``None`` if they were not measured."""
    disturbed: Disturbance | None = None
    """What other work on the machines cost a step, which its stalls do not contain; ``None`` if unknown."""
    host_lead: HostLead | None = None
    """How far the host is ahead of the devices; ``None`` where their queues were not followed."""
    startup_seconds: float | None = None
    """Starting the loader's workers, once per iteration over the data set unless they persist."""
    run: RunAccount | None = None
    """An epoch: the step, and what lies between steps; ``None`` without ledgers."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Breakdown:
        contradiction = next(self._contradictions(), None)
        if contradiction is not None:
            raise StashError(
                f"the breakdown of {self.source} contradicts itself: {contradiction}; please report it"
            )
        return self

    def _contradictions(self) -> Iterator[str]:
        names = tuple(stall.name for stall in self.stalls)
        if self.rungs != tuple(name for name in NAMES if name in self.rungs):
            yield f"its rungs ({', '.join(self.rungs)}) are not in the ladder's order"
        elif not self.rungs or names != all_stalls(self.rungs, self.seen):
            yield f"its stalls ({', '.join(names)}) are not those of its rungs ({', '.join(self.rungs)})"
        for stall in self.stalls:
            if not stall.time.holds_itself:
                yield f"{stall.name} ({stall.seconds:g} s) is not within its interval, {stall.low} to {stall.high} s"
        together = self.seconds(*names)
        largest = max((abs(stall.seconds) for stall in self.stalls), default=0.0)
        if not abs(together - self.step_seconds) <= _ROUNDING * largest:
            yield f"its stalls add up to {together:g} s and its step takes {self.step_seconds:g} s"

    @property
    def waits_for_host(self) -> bool:
        """Whether the devices wait for their hosts to submit kernels, which is part of compute."""
        return self.host_lead is not None and self.host_lead.too_short

    @property
    def is_other_job(self) -> bool:
        """Whether what was measured is not the job as it was typed."""
        own = 0.0 if self.run is None else self.run.own_seconds
        stalls = {stall.name: stall.seconds for stall in self.stalls}
        return self.as_typed is not None and is_other_job(self.as_typed, own, stalls)

    @property
    def repetitions(self) -> int:
        """How many independent ones the intervals rest on: rounds, or sets of launches."""
        return self.step.repetitions

    @property
    def samples_per_step(self) -> float | None:
        """Samples of the whole job in a step under the highest rung."""
        return None if self.samples is None else self.samples.per_rung.get(self.rungs[-1])

    @property
    def samples_per_second(self) -> float | None:
        """Samples per second of the whole job."""
        return None if self.samples_per_step is None else self.samples_per_step / self.step_seconds

    def stall(self, name: str) -> Stall | None:
        """The stall called ``name``, if it was measured."""
        return next((stall for stall in self.stalls if stall.name == name), None)

    def seconds(self, *names: str) -> float:
        """Seconds of the named stalls together; those not measured add nothing."""
        return sum(stall.seconds for stall in self.stalls if stall.name in names)


def all_stalls(rungs: Sequence[str], seen: Seen | None) -> tuple[str, ...]:
    """The stalls of these rungs, and those that were seen, in ladder order."""
    return tuple(sorted({*stall_names(rungs), *(seen.stalls if seen else ())}, key=STALLS.index))


# Stalls a profile cannot tell


_IN_LOOP = "no data loader was seen; `stash.loader(loader)` shows what makes batches"


def missing_stalls(
    profile: Profile, rungs: tuple[str, ...], seen: Seen | None = None
) -> tuple[Missing, ...]:
    """The stalls that ``rungs`` cannot tell and that were not ``seen``, in ladder order, each with its reason.

    A rung that was not measured leaves its stall unknown, never zero. If the rung could have differed on this job,
    its stall has not vanished: the next rung up contains it, and the reason says so.
    """
    there = all_stalls(rungs, seen)
    missing = []
    for name in STALLS:
        if name == BUBBLE and name not in there and profile.workload.pipeline is not None:
            container = stall_names(rungs)[0]
            why = f"the passes of its {profile.workload.pipeline.name} were not timed; contained in {container}"
            missing.append(Missing(name=name, why=why, possible=True, contained_in=container))
        elif name != BUBBLE and name not in there:
            missing.append(_explain_missing(profile, rungs, name, seen))
    return tuple(missing)


def _explain_missing(
    profile: Profile, rungs: tuple[str, ...], name: str, seen: Seen | None
) -> Missing:
    work, waits = profile.workload, () if seen is None else seen.waits
    situation = Situation(
        world_size=profile.world_size,
        nodes=profile.nodes,
        ranks_per_node=max(ranks_per_node(profile).values(), default=1),
        accelerator=not profile.is_on_cpu,
        loader=bool(work.loaders),
    )
    impossible = why_no_stall(name, situation)
    is_possible = impossible is None
    if name == "fetch" and reads_no_files(profile):
        return Missing(name=name, why="the loader reads no files")
    if waits and is_possible and name in EXCHANGE_STALLS and name not in {w.stall for w in waits}:
        where = "inside a node" if name == "interconnect" else "across nodes"
        return Missing(name=name, why=f"no group that was seen to exchange anything lies {where}")
    unmeasured = adding = rung_adding(name).name
    reasons = {item.rung: item.why for item in profile.skipped}
    if adding in rungs:  # the ladder's first: the rung below it was left out
        below = [other for other in NAMES[: NAMES.index(adding)] if other not in rungs]
        unmeasured = ([other for other in below if other not in reasons] or below)[-1]
    if name == "transfer" and any(loader.on_device for loader in work.loaders):
        # the loader itself copies: under the rung that reads from it
        adding = rung_adding("prep").name
    is_unseen = is_possible and rung(adding).reads_data and not work.loaders
    is_copied = is_possible and name == "transfer" and not work.loaders and work.inputs_placed
    present = stall_names(rungs)
    container = None
    if is_unseen:
        # batches from no loader that was seen are made again under every rung
        container = present[0]
    elif is_possible:
        above = [
            s for s, r in zip(present, rungs, strict=True) if NAMES.index(r) >= NAMES.index(adding)
        ]
        container = next(iter(above), None)
    why = reasons.get(unmeasured, impossible or f"the rung {unmeasured} was not measured")
    most = _share_before_forward(profile) if is_unseen or is_copied else None
    if most is not None and most < MINOR_SHARE:
        why = f"no data loader was seen; {most:.1%} of a step passes before its first forward pass"
    elif is_unseen and (_share_of_loop(profile) or 0.0) >= MINOR_SHARE:
        container, why = LOOP, _IN_LOOP
    return Missing(
        name=name,
        why=why if container is None else f"{why}; contained in {container}",
        possible=is_possible,
        contained_in=container,
        share_at_most=most,
    )


def _share_before_forward(profile: Profile) -> float | None:
    """The part of a step before its forward pass, in which it may make its batch; ``None`` if unknown.

    Of a model whose ``forward`` the script calls itself, which no hook is told of, as its lines were looked at.
    """
    known = profile.workload.before_forward
    return _share_of_loop(profile) if known is None else known


def _share_of_loop(profile: Profile) -> float | None:
    """The part of a step, as typed, between the update and the forward pass; ``None`` if that was not looked at."""
    shares = (
        ledger.timed_seconds_of(LOOP) / ledger.timed_seconds
        for ledger in profile.ledgers
        if profile.is_on_cpu and any(place.row == FORWARD for place in ledger.places)
    )
    return max(shares, default=None)


def reads_no_files(profile: Profile) -> bool:
    """Whether making batches reads nothing by the kernel's counters, and no file was seen being opened or held."""
    rungs = {rung_adding(stall).name for stall in DATA_STALLS}
    blocks = [block for block in profile.blocks if block.rung in rungs]
    return bool(blocks) and all(
        block.read_bytes is not None
        and block.storage_bytes is not None
        and block.read_bytes + block.storage_bytes < PAGE * block.steps
        and not block.files
        and not block.held_bytes
        for block in blocks
    )


def ranks_per_node(profile: Profile) -> Counter[int]:
    """How many ranks each node has."""
    return Counter(rank.node for rank in profile.ranks)
