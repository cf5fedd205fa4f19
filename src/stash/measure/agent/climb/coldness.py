"""Beginning a data block: counters at zero, and in a cold block no data file in any node's page cache.

Files opened anew for each batch are dropped when they are opened (``data/reading``). Those that stay open or mapped
must be dropped beforehand, by ranks that agree: no page leaves the cache while any process maps it, and none may be
read before all are gone.
"""

from __future__ import annotations

from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.data import holding, reading
from stash.measure.agent.data.tally import COLD, Tally
from stash.measure.linux import pagecache


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
    tally.add(0, **counts, held=counts["pages"] * pagecache.PAGE)
    _meet(rank)


def _meet(rank: OwnRank) -> None:
    rank.agree(None, lambda reports: None)
