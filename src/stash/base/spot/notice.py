"""A notice: somebody said that this machine will be taken away, may be, or will not be after all.

Made where machines are watched, read where training reacts. Standard library only: it lives beside training.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

NoticeKind = Literal["revoked", "at risk", "withdrawn"]
"""*revoked*: the machine goes. *at risk*: it may go sooner than others. *withdrawn*: what was announced is off."""
NoticeSource = Literal["aws", "aws rebalance", "gcp", "azure", "SIGTERM"]


class Notice(NamedTuple):
    """One of them."""

    kind: NoticeKind
    at: float
    """Seconds since 1970 by this machine's clock: when it was heard."""
    deadline: float | None
    """When the machine may be gone, by this machine's clock; ``None``: nobody says."""
    source: NoticeSource
