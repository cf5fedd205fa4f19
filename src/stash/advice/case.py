"""The case at hand for remedies: shared numbers, what a remedy saves by forecast, and why a stall is there.

What a remedy saves is the measured step less the forecast of the step after it, by the functions of ``stash
whatif``, so that advice and what-if never disagree. Which remedy fits is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stash.analysis.breakdown import Breakdown, Communication, ranks_per_node
from stash.analysis.run_account import NO_ACCOUNT, RunAccount
from stash.analysis.slow_lines import SlowLine
from stash.analysis.step_figures import slower_text
from stash.analysis.step_times import has_unequal_batches
from stash.core.errors import StashError
from stash.core.ladder import BUBBLE, DATA_STALLS, EXCHANGE_STALLS
from stash.core.ledger_rows import INPUT
from stash.core.records.profile import Loader, Profile
from stash.core.units import format_bits, format_bytes, format_pace, format_seconds
from stash.predict.changed_job import change_job
from stash.predict.changes import AS_IT_IS, Alteration
from stash.predict.cluster_sources import usable_threads
from stash.predict.forecasting import base_of, lost_stalls, stall_draws, what_if
from stash.predict.passes import Base
from stash.predict.sufficiency import Sufficiency, assess_sufficiency


def gained_seconds(
    base: Base,
    wanted: Alteration = AS_IT_IS,
    less: Mapping[str, float] | None = None,
    done: Alteration = AS_IT_IS,
) -> float | None:
    """Seconds saved for as many samples as a step has now, with what surfaces counted; ``None`` if unknown.

    A step of k times the samples is compared with k of today's steps. ``less`` is that of ``what_if``; what is
    ``done`` already is so before and after.
    """
    try:
        both = done.replace_facts(**wanted.facts)
    except StashError:  # the one leaves no room for the other
        return None
    before, after = _forecast_speed(base, done, None), _forecast_speed(base, both, less)
    if before is None or after is None:
        return None
    (slow, samples), (fast, as_many) = before, after
    if not samples or not as_many:
        if wanted.accumulate is not None or wanted.batch is not None:
            return None
        samples = as_many = 1.0
    return round(slow - fast * samples / as_many, 12)  # a picosecond: sums that cancel


def _forecast_speed(
    base: Base, wanted: Alteration, less: Mapping[str, float] | None
) -> tuple[float, float | None] | None:
    """Seconds and samples of a step; ``None`` if a part of it cannot be predicted."""
    try:
        forecast = what_if(base, wanted, less)
    except StashError:
        return None
    return (
        None
        if lost_stalls(base, forecast)
        else (forecast.breakdown.step_seconds, forecast.breakdown.samples_per_step)
    )


_SURE = 0.95
"""Of the draws of what is uncertain."""
LARGER_BATCH = "the effective batch grows, so tune the learning rate again"
"""What it costs to put more samples into a step."""


@dataclass(frozen=True)
class Remedy:
    """Something to do, without a full stop, the seconds per step it saves, and what it costs."""

    text: str
    saves: float | None = None
    """Where the cost is ``LARGER_BATCH``, for as many samples as a step has now."""
    cost: str | None = None
    """What else changes, where the job's result may: a clause."""
    name: str = ""
    """What programs know it by, where one has to; texts change."""
    first: bool = False
    """To be tried before others, even of those that save more."""
    asks: Alteration | None = None
    """The question to ``stash whatif`` whose answer ``saves`` is; ``None`` where it is no such question."""
    knob: str = ""
    """What tries it in ``stash fix``; behind ``--try`` where it is not tried by itself."""
    of_run: bool = False
    """What it saves lies between steps: a share of an epoch."""


_REQUESTS = re.compile(r"Socket|SSL|HTTP|urlopen|getaddrinfo|recv_into", re.I)
"""Functions of Python's library that wait for a server."""


@dataclass(frozen=True)
class Case:
    """A breakdown with its profile, and the few numbers several remedies share."""

    breakdown: Breakdown
    profile: Profile
    removed: str | None = None
    """A stall supposed to be gone already."""
    done: Alteration = AS_IT_IS
    """What is supposed to be done already, before any remedy."""

    @cached_property
    def base(self) -> Base:
        """What every forecast from the profile starts with."""
        return base_of(self.profile, self.breakdown)

    def saved_seconds(
        self, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None
    ) -> float | None:
        """Seconds that a remedy saves, see ``gained_seconds``."""
        return gained_seconds(self.base, wanted, {**self._gone, **(less or {})}, self.done)

    def forecast_remedy(
        self, text: str, wanted: Alteration, name: str = "", cost: str | None = None
    ) -> Remedy:
        """A remedy that saves what ``stash whatif`` says of ``wanted``."""
        return Remedy(text, self.saved_seconds(wanted), cost, name, asks=wanted)

    @property
    def epoch(self) -> RunAccount:
        """Without rows where there are no ledgers."""
        return self.breakdown.run or NO_ACCOUNT

    def place(self, row: str) -> SlowLine | None:
        """Where most of a ledger's row was seen."""
        return self.epoch.lines.of_row(row)

    def awaits_requests(self, stall: str) -> bool:
        """Whether most of a stall on data is the training thread's own wait for a server: reading, not preparing."""
        places = [place for place in self.epoch.places if place.row == INPUT]
        asking = sum(place.seconds for place in places if _REQUESTS.search(place.inside))
        return stall == "prep" and 2 * asking > sum(place.seconds for place in places)

    def name_place(self, row: str) -> str:
        """``" (train.py:88)"``; empty where the place of a row is unknown."""
        place = self.place(row)
        return "" if place is None else f" ({place.where})"

    def is_sure_to_save(self, wanted: Alteration) -> bool:
        """Whether steps are shorter so in 95 of 100 draws of what is uncertain; not where that is unknown."""
        try:
            before, after = (
                np.sum(
                    [part.seconds for part in stall_draws(self.base, change, self._gone).parts], 0
                )
                for change in (self.done, self.done.replace_facts(**wanted.facts))
            )
        except StashError:
            return False
        return bool(np.mean(after < before) >= _SURE)

    @property
    def _gone(self) -> dict[str, float]:
        return {} if self.removed is None else {self.removed: self.seconds(self.removed)}

    @cached_property
    def supply(self) -> Sufficiency | None:
        """What suffices for data not to be waited for, as ``stash whatif`` says it; ``None`` if unknown."""
        try:
            return assess_sufficiency(change_job(self.base, self.done), self._gone)
        except StashError:
            return None

    def seconds(self, *stalls: str) -> float:
        return self.breakdown.seconds(*stalls)

    @property
    def is_on_cpu(self) -> bool:
        return self.profile.is_on_cpu

    @property
    def loader(self) -> Loader | None:
        return self.profile.workload.loaders[0] if self.profile.workload.loaders else None

    @property
    def cores_per_rank(self) -> float | None:
        """Cores that each rank may use, on the node where they are scarcest."""
        counts = ranks_per_node(self.profile)
        shares = [
            threads / counts[node]
            for node, host in enumerate(self.profile.hosts)
            if (threads := usable_threads(host)) and counts.get(node)
        ]
        return min(shares, default=None)


def why_stall(case: Case, name: str) -> str | None:
    """Why there is a stall called ``name``, in a clause; ``None`` if nothing that was measured tells.

    Every claim follows from a number in the breakdown or the profile; where it is missing, the claim is not made.
    """
    slow = case.breakdown.slow_rank
    if name in DATA_STALLS:
        return _why_data_stall(case, name)
    seen = case.breakdown.seen
    if name == BUBBLE and seen is not None and seen.bubble is not None:
        parts = seen.bubble
        must = f"{format_seconds(parts.schedule)} of it is what the schedule must leave idle"
        if parts.slowest_ratio is None:
            return must
        slower = f"stage {parts.slowest_stage}, {parts.slowest_ratio:.2f} times as slow as the mean"
        return f"{must}, {format_seconds(parts.unequal)} is {slower}"
    if name in EXCHANGE_STALLS and seen is not None:
        most = seen.longest_wait(name)
        if most is None:
            return None
        share = "" if most.hidden is None else f", {most.hidden:.0%} hidden"
        return f"most is {most.kind} of the group {most.name}{share}"
    if case.epoch.is_mostly_own_collectives(name):
        return "most of it are collectives that the script calls by itself, the slowest there"
    if name in EXCHANGE_STALLS:
        return _why_exchange(case.breakdown.communication)
    if name == "contention" and slow:
        return f"all wait for rank {slow.rank}, which is {slower_text(slow)}"
    if name == "contention" and has_unequal_batches(case.profile):
        return "each step waits for whichever rank has the longest batch"
    return None


def _why_data_stall(case: Case, name: str) -> str | None:
    rates = case.breakdown.rates
    if case.loader is not None and case.loader.workers == 0:
        asks = "; most of it waits for answers to requests" if case.awaits_requests(name) else ""
        return f"the loader has no workers (num_workers=0), so nothing is read or prepared while a step trains{asks}"
    limit, what = (rates.prep, "prepare") if name == "prep" else (rates.fetch, "read and prepare")
    if not rates.device or not limit or limit >= rates.device:
        return None
    return (
        f"the loaders {what} {format_pace(limit)} samples/s, the devices could train "
        f"{format_pace(rates.device)} samples/s"
    )


def _why_exchange(exchange: Communication) -> str | None:
    if not exchange.bytes:
        return None
    text = f"each device exchanges {format_bytes(exchange.bytes)} of gradients"
    total = exchange.total_seconds or 0.0
    latency, hidden = exchange.latency_seconds or 0.0, exchange.hidden_seconds or 0.0
    if latency > total / 2 > 0:
        text += f", of whose {format_seconds(total)} {format_seconds(min(latency, total))} pass whatever their size"
    elif exchange.wire_bytes_per_second:
        text += f" at {format_bits(exchange.wire_bytes_per_second)}"
    if hidden > 0.05 * total > 0:
        text += f", {hidden / total:.0%} of it behind the backward pass"
    return text
