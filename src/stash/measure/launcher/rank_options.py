"""torchrun's own five options, shared by commands that start ranks."""

from __future__ import annotations

from dataclasses import dataclass

from stash.core import parsers
from stash.ui.options import Options, option

_RANKS = "Ranks (as torchrun's)"


@dataclass(frozen=True, kw_only=True)
class LocalRankOptions(Options):
    """That of torchrun's options which is about one machine."""

    nproc_per_node: int | None = option(
        "N", "Start N ranks (default: one per GPU, 2 on CPUs).", parsers.whole(1), panel=_RANKS
    )


@dataclass(frozen=True, kw_only=True)
class RankOptions(LocalRankOptions):
    """torchrun's own options."""

    nnodes: int | None = option(
        "N", "Use N machines; run the same command on each.", parsers.whole(1), panel=_RANKS
    )
    node_rank: int | None = option(
        "K", "Number this machine, from 0.", parsers.whole(0), panel=_RANKS
    )
    rdzv_endpoint: str | None = option(
        "HOST:PORT", "Meet at this address of machine 0.", panel=_RANKS
    )
    rdzv_id: str | None = option(
        "SECRET", "Use the same id on all machines, instead of --node-rank.", panel=_RANKS
    )


COMMON_OF_RANKS = ("nproc_per_node", "nnodes", "node_rank", "rdzv_endpoint")
"""Those that ``--help`` always shows."""
