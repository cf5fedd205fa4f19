"""Models of fleets as pages and as JSON: one fitted to runs, what it predicts, and a learned loss curve."""

from __future__ import annotations

from typing import Any

from stash.core.formatting import format_quantity, format_span
from stash.core.units import format_bytes, format_count, format_seconds
from stash.spot.fleet_records import FleetModel, FleetSpeed
from stash.spot.pages.fleet_plan import fleet
from stash.spot.run_records import LearnedCurve, LossReplay
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1


def document(speed: FleetSpeed) -> dict[str, Any]:
    """What ``--json`` prints: the record, with the contract's version."""
    return {"schema": SCHEMA, **speed.model_dump()}


# A fitted model: each type's pace, the servers', and how wrong it was.


def page_of_model(model: FleetModel, source: str) -> Page:
    """How fast workers are alone, what was fitted, and each fleet as predicted from all others."""
    singles = tuple(
        (each.type, str(each.servers), format_quantity(each.seconds, "seconds"))
        for each in model.lone
    )
    judged = tuple(
        (
            f"{fleet(each.run.workers)}, {format_count(each.run.servers, 'server')}",
            f"{speed:.3g}/s",
            "unknown"
            if each.queue is None
            else f"{each.queue:.3g}/s ({each.queue / speed - 1:+.0%})",
        )
        for each in model.judged
        for speed in (each.run.updates_per_second,)
    )
    queue = model.queue
    several = len({run.servers for run in model.runs}) > 1
    shared = f", {queue.unsplit:.0%} of it however many servers" if several else ""
    together = sum(run.size > 1 for run in model.runs)
    read = f"{format_count(len(model.runs), 'run')}, {together} of several workers."
    wrong = model.error
    if wrong is None:
        summary = (
            f"{read} None can be left out, so how wrong the model is, is unknown: time more fleets."
        )
    else:
        summary = f"{read} Of fleets it had not seen, the queue at the servers errs by {wrong:.1%} (median)."
    return Page(
        title=f"Fleets of {source}",
        source=source,
        verdict=(
            summary,
            (
                f"An update keeps a server busy for {format_seconds(queue.server_seconds)}{shared}; arrivals are "
                f"{queue.randomness:.0%} random."
            ),
        ),
        grids=(
            Grid("", ("servers", "an iteration"), singles, frozenset({0}), first="worker alone"),
            Grid("", ("measured", "predicted"), judged, frozenset({0}), first="from all others"),
        ),
    )


def page_of_speed(found: FleetSpeed) -> Page:
    """A fleet's predicted speed."""
    spread = "interval unknown"
    if found.low is not None and found.high is not None:
        spread = f"95 % between {found.low:.3g} and {found.high:.3g}"
    return Page(
        title=f"{fleet(found.workers)}, {format_count(found.servers, 'server')}",
        verdict=(f"{found.updates_per_second:.3g} updates/s ({spread})",),
        warnings=found.beyond,
    )


# A learned loss curve: what was replayed, and how far the curve errs.

_ENDS = {
    "budget": "The budget ended before all fleets were replayed.",
    "interrupted": "It was interrupted: this is what had been replayed.",
}


def page_of_curve(curve: LearnedCurve) -> Page:
    """How sure updates to a loss are, on what that rests, and every replay."""
    fitted = curve.fitted
    seen = curve.learned_range
    took = sum(each.seconds for each in curve.replays)
    first = fitted.curve.levels[0]
    last = fitted.curve.levels[-1]
    levels = (
        f"N to {first.workers_exponent:.2f} and bw to {first.batch_exponent:.2f} at {first.loss:.3g}, "
        f"{last.workers_exponent:.2f} and {last.batch_exponent:.2f} at {last.loss:.3g}"
    )
    facts = (
        (
            "model",
            f"{curve.parameters:,} parameters, {format_bytes(curve.parameter_bytes)} one way; to apply an "
            f"update takes one core {format_seconds(curve.apply_seconds)}",
        ),
        ("data", f"{curve.samples:,} samples, {curve.batch} in a batch of the job"),
        ("replays", f"{len(curve.replays)} in {format_span(took)} on {curve.device}"),
        (
            "loss",
            f"the mean over the last {curve.window} updates, by samples; parameters begin with seed {curve.seed}, and "
            "every replay has the samples in an order of its own",
        ),
        (
            "seen",
            f"down to {seen.least_loss:.4g}, {format_count(seen.most_workers, 'worker')}, mean batches "
            f"{seen.least_batch:.4g} to {seen.most_batch:.4g}, {seen.most_updates:,} updates",
        ),
        (
            "error",
            f"of a fleet it had not seen, it tells the updates to a loss within {_percent(fitted.error)} "
            f"(median), {_percent(fitted.worst_error)} nine times in ten",
        ),
        ("updates", f"grow with {levels}"),
    )
    replays = tuple(map(_replay, curve.replays))
    head = ("mean batch", "updates", "loss")
    grid = Grid("", head, replays, frozenset({3}), first="workers")
    return Page(
        title=f"Loss of {curve.job}",
        warnings=(*((_ENDS[curve.ended],) if curve.ended in _ENDS else ()), *curve.left_out),
        chapters=(
            Chapter("facts", "What was learned", facts=facts, brief=True),
            Chapter("replays", "Every replay", brief=True, grids=(grid,)),
        ),
    )


def _percent(error: float) -> str:
    return "beyond 10x" if error > 10 else f"{error:.1%}"


def _replay(each: LossReplay) -> tuple[str, ...]:
    course = f"{each.losses[0]:.4g} to {min(each.losses):.4g}"
    return str(len(each.workers)), f"{each.mean_batch:.4g}", f"{each.updates[-1]:,}", course
