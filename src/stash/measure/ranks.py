"""torchrun's own options, and the cluster of machines like this one that they ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stash.measure.launcher.rank_options import COMMON_OF_RANKS, LocalRankOptions, RankOptions

if TYPE_CHECKING:
    from stash.measure.launcher.engines import Cluster

__all__ = ["COMMON_OF_RANKS", "LocalRankOptions", "RankOptions", "resolve_cluster"]


def resolve_cluster(options: RankOptions, ranks: bool = True) -> Cluster:
    """The cluster that these options ask for, of machines like this one; raises UserError.

    ``ranks`` says whether something is started once per device.
    """
    from stash.measure.host.gpus import count_gpus
    from stash.measure.launcher.engines import choose_cluster

    return choose_cluster(options, ranks, count_gpus(), len(os.sched_getaffinity(0)))
