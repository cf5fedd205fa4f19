"""The leader's part after a block: whether it was what it claims, whether to go on, and how to size the next ones.

It hears every rank's report, and its outcome holds on all of them. How blocks are run is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stash.core.ladder import Visit
from stash.measure.agent.runner import alone, block_plan, cache_check
from stash.measure.agent.runner.block_plan import Plan
from stash.measure.agent.runner.cache_check import CacheEvidence
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.messages import BlockDone, Payload, RoundGivenUp, RungSkipped
from stash.measure.protocol.wire import crosses

_OVERRUN = 1.1
"""Of the budget: a round that ends by then is not given up."""
_PATIENCE = 5.0
"""How many times as long as was expected, or as was asked for, a first round may take."""
_ALWAYS = 30.0
"""Seconds that anybody waits for a first round, whatever was asked for."""
_NEXT_TO_NOTHING = 2.0
"""Seconds of a second opinion that are worth it whatever the budget is."""


@crosses
@dataclass(frozen=True)
class BlockReport:
    """What a rank hands in after a block."""

    block: Payload
    """Written down by the rank itself: the leader of many has enough to do."""
    seconds: float = 0.0
    """Of the block, so that the slowest is found without reading any."""
    testimony: CacheEvidence = field(default_factory=CacheEvidence)
    """Of a data block: what it read, and from where."""
    busy: float | None = None
    """Share of the time in which the loader's workers made batches, if it has any."""
    beside: tuple[Payload, ...] = ()
    """What else it tells of the block: memory that grew, what workers took."""


@crosses
@dataclass(frozen=True)
class Outcome:
    """What was decided after a block: stop here, leave a rung out from now on, or run the block again."""

    stop: bool = False
    drop: str | None = None
    again: bool = False
    sweep: bool = False
    """Try again with all files dropped beforehand that are known to hold many samples."""
    plan: Plan | None = None
    """Better sizes, for the block if it is run again, or else from the next round on."""
    alone: bool = False
    """There is time to take second opinions now."""
    last: bool = False
    """The round is the last one: another would end well after the budget does."""


class Judge:
    """Only the leader asks it; it goes by ``plan`` until blocks teach a better one."""

    def __init__(self, rank: OwnRank, plan: Plan) -> None:
        self._rank, self._first_plan, self._plan = rank, plan, plan
        self._began = rank.clock.now()
        self._busy = 0.0
        """Largest share of the time in which the loader's workers were at work."""
        self._cold: list[CacheEvidence] = []
        """Of the round's cold block; none where there was none."""
        self._swept = False
        self._steady = False
        """Storage was seen to go on as it begins."""
        self._credit_told = self._reading_told = False

    def decide(self, visit: Visit, number: int, reports: list[BlockReport | None], step: float) -> Outcome:
        """Write the block down, unless it is to be run again; each of its steps took ``step`` seconds."""
        rank = self._rank
        done = [report for report in reports if report is not None]
        why = self._disproved(visit, [report.testimony for report in done])
        first = number == rank.orders.first_round
        stop = rank.orders.files.stop.exists() or (first and self._is_hopeless())
        before = self._plan
        if visit.reads_data and first:
            self._learn_of_workers(done)
        longer = visit.feed == "cold" and why is None and not self._steady and self._learn_of_storage(done)
        sweep = visit.feed == "cold" and why is not None and self._may_sweep(done)
        again = first and not stop and (longer or sweep)
        if visit.measured and not again:
            rank.tell(*(told for report in done for told in (report.block, *report.beside)))
        drop = "cold" if why is not None and not again else None
        if drop is not None:
            rank.tell(RungSkipped(drop, str(why)))
        self._swept = self._swept or (again and sweep)
        better = None if self._plan == before else self._plan
        opinions = not (stop or again or drop) and self._has_time_for_second_opinions(visit, number, step)
        return Outcome(stop, drop, again, again and sweep, better, opinions, self._is_last(number))

    def _spent(self) -> float:
        return self._rank.clock.now() - self._began

    def _is_last(self, number: int) -> bool:
        """Whether another round like those so far would end well after the budget does."""
        orders, spent = self._rank.orders, self._spent()
        return orders.rounds is None and spent + spent / (number - orders.first_round + 1) > _OVERRUN * orders.budget

    def _is_hopeless(self) -> bool:
        """Whether the first round takes so much longer than the warm-up promised that nobody would wait for it."""
        limit = max(_ALWAYS, _PATIENCE * max(self._rank.orders.budget, self._first_plan.expected_seconds))
        if self._rank.orders.rounds is not None or self._spent() <= limit:
            return False
        self._rank.tell(RoundGivenUp(self._spent(), self._first_plan.expected_seconds))
        return True

    def _has_time_for_second_opinions(self, visit: Visit, number: int, step: float) -> bool:
        """They count among what the budget is for, unless they take next to nothing."""
        early = number < self._rank.orders.first_round + self._plan.alone_rounds
        if not early or not (visit.reads_data or visit.scope != "self"):
            return False
        wanted = alone.expected_steps(self._rank, visit, self._plan.size(visit)) * step
        if visit.feed == "warm" and "cold" in self._rank.orders.rungs:
            wanted *= 2  # the cold one, which was put off
        return wanted <= max(_NEXT_TO_NOTHING, self._rank.orders.budget - self._spent())

    def _disproved(self, visit: Visit, ranks: list[CacheEvidence]) -> str | None:
        """Why ``fetch`` cannot be told any more: this block was not cold, or it was to be warm and was not."""
        if visit.feed == "cold":
            self._cold = ranks
            return cache_check.why_not_cold(ranks)
        if visit.feed != "warm":
            return None
        why = cache_check.why_not_warm(ranks, self._cold)
        if why is not None and not self._reading_told:
            self._reading_told = True
            self._rank.note(f"prep contains reading from storage: in a warm block {why}")
        compared = bool(self._cold) or self._rank.orders.isolated  # else nobody tells fetch anyway
        self._cold = []
        return why if compared else None

    def _may_sweep(self, done: list[BlockReport]) -> bool:
        """Whether this attempt told which files hold many samples; of a folder's, all are dropped from now on."""
        seen = any(report.testimony.pages for report in done)
        return not self._swept and (seen or bool(self._rank.orders.data_root))

    def _learn_of_workers(self, done: list[BlockReport]) -> None:
        """How long data blocks must settle, by the busiest workers of any data block."""
        self._busy = max([self._busy, *(report.busy for report in done if report.busy is not None)])
        queue = max(feed.depth / feed.per_step for feed in self._rank.feeds)
        self._plan = self._plan.settling(self._first_plan.settle_until_full(self._busy, queue))

    def _learn_of_storage(self, done: list[BlockReport]) -> bool:
        """How long cold blocks must be; whether this one was too short."""
        orders, plan = self._rank.orders, self._plan
        slowest = max(done, key=lambda report: report.seconds).block.message()
        assert isinstance(slowest, BlockDone)
        seen = block_plan.halves(slowest.step_seconds)
        if seen is None:
            return False
        if block_plan.proves_steady(plan.cold, plan.data, seen):
            self._steady = True
            self._plan = plan.with_cold(plan.data)
            return False
        better = block_plan.better(plan.cold, seen, plan.data, orders.budget, orders.most_steps)
        self._plan = plan.with_cold(better)
        if seen.on_credit and not self._credit_told:
            self._credit_told = True
            self._rank.note(block_plan.remark(seen, lengthened=better != plan.cold))
        return better != plan.cold
