"""The two ends of a data block: counters from zero to what they tell, and cold ones begin out of the page cache.

Files opened anew for each batch are dropped when they are opened (``data/reading``). Those that stay open or mapped
must be dropped beforehand, by ranks that agree: no page leaves the cache while any process maps it, and none may be
read before all are gone.
"""

from __future__ import annotations

from stash.base import pagecache
from stash.measure.agent.climb.proof import Testimony
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.data import holding, reading
from stash.measure.agent.data.tally import COLD, Tally


def begin(rank: OwnRank, tally: Tally, mode: int, whole_folder: bool) -> None:
    """Collective over the ranks; their queues must be drained.

    ``whole_folder``: also drop, or count, all that lies below ``--data-root``.
    """
    tally.set_mode(mode)
    held = holding.let_go_everywhere(tally) if mode == COLD else []
    _meet(rank)
    if whole_folder and rank.orders.data_root and rank.place.local_rank == 0:
        held = [*reading.files_below(rank.orders.data_root), *held]
    counts = reading.examine_files(held, cold=mode == COLD)
    tally.add(0, {**counts, "held": counts["pages"] * pagecache.PAGE})
    _meet(rank)


def testimony(tally: Tally) -> Testimony:
    """What was counted since the tally's mode was set."""
    totals = tally.totals()
    told = not totals["untold"]
    return Testimony(
        batches=totals["batches"],
        files=totals["files"],
        heads=totals["heads"],
        pages=totals["pages"],
        resident=totals["resident"],
        foreign=totals["foreign"],
        file_system=tally.file_system,
        called=totals["called"] if told else None,
        storage=totals["storage"] if told else None,
    )


def _meet(rank: OwnRank) -> None:
    rank.agree(None, lambda reports: None)
