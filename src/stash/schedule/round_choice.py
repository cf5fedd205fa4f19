"""Which jobs run in the next round, and on which type: Gavel's mechanism, by shares received so far.

Pure: from shares, time received since they were computed, and free GPUs, to a choice. Places are ``placement``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stash.schedule.records import Floats, WholeNumbers


def priorities(x: Floats, received: Floats, round_seconds: float) -> Floats:
    """x[j, t] over the time received there since the shares changed, half a round for none (Gavel, section 5)."""
    return np.asarray(x / (received + round_seconds / 2), dtype=float)


def ordered(
    priority: Floats, allowed: NDArray[np.bool_], tie: Floats | WholeNumbers, types: Sequence[int] | None = None
) -> WholeNumbers:
    """Entries j·T + t, highest priority first, ties by ``tie``; those not ``allowed`` left out.

    ``types``: all entries of the first type before those of the second, as Gavel's code has it without its global
    queue.
    """
    if types is not None:
        turns = np.lexsort((-tie, -priority), axis=0) * len(types) + np.arange(len(types))
        entries = turns.T.take(types, 0).ravel()
        return np.asarray(entries[allowed.take(entries)], dtype=np.int64)
    entries = np.flatnonzero(allowed)
    return np.asarray(entries[np.lexsort((-tie.take(entries), -priority.take(entries)))], dtype=np.int64)


def chosen(order: WholeNumbers, gpus: WholeNumbers, counts: Sequence[int]) -> dict[int, int]:
    """The type of each job that runs: entries in turn, one type a job, while the gang fits what is left."""
    left = list(counts)
    found: dict[int, int] = {}
    jobs, kinds = np.divmod(order, len(left))
    for job, kind, size in zip(jobs.data, kinds.data, gpus.take(jobs).data, strict=True):
        if size <= left[kind] and job not in found:
            found[job] = kind
            left[kind] -= size
            if len(found) == len(gpus) or not any(left):
                break
    return found
