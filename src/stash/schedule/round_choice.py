"""Which jobs run in the next round, and on which type: Gavel's mechanism, by shares received so far.

Pure: from shares, time received since they were computed, and free GPUs, to a choice. Places are ``placement``'s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.schedule.records import Floats, WholeNumbers


def priorities(x: Floats, received: Floats, round_seconds: float) -> Floats:
    """x[j, t] over the time received there since the shares changed, half a round for none (Gavel, section 5)."""
    return np.asarray(x / (received + round_seconds / 2), dtype=float)


def ordered(priority: Floats, allowed: Floats | None, tie: Floats, types: Sequence[int] | None = None) -> list[int]:
    """Entries j·T + t, highest priority first, ties by ``tie``; those not ``allowed`` left out.

    ``types``: all entries of the first type before those of the second, as Gavel's code has it without its global
    queue.
    """
    number = priority.shape[1]
    flat, second = priority.ravel(), tie.ravel()
    if types is None:
        order = np.lexsort((-second, -flat))
    else:
        place = np.argsort(np.asarray(types))
        order = np.lexsort((-second, -flat, np.tile(place, len(priority))))
    assert number
    if allowed is not None:
        order = order[allowed.ravel()[order] > 0]
    return [int(each) for each in order]


def chosen(order: Sequence[int], gpus: WholeNumbers, counts: Sequence[int]) -> dict[int, int]:
    """The type of each job that runs: entries in turn, one type a job, while the gang fits what is left."""
    types, left = len(counts), [int(each) for each in counts]
    sizes = [int(each) for each in gpus]
    found: dict[int, int] = {}
    open_types = sum(each > 0 for each in left)
    for entry in order:
        job, kind = divmod(entry, types)
        size = sizes[job]
        if size <= left[kind] and job not in found:
            found[job] = kind
            left[kind] -= size
            if not left[kind]:
                open_types -= 1
                if not open_types:
                    break
    return found
