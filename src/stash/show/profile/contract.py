"""The document that ``stash show --json`` prints: a contract with other programs, see docs/format.md.

Rounds the breakdown sensibly and keeps its sums; what is not known is null. New keys may be added under
the same ``schema``; removing one or changing its meaning raises it.
"""

from __future__ import annotations

from typing import Any

from stash.base.words.rounding import round_to_sum, significant_decimals
from stash.derive.advise import Advice
from stash.derive.stalls import Breakdown

SCHEMA = 1
SECONDS_DIGITS = 6


def document(breakdown: Breakdown, advice: Advice) -> dict[str, Any]:
    """Keys in the order of the contract; ``stalls[].seconds`` add up to ``step_seconds``."""
    decimals = significant_decimals(breakdown.step_seconds, SECONDS_DIGITS)
    seconds = round_to_sum([stall.seconds for stall in breakdown.stalls], decimals)
    shares = round_to_sum([stall.share for stall in breakdown.stalls], 4)
    stalls = [
        {
            "name": stall.name,
            "seconds": rounded,
            "low": _rounded(stall.low, decimals),
            "high": _rounded(stall.high, decimals),
            "share": share,
            "within_noise": stall.within_noise,
            "method": _significant(stall.method),
        }
        for stall, rounded, share in zip(breakdown.stalls, seconds, shares, strict=True)
    ]
    paper = {key: _rounded(value, 1) for key, value in breakdown.paper.model_dump().items()}
    return {
        "schema": SCHEMA,
        "step_seconds": round(sum(seconds), decimals),
        "samples_per_second": _significant(breakdown.samples_per_second),
        "rounds": breakdown.rounds,
        "world_size": breakdown.world_size,
        "nodes": breakdown.nodes,
        "stalls": stalls,
        "skipped": [missing.model_dump() for missing in breakdown.skipped],
        "paper": paper,
        "stability": {"ok": breakdown.stability.ok, "warnings": list(breakdown.stability.warnings)},
        "verdict": {
            "stall": advice.stall,
            "text": advice.text,
            "next_steps": list(advice.next_steps),
            "kind": advice.kind,
            "stalls": list(advice.stalls),
            "open": [{"name": stall.name, "high": _rounded(stall.high, decimals)} for stall in advice.open],
            "budget_seconds": advice.budget_seconds,
        },
        **_beyond_the_contract(breakdown),
    }


def _beyond_the_contract(breakdown: Breakdown) -> dict[str, Any]:
    return {
        "step_low": _significant(breakdown.step.low, SECONDS_DIGITS),
        "step_high": _significant(breakdown.step.high, SECONDS_DIGITS),
        "rounds_dropped": breakdown.rounds_dropped,
        "rungs": list(breakdown.rungs),
        "rates": _all_significant(breakdown.rates.model_dump()),
        "communication": _all_significant(breakdown.communication.model_dump()),
        "slow_rank": _all_significant(breakdown.slow_rank.model_dump()) if breakdown.slow_rank else None,
        "surfacing": [_all_significant(item.model_dump()) for item in breakdown.surfacing],
        "startup_seconds": _significant(breakdown.startup_seconds),
        "notes": list(breakdown.notes),
        "samples_per_step": _significant(breakdown.samples_per_step),
        "waits": _all_significant(breakdown.waits.model_dump()),
    }


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


def _significant(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _all_significant(record: dict[str, Any]) -> dict[str, Any]:
    return {key: _significant(value) if isinstance(value, float) else value for key, value in record.items()}
