"""Windows of a record as one, and what their parts are called where a person reads them. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from stash.monitor.accounting import STALLS
from stash.monitor.records import Alert, Header, LateRank, Window

_MOST_LATE = 8


def row_name(stall: str, nodes: int = 1) -> str:
    """What a profile calls it; of stalls that only a profile tells apart, all their names."""
    names = {
        "exchange": "interconnect + network" if nodes > 1 else "interconnect",
        "input": "prep + fetch",
        "other": "between steps",
    }
    return names.get(stall, stall)


def alert_name(alert: Alert, nodes: int) -> str:
    """What it is about."""
    return alert.what if alert.stall is None else row_name(alert.stall, nodes)


def inapplicable_stalls(header: Header) -> tuple[str, ...]:
    """Stalls that such a job cannot have."""
    alone = ("contention", "exchange") if header.ranks == 1 else ()
    return (*(("transfer",) if header.device == "cpu" else ()), *alone)


def sum_windows(windows: Sequence[Window]) -> Window | None:
    """All windows as one, each step counting alike, the first counted back from the last; ``None`` of none."""
    if not windows:
        return None
    weights = [window.last_step - window.first_step + 1 for window in windows]
    taken = sum(weights)
    for before, after in itertools.pairwise(windows):  # a job that was started again counts from 1
        if 0 < before.last_step < after.first_step:
            taken += after.first_step - before.last_step - 1

    def mean(values: Iterable[float | None]) -> float | None:
        pairs = zip(values, weights, strict=True)
        known = [(value, weight) for value, weight in pairs if value is not None]
        return sum(v * w for v, w in known) / sum(w for _, w in known) if known else None

    late = Counter[tuple[int, str, int | None]]()
    for window, weight in zip(windows, weights, strict=True):
        for each in window.stragglers:
            late[each.rank, each.stage, each.node] += each.seconds * weight / sum(weights)  # type: ignore[assignment]
    names = [name for name in STALLS if any(name in window.stalls for window in windows)]
    last = windows[-1]
    return last.model_copy(
        update={
            "began": windows[0].began,
            "seconds": sum(window.seconds for window in windows),
            "first_step": last.last_step - taken + 1,
            "steps": sum(window.steps for window in windows),
            "step_seconds": mean(window.step_seconds for window in windows),
            "stalls": {
                name: mean(window.stalls.get(name, 0.0) for window in windows) for name in names
            },
            "stragglers": tuple(
                LateRank(rank=rank, stage=stage, seconds=value, node=node)
                for (rank, stage, node), value in late.most_common(_MOST_LATE)
            ),
            "delay": mean(window.delay for window in windows),
            "ambiguous": any(window.ambiguous for window in windows),
        }
    )
