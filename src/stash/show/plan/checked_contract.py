"""The document that ``stash check-plan --json`` prints: a contract, see docs/format.md."""

from __future__ import annotations

from typing import Any

from stash.base.plan import RentalPlan
from stash.base.stats.intervals import Interval
from stash.derive.comparison import overall
from stash.derive.plan.checking import CheckedLine, PlanCheck

SCHEMA = 1


def checked_document(plan: RentalPlan, check: PlanCheck) -> dict[str, Any]:
    """Of one check; seconds and dollars; what is not known is null."""
    return {
        "schema": SCHEMA,
        "workload": plan.workload,
        "choice": check.choice.name,
        "standing": check.choice.standing,
        "by": check.by,
        "verdict": overall(check.decisions),
        "decisions": [decision.model_dump() for decision in check.decisions],
        "lines": [_line(line) for line in check.lines],
        "held": len(check.held),
        "told": len(check.told),
        "seconds": {"planned": _ends(check.choice.seconds), "measured": _ends(check.seconds)},
        "dollars": {"planned": _ends(check.choice.dollars), "measured": _ends(check.dollars)},
        "spent": {"seconds": check.spent_seconds, "dollars": check.spent_dollars},
        "assumptions": list(check.assumptions),
        "residuals": [{**each.model_dump(), "ratio": each.ratio} for each in check.residuals.found],
        "exact": list(check.exact),
        "left_out": list(check.residuals.left_out),
    }


def _line(line: CheckedLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "planned": _ends(line.planned),
        "measured": _ends(line.measured),
        "change": _ends(line.change),
        "origin": line.origin,
        "verdict": line.verdict,
        "why": line.why,
    }


def _ends(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {"value": interval.value, "low": interval.low, "high": interval.high}
