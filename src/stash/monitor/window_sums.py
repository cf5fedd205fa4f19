"""Windows of a record as one, and what their parts are called where a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

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
    steps = sum(weights)
    taken = 0
    upto = 0
    for window in windows:  # a job that was started again counts from 1
        taken += window.last_step - (
            upto if 0 < upto < window.first_step else window.first_step - 1
        )
        upto = window.last_step

    def mean(values: Sequence[float | None]) -> float | None:
        known = [
            (value, weight)
            for value, weight in zip(values, weights, strict=True)
            if value is not None
        ]
        return sum(v * w for v, w in known) / sum(w for _, w in known) if known else None

    late: dict[tuple[int, str, int | None], float] = {}
    for window, weight in zip(windows, weights, strict=True):
        for each in window.stragglers:
            key = each.rank, each.stage, each.node
            late[key] = late.get(key, 0.0) + each.seconds * weight / steps
    ranked = sorted(late.items(), key=lambda each: -each[1])[:_MOST_LATE]
    names = [name for name in STALLS if any(name in window.stalls for window in windows)]
    last = windows[-1]
    return last.model_copy(
        update={
            "began": windows[0].began,
            "seconds": sum(window.seconds for window in windows),
            "first_step": last.last_step - taken + 1,
            "steps": sum(window.steps for window in windows),
            "step_seconds": sum(w.step_seconds * n for w, n in zip(windows, weights, strict=True))
            / steps,
            "stalls": {
                name: mean([window.stalls.get(name, 0.0) for window in windows]) for name in names
            },
            "stragglers": tuple(
                LateRank(rank=rank, stage=stage, seconds=value, node=node)
                for (rank, stage, node), value in ranked
            ),
            "delay": mean([window.delay for window in windows]),
            "ambiguous": any(window.ambiguous for window in windows),
        }
    )
