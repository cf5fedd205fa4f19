"""A plan and what was measured of it, side by side: as text for a terminal, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.analysis.comparison import FASTER, SLOWER, STEP
from stash.analysis.limits import FAILS, overall
from stash.core.formatting import dollars, dollars_interval, listed, plus_minus, span, span_interval, span_scale
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, counted, scale_for
from stash.plan.checking import AS_PLANNED, CheckedLine, PlanCheck
from stash.plan.records import RentalPlan
from stash.plan.residuals import Residual
from stash.report.comparison_page import STYLES, widest_that_fits
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

# Checked ---------------------------------------------------------------------------------------------------
# A plan and what was measured of it made ready to be shown: every string that a renderer needs.
#
# All times of a step in the unit of the step, those of the whole in hours. Knows nothing of terminals or colours.


@dataclass(frozen=True)
class CheckedRow:
    """One line of the table of stalls."""

    name: str
    planned: str
    planned_spread: str
    measured: str
    measured_spread: str
    change: str
    origin: str
    word: str


@dataclass(frozen=True)
class CheckedPlanView:
    """Everything that is said of a plan beside a later profile, in the order in which it is said."""

    title: str
    choice: str
    verdict: str
    unit: str
    rows: tuple[CheckedRow, ...]
    totals: tuple[tuple[str, str, bool], ...]
    """Time and cost of the whole: label, text, and whether a wish is broken."""
    failed: tuple[str, ...]
    """Assumptions."""
    notes: tuple[str, ...]
    again: str
    """How to give it back."""


def checked_view(plan: RentalPlan, check: PlanCheck, files: tuple[str, str]) -> CheckedPlanView:
    """The view of a check of the plan in the first of ``files`` with the profile in the second."""
    values = [part.value for line in check.lines for part in (line.planned, line.measured) if part is not None]
    scale = scale_for(max(values), SECONDS, 4)
    return CheckedPlanView(
        title=plan.workload,
        choice=f"{check.by}; the plan is of {plan.created[:10]}",
        verdict=_verdict(check, scale),
        unit=scale.unit,
        rows=tuple(_row(line, scale) for line in check.lines),
        totals=tuple(_totals(plan, check)),
        failed=check.assumptions,
        notes=tuple(_notes(check)),
        again=_again(check, files),
    )


def _row(line: CheckedLine, scale: Scale) -> CheckedRow:
    apart = line.change
    return CheckedRow(
        name=line.name,
        planned=_number(line.planned, scale, "none"), planned_spread=_spread(line.planned, scale),
        measured=_number(line.measured, scale, "unknown"), measured_spread=_spread(line.measured, scale),
        change="" if apart is None else f"{_signed(apart, scale)} {plus_minus(apart, scale)}",
        origin=line.origin or "",
        word=line.why if line.why and line.name != STEP else line.verdict,
    )  # fmt: skip


def _number(found: Interval | None, scale: Scale, without: str) -> str:
    return without if found is None else scale.number(found.value)


def _spread(found: Interval | None, scale: Scale) -> str:
    return "" if found is None else plus_minus(found, scale)


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
    said = {
        SLOWER: f"Slower than planned: the step is off by {amount}",
        FASTER: f"Faster than planned: the step is off by {amount}",
        AS_PLANNED: f"As planned: the step is within the plan's interval ({amount})",
    }
    words = said.get(step.verdict, f"It is unknown whether the step is as planned ({amount})")
    return f"{words}; {held}."


def _totals(plan: RentalPlan, check: PlanCheck) -> Iterator[tuple[str, str, bool]]:
    verdicts = {decision.limit: decision.verdict for decision in check.decisions}
    scale = span_scale(check.choice.seconds.value)
    time = f"planned {span_interval(check.choice.seconds, scale)}, at this step {span_interval(check.seconds, scale)}"
    if plan.goal.deadline_seconds is not None:
        time += f"; the deadline of {span(plan.goal.deadline_seconds)}: {verdicts['deadline']}"
    yield "time", time, verdicts.get("deadline") == FAILS
    cost = f"planned {dollars_interval(check.choice.dollars)}, at this step {dollars_interval(check.dollars)}"
    if plan.goal.budget_dollars is not None:
        cost += f"; the budget of {dollars(plan.goal.budget_dollars)}: {verdicts['budget']}"
    yield "cost", cost, verdicts.get("budget") == FAILS
    yield "so far", f"measuring took {span(check.spent_seconds)}, {dollars(check.spent_dollars)} at that price", False


def _notes(check: PlanCheck) -> Iterator[str]:
    price = check.choice.rented.price
    if price.paid_as == "spot":
        paid = dollars(check.choice.rented.dollars_per_hour)
        yield f"The cost is at the plan's spot price ({paid}/h), which moves."
    if check.exact:
        yield f"Taken exactly as planned, since the plan knows no spread of it: {listed(check.exact)}."
    if check.choice.beyond:
        yield f"The plan had said that it goes beyond what was calibrated: {'; '.join(check.choice.beyond)}."
    if not check.residuals.found and check.residuals.left_out:
        yield f"Nothing of this can be given back to forecasts: {'; '.join(check.residuals.left_out)}."


def _again(check: PlanCheck, files: tuple[str, str]) -> str:
    if not check.residuals.found:
        return ""
    how = ", ".join(_turned_out(each) for each in check.residuals.found)
    pair = shlex.quote(f"{files[0]}:{files[1]}")
    return f"Measured over planned: {how}; give this to later forecasts with --calibrate-with {pair}"


def _turned_out(each: Residual) -> str:
    return f"{each.stall} × {each.ratio:.2f}"


# Checked contract ------------------------------------------------------------------------------------------
# The document that ``stash check-plan --json`` prints: a contract, see docs/format.md.

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
        "told": len(check.decidable),
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


# Checked terminal ------------------------------------------------------------------------------------------
# A plan and what was measured of it as text for a terminal: the verdict, the stalls side by side, what failed.


def _report(view: CheckedPlanView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold")
    return [
        head, *paragraph(view.choice, width, "", "", dim=True),
        Text(), *paragraph(view.verdict, width, "", "", bold=True),
        Text(), *_table(view, width), Text(), *_total_lines(view, width), *_failed(view, width), *_end(view, width),
    ]  # fmt: skip


render_checked: Renderer[CheckedPlanView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole check."""


def _table(view: CheckedPlanView, width: int) -> list[Text]:
    """As much of each line as fits: first origins go, then the two sides' own spread."""
    heads = CheckedRow("", "planned", "", f"measured, {view.unit}", "", "change", "planned from", "")
    layouts = (_whole, _without_origin, _without_spread)
    return widest_that_fits([[shown(row) for row in (heads, *view.rows)] for shown in layouts], width)


def _whole(row: CheckedRow) -> tuple[str, ...]:
    name, planned, measured, change, word = _without_origin(row)
    return (name, planned, measured, change, row.origin, word)


def _without_origin(row: CheckedRow) -> tuple[str, ...]:
    planned, measured = f"{row.planned} {row.planned_spread}", f"{row.measured} {row.measured_spread}"
    return (row.name, planned.strip(), measured.strip(), row.change, row.word)


def _without_spread(row: CheckedRow) -> tuple[str, ...]:
    return (row.name, row.planned, row.measured, row.change, row.word)


def _total_lines(view: CheckedPlanView, width: int) -> Iterator[Text]:
    labels = max(len(label) for label, _, _ in view.totals) + 2
    for label, text, broken in view.totals:
        yield from paragraph(text, width, label.ljust(labels), STYLES[SLOWER] if broken else "dim")


def _failed(view: CheckedPlanView, width: int) -> Iterator[Text]:
    if view.failed:
        yield Text()
        yield Text(" " * INDENT).append("What the plan took for granted and was not so", style="bold")
    for sentence in view.failed:
        yield from paragraph(sentence, width, "- ", "dim")


def _end(view: CheckedPlanView, width: int) -> Iterator[Text]:
    if view.notes or view.again:
        yield Text()
    for note in view.notes:
        yield from paragraph(note, width, "! ", "dim")
    if view.again:
        yield from paragraph(view.again, width, "", "", dim=True)
