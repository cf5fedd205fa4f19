"""Whether data blocks were what their rung says: cold ones evicted and read from storage, warm ones from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.core import pagecache
from stash.core.pagecache import PAGE
from stash.measure.agent.data import holding, reads
from stash.measure.agent.data.reads import COLD, Tally
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.wire import crosses

# Proof -----------------------------------------------------------------------------------------------------
# Whether a data block was what its rung says: a cold one read from storage, a warm one from memory. Pure.
#
# Two witnesses are heard, and in every round. The page cache tells what was resident of the files that were seen
# being opened or held. The kernel's counters of the processes tell how much they read, and how much of it came from
# storage, whoever opened the files. What C code maps again for each sample, out of the cache, neither of them shows.

_NEGLIGIBLE = 0.1
"""Of what was read, or of the pages: less than that from the wrong place changes no stall that matters."""


@crosses
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


def why_not_cold(ranks: Sequence[CacheEvidence]) -> str | None:
    """Why a cold block's time says nothing of storage; None if what it read came from there."""
    foreign = next((each for each in ranks if _reads_foreign(each)), None)
    if foreign is not None:
        return f"the data lie on {foreign.file_system}, which has a cache of its own that Stash cannot empty"
    worst = max((each.resident / each.pages for each in ranks if each.pages), default=0.0)
    if worst > _NEGLIGIBLE:
        return f"{worst:.0%} of the pages stayed in memory after eviction (a RAM disk, or other processes map them?)"
    called, storage = _sum([each.called for each in ranks]), _sum([each.storage for each in ranks])
    if called is None or storage is None:
        return None if any(each.pages for each in ranks) else _UNSEEN
    cached = called - storage - sum(each.heads for each in ranks)
    if cached > max(_NEGLIGIBLE * called, PAGE * sum(each.batches for each in ranks)):
        return (
            f"{cached / called:.0%} of the bytes that the loader read came from memory, although every file that "
            "was seen was out of it (does C code open others? Then pass --data-root)"
        )
    known = any(each.files or each.pages for each in ranks)
    least = 1 if known else max(1, PAGE * sum(each.batches for each in ranks))
    return None if storage >= least else _UNSEEN


def why_not_warm(warm: Sequence[CacheEvidence], cold: Sequence[CacheEvidence]) -> str | None:
    """Why a warm block's time contains reading; None if what it read was in memory.

    Beside the ``cold`` block of the same samples, if there was one: of what is mapped, nothing is called.
    """
    storage = _sum([each.storage for each in warm])
    whole = _sum([each.storage for each in cold] if cold else [each.called for each in warm])
    if storage is None or whole is None or storage <= max(_NEGLIGIBLE * whole, PAGE * sum(e.batches for e in warm)):
        return None
    beside = "of what it fetched with files out of memory" if cold else "of all that it read"
    return f"the loader read {storage / whole:.0%} {beside} from storage: memory does not keep this job's data"


_UNSEEN = (
    "no file was seen being read by the loader (data in memory, an object store, or C code "
    "that opens files itself: then pass --data-root)"
)


def _reads_foreign(rank: CacheEvidence) -> bool:
    read = max(rank.called or 0, rank.storage or 0)
    return rank.file_system is not None and rank.foreign > _NEGLIGIBLE * read


def _sum(values: Sequence[int | None]) -> int | None:
    """None if any is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


# Coldness --------------------------------------------------------------------------------------------------
# The two ends of a data block: counters from zero to what they tell, and cold ones begin out of the page cache.
#
# Files opened again for each batch are dropped when they are opened (``data/reading``). Those that stay open or
# mapped must be dropped beforehand, by ranks that agree: no page leaves the cache while any process maps it, and
# none may be read before all are gone.


def begin(rank: OwnRank, tally: Tally, mode: int, whole_folder: bool) -> None:
    """Collective over the ranks; their queues must be drained.

    ``whole_folder``: also drop, or count, all that lies below ``--data-root``.
    """
    tally.set_mode(mode)
    held = holding.let_go_everywhere(tally) if mode == COLD else []
    _meet(rank)
    if whole_folder and rank.orders.data_root and rank.place.local_rank == 0:
        held = [*reads.files_below(rank.orders.data_root), *held]
    counts = reads.examine_files(held, cold=mode == COLD)
    tally.add(0, {**counts, "held": counts["pages"] * pagecache.PAGE})
    _meet(rank)


def testimony(tally: Tally) -> CacheEvidence:
    """What was counted since the tally's mode was set."""
    totals = tally.totals()
    reported = not totals["not_reported"]
    return CacheEvidence(
        batches=totals["batches"],
        files=totals["files"],
        heads=totals["heads"],
        pages=totals["pages"],
        resident=totals["resident"],
        foreign=totals["foreign"],
        file_system=tally.file_system,
        called=totals["called"] if reported else None,
        storage=totals["storage"] if reported else None,
    )


def _meet(rank: OwnRank) -> None:
    rank.agree(None, lambda reports: None)
