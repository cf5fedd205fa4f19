"""A plan of a fleet, a simulation of its policies and the log of a run as pages of the report."""

from __future__ import annotations

from collections.abc import Iterator

from stash.core.errors import UserError
from stash.core.formatting import chance, dollars, dollars_interval, span
from stash.core.units import counted
from stash.spot.pages.fleet_charts import costs_of_fleets, costs_of_policies, progress, timeline
from stash.spot.pages.fleet_plan import in_time
from stash.spot.pages.fleet_plan import view as planned
from stash.spot.pages.run_report import TAKEOVERS, line
from stash.spot.pages.run_report import view as ran
from stash.spot.pages.run_timeline import iterations, losses, presence
from stash.spot.pages.simulated_policies import view as simulated
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import SpotSimulation
from stash.spot.records.runs import SpotLog
from stash.ui.charts.chart import Blank, Grid
from stash.ui.charts.chart_files import content
from stash.ui.html import render
from stash.ui.page import Chapter, Page
from stash.ui.tables import fleet

_WIDTH_MM = 170


def picture(found: SpotSimulation, source: str, ending: str) -> str | bytes:
    """The content of a file with that ending: the whole page, or what policies cost as a picture.

    Raises UserError where there is nothing to draw, or without vl-convert.
    """
    if ending == ".html":
        return render(page_of_simulation(found, source))
    drawn = costs_of_policies(found)
    if isinstance(drawn, Blank):
        raise UserError(f"--output *{ending}: there is nothing to draw, because {drawn.why}")
    return content(drawn, ending.removeprefix("."), _WIDTH_MM)


def page_of_simulation(found: SpotSimulation, source: str) -> Page:
    """What every policy came to, and one run of each."""
    shown = simulated(found, source)
    return Page(
        title=f"{fleet(found.workers)} on spot",
        source=source,
        subtitle=(shown.title,),
        verdict=(shown.advice,),
        numbers=tuple(_numbers(found)),
        warnings=shown.warnings,
        chapters=(
            Chapter("policies", "What each policy costs", label="Policies", charts=(costs_of_policies(found),)),
            Chapter("run", "One run", label="One run", charts=(timeline(found), progress(found))),
            Chapter("how", "How it was simulated", points=(shown.note, shown.mode, *shown.notes)),
        ),
    )


def _numbers(found: SpotSimulation) -> Iterator[tuple[str, str]]:
    yield "obtainable", f"{found.obtainable:.0%} of the time"
    yield "runs", f"{found.runs:,}"
    if found.independent is not None:
        yield "beside each other", f"{found.independent:.1f}"


def page_of_plan(plan: FleetPlan, source: str) -> Page:
    """What to rent, what it costs against other ways to choose, and what revocations do."""
    shown = planned(plan, source)
    verdict = shown.facts[0][1] if plan.chosen is None else f"Rent {shown.facts[0][1]}: {shown.facts[1][1]}."
    head, *rows = shown.others or (("others",),)
    others = (Grid("Other fleets", head[1:], tuple(rows), frozenset({0, 3}), first=head[0]),) if rows else ()
    return Page(
        title=f"A fleet for a loss of {plan.loss:g} within {span(plan.deadline_seconds)}",
        source=source,
        subtitle=(f"A plan of {plan.created[:10]} by the {plan.model} model",),
        verdict=tuple(filter(None, (verdict, shown.advice and f"{shown.advice[0].upper()}{shown.advice[1:]}."))),
        numbers=tuple(_facts(plan)),
        warnings=shown.beyond,
        next_steps=tuple(f"`{to}`: {text}" for to, text in shown.looser),
        chapters=(
            Chapter("costs", "What it costs", label="Costs", charts=(costs_of_fleets(plan),), grids=others),
            Chapter("risk", "What revocations do", label="Risk", points=_risk(shown.facts)),
            Chapter("how", "How it was found", points=tuple(filter(None, (shown.proof, shown.alike)))),
        ),
        made=f"{plan.created.replace('T', ' ')[:16]} UTC, Stash {plan.stash_version}",
    )


def _facts(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    if plan.chosen is None:
        return
    yield "rent", fleet(plan.chosen.workers, plan.chosen.on_demand)
    yield "time", span(plan.chosen.seconds)
    yield "cost", dollars(plan.chosen.dollars)
    if plan.risk is not None:
        yield "cost, revoked", dollars_interval(plan.risk.dollars)
        yield "in time", chance(plan.risk.p_deadline.value)
    elif plan.chosen.p_deadline is not None:
        sure = in_time(plan)
        yield "in time" if sure is not None else "in time, if none is revoked", chance(plan.chosen.p_deadline)


def _risk(facts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The lines from the chance of being in time on, which say what revocations do."""
    labels = [label for label, _ in facts]
    at = labels.index("in time") if "in time" in labels else len(facts)
    return tuple(f"{label}: {text}" if label else text for label, text in facts[at:])


def page_of_log(log: SpotLog, source: str) -> Page:
    """Who was there, how fast it went and how far, beside what was predicted; and everything that happened."""
    shown = ran(log)
    head, rows = TAKEOVERS, shown.takeovers
    took_over = Grid("Who took over", head[1:], rows, frozenset({0, len(head) - 1}), first=head[0])
    began = log.updates.seconds[0] if log.updates.seconds else None
    told = filter(None, (line(event, began) for event in log.events))
    return Page(
        title=shown.title,
        source=source,
        subtitle=(f"{log.job}, by {log.plan}",),
        verdict=tuple(f"{text[0].upper()}{text[1:]}." for text in shown.sums),
        numbers=tuple(_lived(log)),
        warnings=shown.warnings,
        chapters=(
            Chapter(
                "presence",
                "Who was there",
                label="Machines",
                charts=(presence(log),),
                grids=(took_over,) if rows else (),
            ),
            Chapter("speed", "How fast each fleet was", label="Speed", charts=(iterations(log),)),
            Chapter("loss", "How far it came", label="Loss", charts=(losses(log),)),
            Chapter("events", "What happened", label="Events", points=tuple(map(str.strip, told)), folded=True),
        ),
        made=f"{log.created.replace('T', ' ')[:16]} UTC, Stash {log.stash_version}",
    )


def _lived(log: SpotLog) -> Iterator[tuple[str, str]]:
    yield "updates", f"{len(log.updates.seconds):,}"
    yield "training", "unknown" if log.seconds is None else span(log.seconds)
    yield "loss", "unknown" if log.loss is None else f"{log.loss:.4g}"
    yield "gone", counted(len(log.takeovers), "machine")
