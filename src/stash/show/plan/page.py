"""A plan as a page of the report: what to rent, cost against time, where the dollars go, and how they were found."""

from __future__ import annotations

from collections.abc import Iterator

from stash.base.errors import UserError
from stash.base.plan import Choice, Goal, RentalPlan
from stash.base.words.rental import chance, dollars, dollars_interval, span_interval
from stash.show.charts.chart import Blank
from stash.show.charts.files import content
from stash.show.grid import Grid
from stash.show.plan.charts import choices_table, cost_against_time, dollars_by_stall
from stash.show.plan.explain import DerivationLine, derivation
from stash.show.plan.view import label, place, question, rule_line, unranked, verdict
from stash.show.report.html import render
from stash.show.report.page import Chapter, Page

_WIDTH_MM = 170
_UNRANKED = 30


def picture(plan: RentalPlan, ending: str) -> str | bytes:
    """The content of a file with that ending: the whole page, or cost against time as a picture.

    Raises UserError where there is nothing to draw, or without vl-convert.
    """
    if ending == ".html":
        return render(page(plan))
    drawn = cost_against_time(plan)
    if isinstance(drawn, Blank):
        raise UserError(f"--output *{ending}: there is nothing to draw, because {drawn.why}")
    return content(drawn, ending.removeprefix("."), _WIDTH_MM)


def page(plan: RentalPlan) -> Page:
    """The whole report."""
    return Page(
        title=f"What to rent for {plan.workload}",
        source=f"A plan of {plan.created[:10]}, from {', '.join(plan.profiles)}",
        subtitle=(question(plan.goal),),
        verdict=(verdict(plan),),
        numbers=() if plan.chosen is None else tuple(_numbers(plan.chosen, plan.goal)),
        warnings=plan.warnings,
        next_steps=_next(plan),
        chapters=tuple(_chapters(plan)),
    )


def _numbers(best: Choice, goal: Goal) -> Iterator[tuple[str, str]]:
    yield "rent", label(best)
    yield "time", span_interval(best.seconds)
    yield "cost", dollars_interval(best.dollars)
    if goal.deadline_seconds is not None:
        yield "on time", chance(best.on_time, goal.deadline_seconds)
    if goal.budget_dollars is not None:
        yield "in budget", chance(best.within_budget, goal.budget_dollars)
    yield "price", f"{dollars(best.rented.dollars_per_hour)}/h"
    yield "where", place(best)


def _next(plan: RentalPlan) -> tuple[str, ...]:
    steps = [f"`--{wish.option} {wish.to}`: {wish.text}" for wish in plan.relaxations]
    if plan.experiment is not None:
        steps.append(f"{plan.experiment.text}: `{' '.join(plan.experiment.command)}`")
    return tuple(steps)


def _chapters(plan: RentalPlan) -> list[Chapter]:
    found = [
        Chapter("front", "Cost against time", label="Cost and time", charts=(cost_against_time(plan),)),
        Chapter("dollars", "Where the dollars go", label="Dollars", charts=(dollars_by_stall(plan),)),
        Chapter("choices", "What was weighed", label="Choices", grids=(choices_table(plan, ""),)),
    ]
    if plan.rules:
        found.append(Chapter("rules", "How people choose today", label="Rules", grids=(_rules(plan),)))
    if plan.chosen is not None:
        its = derivation(plan.chosen, plan.goal)
        grids = tuple(_derived(title, part) for title, part in its.parts)
        found.append(
            Chapter("derivation", f"How {its.title} was worked out", grids=grids, points=its.warnings, folded=True)
        )
    points = [f"{item.instance} ({item.cloud}): {item.why}" for item in plan.unranked[:_UNRANKED]]
    if len(plan.unranked) > _UNRANKED:
        points.append(unranked(plan.unranked[_UNRANKED:]))
    if points:
        found.append(Chapter("unranked", "Left out, because something is unknown", points=tuple(points), folded=True))
    if plan.assumptions:
        found.append(Chapter("assumed", "What was taken for granted", label="Assumed", points=plan.assumptions))
    return found


def _derived(title: str, lines: tuple[DerivationLine, ...]) -> Grid:
    rows = tuple((line.label, line.value, "; ".join(filter(None, (line.text, *line.facts)))) for line in lines)
    return Grid(title, ("", ""), rows, frozenset({0, 2}))


def _rules(plan: RentalPlan) -> Grid:
    lines = [rule_line(rule, plan) for rule in plan.rules]
    texts = {rule.rule: rule.text for rule in plan.rules}
    rows = tuple((line.rule, texts[line.rule], line.rents, line.dollars, line.time, line.remark) for line in lines)
    head = ("takes", "would rent", "costs more", "takes longer", "")
    return Grid("", head, rows, frozenset({0, 1, 2, 5}), first="rule")
