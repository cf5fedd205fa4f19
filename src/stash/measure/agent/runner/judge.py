"""Whether a block was what its rung says, and what follows from it: going on, dropping a rung, better sizes.

Each rank reports; only the leader judges, and its outcome holds on all of them. A cold block must have read from
storage, a warm one from memory. Two witnesses say so in every round: the page cache, what was resident of the files
that were seen being opened or held, and the kernel's counters of the processes, how much they read and how much of it
came from storage, whoever opened the files. What C code maps again for each sample, out of the cache, neither shows.
How blocks are run is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stash.core.ladder import NOTHING_READ, Visit
from stash.core.measured import Block, Skipped
from stash.core.pagecache import PAGE
from stash.measure.agent.data import reads
from stash.measure.agent.data.tally import COLD, Tally
from stash.measure.agent.runner import block_plan
from stash.measure.agent.runner.block_plan import EXCHANGES_ALONE, Plan
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.messages import Payload, RoundGivenUp
from stash.measure.protocol.orders import FEWEST_ROUNDS, another_round_fits
from stash.measure.protocol.wire import register_record

_PATIENCE = 5.0
"""How many times as long as was expected, or as was asked for, a first round may take."""
_ALWAYS = 30.0
"""Seconds that a first round may take, whatever was asked for."""
_NEXT_TO_NOTHING = 2.0
"""Seconds of a second opinion that are worth it whatever the budget is."""
_NEGLIGIBLE = 0.1
"""Of what was read, or of the pages: less than that from the wrong place changes no stall that matters."""


@register_record
@dataclass(frozen=True)
class CacheEvidence:
    """What the processes that made one rank's batches counted over a whole data block."""

    batches: int = 0
    files: int = 0
    """Seen being opened."""
    heads: int = 0
    """Bytes at the beginning of those, as many as readers buffer: what is often read twice."""
    pages: int = 0
    """Of files seen whose residency is known."""
    resident: int = 0
    """Of those pages, in memory before they were read."""
    foreign: int = 0
    """Bytes of files on a file system with a cache of its own."""
    file_system: str | None = None
    """The name of that."""
    called: int | None = None
    """Bytes read through system calls; None where the kernel does not tell."""
    storage: int | None = None
    """Bytes fetched from storage."""


@register_record
@dataclass(frozen=True)
class BlockReport:
    """What a rank hands in after a block."""

    block: Payload
    """Written down by the rank itself: the leader of many has enough to do."""
    seconds: float = 0.0
    """Of the block, so that the slowest is found without reading any."""
    evidence: CacheEvidence = field(default_factory=CacheEvidence)
    """Of a data block: what it read, and from where."""
    busy: float | None = None
    """Share of the time in which the loader's workers made batches, if it has any."""
    beside: tuple[Payload, ...] = ()
    """What else it tells of the block: memory that grew, what workers took."""


@register_record
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
    """The leader's; it goes by ``plan`` until blocks teach a better one."""

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
        self._took: dict[int, float] = {}
        """Seconds that the blocks of each round took so far."""
        self._noted: set[str] = set()
        """Subjects that a note was written of."""

    def decide(
        self,
        visit: Visit,
        number: int,
        reports: list[BlockReport | None],
        step: float,
        round_took: float,
    ) -> Outcome:
        """Write the block down, unless it is to be run again; each of its steps took ``step`` seconds.

        ``round_took`` are the seconds of the round's blocks with this one.
        """
        rank = self._rank
        self._took[number] = round_took
        done = [report for report in reports if report is not None]
        why = self._why_disproved(visit, [report.evidence for report in done])
        first = number == rank.orders.first_round
        stop = rank.orders.files.stop.exists() or (first and self._is_hopeless())
        before = self._plan
        if visit.reads_data and first:
            self._learn_of_workers(done)
        longer = (
            visit.feed == "cold"
            and why is None
            and not self._steady
            and self._learn_of_storage(done)
        )
        sweep = visit.feed == "cold" and why is not None and self._may_sweep(done)
        again = first and not stop and (longer or sweep)
        if visit.measured and not again:
            rank.publish(*(each for report in done for each in (report.block, *report.beside)))
        drop = "cold" if why is not None and not again else None
        if drop is not None:
            rank.publish(Skipped(drop, str(why)))
        self._swept = self._swept or (again and sweep)
        better = None if self._plan == before else self._plan
        opinions = not (stop or again or drop) and self._has_time_for_second_opinions(
            visit, number, step
        )
        return Outcome(stop, drop, again, again and sweep, better, opinions, self._is_last())

    def _seconds_spent(self) -> float:
        return self._rank.clock.now() - self._began

    def _is_last(self) -> bool:
        """Whether another round would end well after the budget does."""
        orders = self._rank.orders
        return orders.rounds is None and not another_round_fits(
            self._seconds_spent(), [*self._took.values()], orders.budget
        )

    def _is_hopeless(self) -> bool:
        """Whether the first round takes so much longer than the warm-up promised that it is not worth waiting for."""
        limit = max(
            _ALWAYS, _PATIENCE * max(self._rank.orders.budget, self._first_plan.expected_seconds)
        )
        if self._rank.orders.rounds is not None or self._seconds_spent() <= limit:
            return False
        self._rank.publish(RoundGivenUp(self._seconds_spent(), self._first_plan.expected_seconds))
        return True

    def _has_time_for_second_opinions(self, visit: Visit, number: int, step: float) -> bool:
        """They count among what the budget is for, unless they take next to nothing."""
        early = number < self._rank.orders.first_round + self._plan.alone_rounds
        if not early or not (visit.reads_data or visit.scope != "self"):
            return False
        steps, feeds = 2 * EXCHANGES_ALONE, self._rank.feeds
        if visit.reads_data:
            alone = self._plan.alone_size(visit, max(feed.workers for feed in feeds))
            steps = alone.total_steps + max(feed.depth // feed.per_step for feed in feeds)
        wanted = steps * step
        if visit.feed == "warm" and "cold" in self._rank.orders.rungs:
            wanted *= 2  # the cold one, which was put off
        missing = max(0, FEWEST_ROUNDS - len(self._took)) * self._plan.round_seconds
        return wanted <= max(
            _NEXT_TO_NOTHING, self._rank.orders.budget - self._seconds_spent() - missing
        )

    def _why_disproved(self, visit: Visit, ranks: list[CacheEvidence]) -> str | None:
        """Why ``fetch`` is unknown from now on: this block was not cold, or it was to be warm and was not."""
        if visit.feed == "cold":
            self._cold = ranks
            return why_not_cold(ranks)
        if visit.feed != "warm":
            return None
        why = why_not_warm(ranks, self._cold)
        if why is not None:
            self._note_once("reading", f"prep contains reading from storage: in a warm block {why}")
        compared, self._cold = bool(self._cold), []
        return why if compared else None  # else fetch is unknown anyway

    def _may_sweep(self, done: list[BlockReport]) -> bool:
        """Whether this attempt showed which files hold many samples; of a folder's, all are dropped from now on."""
        seen = any(report.evidence.pages for report in done)
        return not self._swept and (seen or bool(self._rank.orders.data_root))

    def _learn_of_workers(self, done: list[BlockReport]) -> None:
        """How long data blocks must settle, by the busiest workers of any data block."""
        self._busy = max([self._busy, *(report.busy for report in done if report.busy is not None)])
        queue = max(feed.depth / feed.per_step for feed in self._rank.feeds)
        self._plan = self._plan.set_settle(self._first_plan.settle_until_full(self._busy, queue))

    def _learn_of_storage(self, done: list[BlockReport]) -> bool:
        """How long cold blocks must be; whether this one was too short."""
        orders, plan = self._rank.orders, self._plan
        slowest = max(done, key=lambda report: report.seconds).block.message()
        assert isinstance(slowest, Block)
        seen = block_plan.split_halves(slowest.step_seconds)
        if seen is None:
            return False
        if block_plan.proves_steady(plan.cold, plan.data, seen):
            self._steady = True
            self._plan = replace(plan, cold=plan.data)
            return False
        better = block_plan.next_cold_size(
            plan.cold, seen, plan.data, orders.budget, orders.most_steps
        )
        self._plan = replace(plan, cold=better)
        if seen.is_on_credit:
            self._note_once("credit", block_plan.credit_note(seen, lengthened=better != plan.cold))
        return better != plan.cold

    def _note_once(self, subject: str, text: str) -> None:
        if subject not in self._noted:
            self._noted.add(subject)
            self._rank.note(text)


def why_not_cold(ranks: Sequence[CacheEvidence]) -> str | None:
    """Why a cold block's time says nothing of storage; None if what it read came from there."""
    for each in ranks:
        if each.file_system is not None and each.foreign > _NEGLIGIBLE * max(
            each.called or 0, each.storage or 0
        ):
            return f"the data lie on {each.file_system}, which has a cache of its own that Stash cannot empty"
    worst = max((each.resident / each.pages for each in ranks if each.pages), default=0.0)
    if worst > _NEGLIGIBLE:
        return f"{worst:.0%} of the pages stayed in memory after eviction (a RAM disk, or other processes map them?)"
    called, storage = (
        _sum_known([each.called for each in ranks]),
        _sum_known([each.storage for each in ranks]),
    )
    if called is None or storage is None:
        return None if any(each.pages for each in ranks) else NOTHING_READ
    cached = called - storage - sum(each.heads for each in ranks)
    if cached > max(_NEGLIGIBLE * called, PAGE * sum(each.batches for each in ranks)):
        return (
            f"{cached / called:.0%} of the bytes that the loader read came from memory, although every file that "
            "was seen was out of it (does C code open others? Then pass --data-root)"
        )
    known = any(each.files or each.pages for each in ranks)
    least = 1 if known else max(1, PAGE * sum(each.batches for each in ranks))
    return None if storage >= least else NOTHING_READ


def why_not_warm(warm: Sequence[CacheEvidence], cold: Sequence[CacheEvidence]) -> str | None:
    """Why a warm block's time contains reading; None if what it read was in memory.

    Beside the ``cold`` block of the same samples, if there was one: of what is mapped, nothing is called.
    """
    storage = _sum_known([each.storage for each in warm])
    whole = _sum_known([each.storage for each in cold] if cold else [each.called for each in warm])
    if (
        storage is None
        or whole is None
        or storage <= max(_NEGLIGIBLE * whole, PAGE * sum(e.batches for e in warm))
    ):
        return None
    beside = "of what it fetched with files out of memory" if cold else "of all that it read"
    return f"the loader read {storage / whole:.0%} {beside} from storage: memory does not keep this job's data"


def _sum_known(values: Sequence[int | None]) -> int | None:
    """None if any is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def begin_data_block(rank: OwnRank, tally: Tally, mode: int, whole_folder: bool) -> None:
    """Begin to count what a data block reads, a cold one with its files out of the page cache.

    Collective over the ranks, whose queues must be drained. Files opened again for each batch are dropped when they
    are opened (``data/reads``). Those that stay open or mapped are dropped here: no page leaves the cache while any
    process maps it, and none may be read before all are gone. ``whole_folder``: also all below ``--data-root``.
    """
    tally.set_mode(mode)
    held = reads.let_go_everywhere(tally) if mode == COLD else []
    rank.agree(None, lambda reports: None)
    if whole_folder and rank.orders.data_root and rank.place.local_rank == 0:
        held = [*reads.files_below(rank.orders.data_root), *held]
    counts = reads.examine_files(held, cold=mode == COLD)
    tally.add(0, {**counts, "held": counts["pages"] * PAGE})
    rank.agree(None, lambda reports: None)


def evidence_of(tally: Tally) -> CacheEvidence:
    """What was counted since the tally's mode was set."""
    totals = tally.sum_counters()
    counted = {
        name: totals[name] for name in ("batches", "files", "heads", "pages", "resident", "foreign")
    }
    read = {} if totals["not_reported"] else {name: totals[name] for name in ("called", "storage")}
    return CacheEvidence(**counted, **read, file_system=tally.file_system)
