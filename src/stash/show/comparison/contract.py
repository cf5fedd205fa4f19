"""The documents that ``stash compare --json`` and ``stash check --json`` print: contracts, see docs/format.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stash.base.stats.intervals import Interval
from stash.derive.comparison import Decision, DifferingFact, RunComparison

SCHEMA = 1
_DIGITS = 6


def document(
    comparison: RunComparison,
    names: tuple[str, Sequence[str], Sequence[str]],
    changed: Sequence[DifferingFact],
    different: Sequence[DifferingFact] = (),
    network: Interval | None = None,
) -> dict[str, Any]:
    """Of one comparison; seconds per step, samples per second, fractions; what is not known is null."""
    workload, before, after = names
    return {
        "schema": SCHEMA,
        "workload": workload,
        "before": list(before),
        "after": list(after),
        "verdict": comparison.step.verdict,
        "lines": [
            {
                "name": line.name, "before": _ends(line.before), "after": _ends(line.after),
                "change": _ends(line.change), "verdict": line.verdict,
            }
            for line in comparison.lines
        ],
        "only_before": list(comparison.only_before),
        "only_after": list(comparison.only_after),
        "changed": [fact.model_dump() for fact in changed],
        "different": [fact.model_dump() for fact in different],
        "network_stall": None if network is None else _ends(network),
    }  # fmt: skip


def decisions(found: Sequence[Decision], verdict: str) -> dict[str, Any]:
    """Of one check: every limit, and the verdict over all."""
    return {"schema": SCHEMA, "verdict": verdict, "limits": [decision.model_dump() for decision in found]}


def _ends(interval: Interval) -> dict[str, float | None]:
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: None if end is None else float(f"{end:.{_DIGITS}g}") for name, end in ends.items()}
