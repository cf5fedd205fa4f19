"""A plan and what was measured of it, side by side, as a page and as JSON.

Times of a step are in the unit of the step, those of the whole in hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stash.analysis.comparison import FASTER, SLOWER, STEP
from stash.analysis.limits import overall
from stash.core.formatting import dollars, dollars_interval, listed, plus_minus, span, span_interval, span_scale
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, counted, scale_for
from stash.plan.checking import AS_PLANNED, CheckedLine, PlanCheck
from stash.plan.records import RentalPlan
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page


def page(plan: RentalPlan, check: PlanCheck) -> Page:
    """Show what became of a plan."""
    values = [part.value for line in check.lines for part in (line.planned, line.measured) if part is not None]
    scale = scale_for(max(values), SECONDS, 4)
    return Page(
        title=plan.workload,
        subtitle=(check.by, f"the plan is of {plan.created[:10]}"),
        verdict=(_verdict(check, scale),),
        grids=(
            Grid(
                title="",
                head=("planned", "95%", f"measured, {scale.unit}", "95%", "change", "planned from", ""),
                rows=tuple(_row(line, scale) for line in check.lines),
                texts=frozenset({0, 2, 4, 6, 7}),
                first="stall",
                ranks=(0, 0, 2, 0, 2, 0, 3, 0),
            ),
        ),
        warnings=tuple(_notes(check)),
        chapters=(
            Chapter("whole", "The whole", facts=tuple(_totals(plan, check)), brief=True),
            *((Chapter("failed", "What the plan took for granted and was not so", points=check.assumptions,
                       brief=True),) if check.assumptions else ()),
        ),
    )  # fmt: skip


def _row(line: CheckedLine, scale: Scale) -> tuple[str, ...]:
    planned, measured, apart = line.planned, line.measured, line.change
    return (
        line.name,
        "none" if planned is None else scale.number(planned.value),
        "" if planned is None else plus_minus(planned, scale),
        "unknown" if measured is None else scale.number(measured.value),
        "" if measured is None else plus_minus(measured, scale),
        "" if apart is None else f"{_signed(apart, scale)} {plus_minus(apart, scale)}",
        line.origin or "",
        line.why if line.why and line.name != STEP else line.verdict,
    )


def _signed(apart: Interval, scale: Scale) -> str:
    return f"{apart.value / scale.size:+,.{scale.decimals}f}"


def _verdict(check: PlanCheck, scale: Scale) -> str:
    step, apart = check.step, check.step.change
    assert step.planned is not None, "every choice has a step"
    assert apart is not None, "every choice and every profile has a step"
    amount = (
        f"{_signed(apart, scale)} {plus_minus(apart, scale)} {scale.unit}, {apart.value / step.planned.value:+.1%}"
    )
    held = f"{len(check.held)} of {counted(len(check.decidable), 'interval')} of the plan held"
    amount += f", {step.why}" if step.why else ""
    sentences = {
        SLOWER: f"Slower than planned: the step is off by {amount}",
        FASTER: f"Faster than planned: the step is off by {amount}",
        AS_PLANNED: f"As planned: the step is within the plan's interval ({amount})",
    }
    words = sentences.get(step.verdict, f"It is unknown whether the step is as planned ({amount})")
    return f"{words}; {held}."


def _totals(plan: RentalPlan, check: PlanCheck) -> Iterator[tuple[str, str]]:
    verdicts = {decision.limit: decision.verdict for decision in check.decisions}
    scale = span_scale(check.choice.seconds.value)
    time = f"planned {span_interval(check.choice.seconds, scale)}, at this step {span_interval(check.seconds, scale)}"
    if plan.goal.deadline_seconds is not None:
        time += f"; the deadline of {span(plan.goal.deadline_seconds)}: {verdicts['deadline']}"
    yield "time", time
    cost = f"planned {dollars_interval(check.choice.dollars)}, at this step {dollars_interval(check.dollars)}"
    if plan.goal.budget_dollars is not None:
        cost += f"; the budget of {dollars(plan.goal.budget_dollars)}: {verdicts['budget']}"
    yield "cost", cost
    yield "so far", f"measuring took {span(check.spent_seconds)}, {dollars(check.spent_dollars)} at that price"


def _notes(check: PlanCheck) -> Iterator[str]:
    price = check.choice.rented.price
    if price.paid_as == "spot":
        paid = dollars(check.choice.rented.dollars_per_hour)
        yield f"The cost is at the plan's spot price ({paid}/h), which moves."
    if check.exact:
        yield f"Taken exactly as planned, since the plan knows no spread of it: {listed(check.exact)}."
    if check.choice.beyond:
        yield f"The plan had said that it goes beyond what was calibrated: {'; '.join(check.choice.beyond)}."


# The document that ``stash check PLAN RUN --json`` prints: a contract, see docs/format.md.

SCHEMA = 1


def document(plan: RentalPlan, check: PlanCheck) -> dict[str, Any]:
    """Write one check as JSON; seconds and dollars; what is not known is null."""
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
        "told": len(check.decidable),
        "seconds": {"planned": _ends(check.choice.seconds), "measured": _ends(check.seconds)},
        "dollars": {"planned": _ends(check.choice.dollars), "measured": _ends(check.dollars)},
        "spent": {"seconds": check.spent_seconds, "dollars": check.spent_dollars},
        "assumptions": list(check.assumptions),
        "exact": list(check.exact),
    }


def _line(line: CheckedLine) -> dict[str, Any]:
    ends = {name: _ends(getattr(line, name)) for name in ("planned", "measured", "change")}
    return {"name": line.name, **ends, "origin": line.origin, "verdict": line.verdict, "why": line.why}


def _ends(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else interval.model_dump(include={"value", "low", "high"})
