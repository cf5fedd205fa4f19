"""A learned loss curve as text and as JSON: what was replayed, which form fits it, and how far each errs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.formatting import span
from stash.core.intervals import Interval
from stash.core.units import counted, format_bytes, format_seconds
from stash.spot.records.runs import FittedLoss, LearnedCurve, LossForm, LossReplay
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.tables import table

SCHEMA = 1
_FORMS: dict[LossForm, str] = {
    "printed": "equation (3) with R",
    "shipped": "equation (3) without R",
    "free": "without R, exponents of its own",
    "levels": "updates to each loss as replayed",
}
_ENDS = {
    "budget": "The budget ended before all fleets were replayed.",
    "interrupted": "It was interrupted: this is what had been replayed.",
}


@dataclass(frozen=True)
class LearnedView:
    """What is said in order; rows of each table, head first."""

    title: str
    facts: tuple[tuple[str, str], ...]
    forms: tuple[tuple[str, ...], ...]
    replays: tuple[tuple[str, ...], ...]
    beyond: tuple[str, ...]


def document(curve: LearnedCurve) -> dict[str, Any]:
    """What ``--json`` prints: the curve's file, with the contract's version."""
    return {"schema": SCHEMA, **curve.model_dump()}


def view(curve: LearnedCurve) -> LearnedView:
    """Everything that is said."""
    best, seen = curve.best, curve.learned
    took = sum(each.seconds for each in curve.replays)
    staleness = "" if seen.bound is None else f", at most {seen.bound} iterations ahead of the slowest"
    return LearnedView(
        title=f"Loss of {curve.job}",
        facts=(
            ("model", f"{curve.parameters:,} parameters, {format_bytes(curve.parameter_bytes)} one way; to apply an "
                      f"update takes one core {format_seconds(curve.apply_seconds)}"),
            ("data", f"{curve.samples:,} samples, {curve.batch} in a batch of the job"),
            ("replays", f"{len(curve.replays)} in {span(took)} on {curve.device}{staleness}"),
            ("loss", f"the mean over the last {curve.window} updates, by samples; parameters begin with seed "
                     f"{curve.seed}, and every replay has the samples in an order of its own"),
            ("seen", f"down to {seen.least_loss:.4g}, {counted(seen.most_workers, 'worker')}, mean batches "
                     f"{seen.least_batch:.4g} to {seen.most_batch:.4g}, {seen.most_updates:,} updates"),
            ("chosen", f"{best.form}: of a fleet it had not seen, it tells the updates to a loss within "
                       f"{best.error:.1%} (median), {best.worst_error:.0%} nine times in ten"),
            *_sure(best),
        ),
        forms=(("form", "updates to a loss", "90 %", "losses", "coefficients"), *map(_form, curve.forms)),
        replays=(("workers", "mean batch", "R", "staleness", "updates", "loss", ""), *map(_replay, curve.replays)),
        beyond=(*((_ENDS[curve.ended],) if curve.ended in _ENDS else ()), *curve.left_out),
    )  # fmt: skip


def _sure(best: FittedLoss) -> Iterator[tuple[str, str]]:
    """Where updates to a loss are the surest and where the least, if it is known of each loss."""
    if not best.spreads:
        return
    ends = (min(best.spreads, key=lambda each: each.spread), max(best.spreads, key=lambda each: each.spread))
    surest, least = (f"{each.spread:.1%} at a loss of {each.loss:.4g}" for each in ends)
    yield "sure", f"to {surest} and to {least}: one standard deviation of one order of samples"


def _form(fitted: FittedLoss) -> tuple[str, ...]:
    errors = (_percent(fitted.error), _percent(fitted.worst_error), _percent(fitted.loss_error))
    told = ", ".join(_term(name, each) for name, each in fitted.intervals.items())
    if fitted.curve.levels:
        first, last = fitted.curve.levels[0], fitted.curve.levels[-1]
        told = (
            f"N to {first.workers_exponent:.2f} and bw to {first.batch_exponent:.2f} at {first.loss:.3g}, "
            f"{last.workers_exponent:.2f} and {last.batch_exponent:.2f} at {last.loss:.3g}"
        )
    return fitted.form, *errors, f"{_FORMS[fitted.form]}: {told}"


def _percent(error: float) -> str:
    return "beyond 10x" if error > 10 else f"{error:.1%}"


def _term(name: str, found: Interval) -> str:
    arm = "" if found.half_width is None else f" ± {found.half_width:.2g}"
    return f"{name} {found.value:.4g}{arm}"


def _replay(each: LossReplay) -> tuple[str, ...]:
    course = f"{each.losses[0]:.4g} to {min(each.losses):.4g}"
    figures = (f"{each.mean_batch:.4g}", f"{each.imbalance:.2f}", f"{each.staleness:.1f}", f"{each.updates[-1]:,}")
    return str(len(each.workers)), *figures, course, ""


def _report(view: LearnedView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    for label, text in view.facts:
        parts += paragraph(text, width, f"{label:<9}", "dim")
    for sentence in view.beyond:
        parts += paragraph(sentence, width, "! ", "color(220)", dim=True)
    return [*parts, Text(), *table(view.forms, width), Text(), *table(view.replays, width)]


render: Renderer[LearnedView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
