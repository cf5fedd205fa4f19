"""What may be claimed of a breakdown, by its intervals alone: which stall dominates, which tie, which are open.

Says nothing and advises nothing; the rules, with their thresholds, are those of ``docs/method.md``.
"""

from __future__ import annotations

from typing import Literal

from stash.analysis.breakdown import (
    MINOR_SHARE,
    SIGNIFICANT_SHARE,
    SMALL_SHARE,
    Breakdown,
    Missing,
    Stall,
)
from stash.analysis.run_account import COMPUTE, IN_COMPUTE, RunRow
from stash.analysis.stability import MIN_ROUNDS
from stash.core.ladder import DATA_STALLS
from stash.core.ledger_rows import INPUT
from stash.core.records.base import Record

FAR_BELOW = 0.2
"""Of the step, and of compute at least: what a stall takes at most that cannot lead, little as is known of it."""
NOISY = 0.5
"""Of the step: compute that is known no better is nothing to claim; where it is a whole step, nothing else is."""
Kind = Literal["stall", "tie", "compute", "run", "cannot tell", "estimate"]


class Claims(Record):
    """What a breakdown supports; compute is never among its stalls."""

    kind: Kind
    """``run`` where what lies between steps leads; ``estimate`` after fewer than three rounds, which name nothing but
    what the job's first steps show by themselves.
    """
    certain: tuple[Stall, ...] = ()
    """Stalls that certainly matter, largest first: all for ``cannot tell``, else those that may be the largest."""
    open: tuple[Stall, ...] = ()
    """Neither certain nor minor: the farthest first."""
    unknown: tuple[Missing, ...] = ()
    """Stalls that such a job can have and that were not measured."""

    other_job: bool = False
    """What was measured is not the job that was typed: nothing is claimed of it."""
    noisy: bool = False
    """Steps vary too much for any claim."""
    rows: tuple[RunRow, ...] = ()
    """What may take most of an epoch, the largest first, where that is known: for ``run`` none of them is a stall."""

    @property
    def hidden_stalls(self) -> tuple[Missing, ...]:
        """The unknown ones whose time is counted as compute, unless it is too short to matter."""
        return _list_hidden(self.unknown)

    @property
    def rivals(self) -> tuple[RunRow, ...]:
        """Of what may take most of an epoch, what lies between steps."""
        return tuple(row for row in self.rows if row.is_between_steps)


def _list_hidden(unknown: tuple[Missing, ...]) -> tuple[Missing, ...]:
    return tuple(each for each in unknown if each.contained_in == COMPUTE and not each.small)


def may_claim(breakdown: Breakdown) -> Claims:
    """The claims that the breakdown's intervals allow.

    A stall dominates if it is certain and no uncertain one may be larger than its own interval allows. Certain stalls
    whose intervals overlap the largest one's tie: intervals that do not overlap differ, however the errors of the two
    go together. Compute dominates where nothing is certain, every measured stall is minor or far below it, and
    compute contains no unmeasured one; where no rung goes without its data, its ledger tells those apart. Of a job
    whose first steps, as it was typed, took another time than what was measured nothing is claimed of the step,
    unless the script's own code explains it, or both wait for data most of the time. What lies between steps leads
    where it takes more of an epoch for certain than any stall, and compute, may.
    """
    has_input = breakdown.run is not None and breakdown.run.row(INPUT) is not None
    unknown = tuple(
        missing
        for missing in breakdown.skipped
        if missing.possible and not (has_input and missing.name in DATA_STALLS)
    )
    is_noisy, is_other = _noise(breakdown) > breakdown.step_seconds, breakdown.is_other_job
    rows = _largest_rows(breakdown, is_noisy or is_other)
    if rows and all(row.is_between_steps for row in rows):
        return Claims(kind="run", rows=rows, unknown=unknown)
    if breakdown.as_typed is not None and breakdown.as_typed.is_mostly_denormal:
        return Claims(kind="compute", unknown=unknown)
    if is_noisy:
        return Claims(kind="cannot tell", noisy=True, unknown=unknown)
    if is_other or breakdown.repetitions < MIN_ROUNDS:
        leads = _leads_as_typed_too(breakdown) if is_other else _waits_as_typed_too(breakdown)
        if leads is not None:
            return Claims(kind="stall", certain=(leads,), unknown=unknown, rows=rows)
        if not is_other and _computes_as_typed_too(breakdown, unknown):
            return Claims(kind="compute", unknown=unknown, rows=rows)
        kind: Kind = "cannot tell" if is_other else "estimate"
        return Claims(kind=kind, other_job=is_other, unknown=unknown)
    return _claim_of_stalls(breakdown, unknown, rows)


def _claim_of_stalls(
    breakdown: Breakdown, unknown: tuple[Missing, ...], rows: tuple[RunRow, ...]
) -> Claims:
    step = breakdown.step_seconds
    stalls = [stall for stall in breakdown.stalls if stall.name != "compute"]
    # worth a sentence at its lower end too, and known to within half of itself or 5 % of the step
    certain = [
        stall
        for stall in stalls
        if stall.significant
        and _low(stall) >= SIGNIFICANT_SHARE * step
        and stall.width <= max(stall.seconds / 2, SMALL_SHARE * step)
    ]
    certain.sort(key=lambda stall: -stall.seconds)
    large = [s for s in stalls if s not in certain and high_end(s) > MINOR_SHARE * step]
    large.sort(key=lambda stall: -high_end(stall))
    found = Claims(
        kind="cannot tell",
        certain=tuple(certain),
        open=tuple(large),
        unknown=unknown,
        rows=rows,
    )
    may_be = max(map(high_end, large), default=0.0)
    if certain and may_be <= high_end(certain[0]):
        largest = tuple(s for s in certain if high_end(s) >= _low(certain[0]))
        if found.rivals and not any(row.name == stall.name for row in rows for stall in largest):
            return found
        kind = "tie" if len(largest) > 1 else "stall"
        return found.model_copy(update={"kind": kind, "certain": largest})
    if certain or found.hidden_stalls or (large and not is_far_below_compute(may_be, breakdown)):
        return found
    if _noise(breakdown) > NOISY * step:
        return found.model_copy(update={"noisy": True})
    return found if found.rivals else found.model_copy(update={"kind": "compute"})


def is_far_below_compute(most: float, breakdown: Breakdown) -> bool:
    """Whether no stall, of ``most`` seconds of a step for all that is known, can be what dominates."""
    compute = breakdown.stall("compute")
    if compute is None or compute.low is None or most > FAR_BELOW * breakdown.step_seconds:
        return False
    return compute.low >= breakdown.step_seconds / 2 and compute.low >= most / FAR_BELOW


def _leads_as_typed_too(breakdown: Breakdown) -> Stall | None:
    """A stall that is the largest part of the step as measured and of the step as it was typed.

    Either what the two differ by, given to whatever is next and taken from the stall, leaves it the largest; or it is
    prep or fetch, and waiting for the loader was half of the step as typed: the job waits for its data, whatever part
    of the measured step that is.
    """
    typed, compute = breakdown.as_typed, breakdown.stall("compute")
    if typed is None or compute is None:
        return None
    apart = abs(typed.longer_seconds)
    waited_for_data = typed.first.loading >= typed.first.step.value / 2
    every = [stall for stall in breakdown.stalls if stall.name != "compute"]
    for stall in every:
        others = [high_end(other) for other in every if other is not stall]
        if waited_for_data and stall.name in DATA_STALLS:
            if stall.significant and _low(stall) > max(others, default=0.0):
                return stall
        elif _low(stall) - 2 * apart > max([*others, high_end(compute)]):
            return stall
    return None


def _waits_as_typed_too(breakdown: Breakdown) -> Stall | None:
    """The stall on data that is most of a step by few rounds, where steps as typed mostly waited for their loader."""
    typed = breakdown.as_typed
    waited = breakdown.waits.cold if breakdown.waits.cold is not None else breakdown.waits.warm
    if typed is None or typed.first.loading < typed.first.step.value / 2:
        return None
    half = breakdown.step_seconds / 2
    stalls = [stall for stall in breakdown.stalls if stall.name in DATA_STALLS]
    largest = max(stalls, key=lambda stall: stall.seconds, default=None)
    agrees = largest is not None and largest.seconds > half and waited is not None and waited > half
    return largest if agrees else None


def _computes_as_typed_too(breakdown: Breakdown, unknown: tuple[Missing, ...]) -> bool:
    """Whether few rounds show computing and little else, and steps as they were typed waited for next to nothing."""
    typed, run = breakdown.as_typed, breakdown.run
    if typed is None or run is None or _list_hidden(unknown):
        return False
    waited = typed.first.loading + typed.first.exchange
    shares = {row.name: row.share or 0.0 for row in run.rows}
    least = shares.pop(COMPUTE, 0.0)
    return (
        least >= 1 - FAR_BELOW
        and max(map(abs, shares.values()), default=0.0) < FAR_BELOW / 2
        and waited <= SMALL_SHARE * typed.first.step.value
    )


# Between steps


def _largest_rows(breakdown: Breakdown, by_first_steps: bool) -> tuple[RunRow, ...]:
    """Rows of an epoch that may be its largest, the largest first; empty without a ledger.

    ``by_first_steps``: what was measured tells nothing, so the whole step as it was typed stands for all that is in
    it; empty if that is unknown.
    """
    run, typed = breakdown.run, breakdown.as_typed
    if run is None:
        return ()
    known = [row for row in run.rows if row.time is not None]
    if by_first_steps:
        if typed is None:
            return ()
        between = [row for row in known if row.is_between_steps]
        rest = typed.first.step.shift(
            -sum(row.seconds for row in between if row.name in IN_COMPUTE)
        )
        known = [RunRow(name="compute", time=rest), *between]
    certain = max(row.least for row in known)
    return tuple(
        sorted((row for row in known if row.most >= certain), key=lambda row: -row.seconds)
    )


def _noise(breakdown: Breakdown) -> float:
    """The longest arm of the intervals of compute and of the step, in seconds."""
    compute = breakdown.stall("compute")
    return max(0.0 if compute is None else compute.width, breakdown.step.half_width or 0.0)


# Ends of intervals


def decisive_width(stall: Stall, step_seconds: float) -> float:
    """The width in seconds at which an open stall of this estimate is either certain or minor."""
    certain = min(
        stall.seconds - SIGNIFICANT_SHARE * step_seconds,
        max(stall.seconds / 2, SMALL_SHARE * step_seconds),
    )
    return max(certain, MINOR_SHARE * step_seconds - stall.seconds)


def _low(stall: Stall) -> float:
    return stall.seconds if stall.low is None else stall.low


def high_end(stall: Stall) -> float:
    """Seconds of a step that a stall may take; its estimate, where no interval is known."""
    return stall.seconds if stall.high is None else stall.high
