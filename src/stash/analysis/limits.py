"""Limits and facts that a profile must keep, as people type them: decided on the interval, never on its middle.

``network=15%`` is a share of the step, ``step=250ms`` a time, ``samples/s=90`` a rate. A limit *passes* if the
whole interval keeps it, *fails* if the whole interval breaks it, and is undecided otherwise. A required fact is one
that comparisons name (``recorded_facts``), as text, and undecided where a profile does not record it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import (
    NOT_RECORDED,
    RATE,
    STEP,
    Runs,
    changed_by,
    estimate_figure,
    part_times,
    recorded_facts,
)
from stash.core.errors import UnitError, UserError
from stash.core.formatting import Unit, format_quantity
from stash.core.intervals import Interval, subtract_runs
from stash.core.ladder import STALLS
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.trace_records import TRACE_PARTS, Trace
from stash.core.units import format_seconds, parse_seconds

PARTS = tuple(dict.fromkeys((*STALLS, *TRACE_PARTS)))
"""What limits may be about, of profiles and of traces."""
PASSES = "passes"
FAILS = "fails"
CANNOT_TELL = "cannot tell"


class Limit(Record):
    """One limit: a stall, the step or the rate, at most or at least ``value`` (seconds, a share, or samples/s)."""

    name: str
    value: float
    share: bool = False
    at_most: bool = True
    typed: str
    """The whole option, as it was typed."""


class Tolerance(Record):
    """Maximum slowdown of the step, or of one stall, against a baseline, as a fraction of it."""

    name: str
    fraction: float
    typed: str
    """The whole option, as it was typed."""


class Decision(Record):
    """What became of a limit: one of the three verdicts, and a sentence that says why."""

    limit: str
    verdict: str
    sentence: str


def parse_limit(option: str, text: str) -> Limit:
    """The limit that ``--max`` or ``--min`` asks for; raises UserError."""
    name, sign, value = (part.strip() for part in text.partition("="))
    names = (STEP, RATE, *PARTS)
    if not sign or not value or name not in names:
        raise UserError(
            f"cannot read {option} {text!r}; write NAME=VALUE, like network=15% or step=250ms, where NAME is one of "
            f"{', '.join(names)}"
        )
    typed = f"{option} {text}"
    share = value.endswith("%")
    at_most = option == "--max"
    if share and name not in PARTS:
        example = "90" if name == RATE else "250ms"
        raise UserError(f"{typed}: a share of the step is a stall's; give {name} as {example}")
    if share:
        number = _number(typed, value.removesuffix("%")) / 100
    elif name == RATE:
        number = _number(typed, value)
    else:
        try:
            number = parse_seconds(value, likely=("ms", "s"))
        except UnitError as error:
            raise UnitError(f"{typed}: {error}") from None
    return Limit(name=name, value=number, share=share, at_most=at_most, typed=typed)


def parse_slower(text: str) -> Tolerance:
    """What ``--slower 5%`` (of the step) or ``--slower network=20%`` (of that stall) allows; raises UserError."""
    name, sign, value = (part.strip() for part in text.rpartition("="))
    name = name if sign else STEP
    if not value.endswith("%") or name not in (STEP, *PARTS):
        raise UserError(
            f"cannot read --slower {text!r}; write per cent of the step, like 5%, or of a stall, like network=20%"
        )
    typed = f"--slower {text}"
    return Tolerance(name=name, fraction=_number(typed, value.removesuffix("%")) / 100, typed=typed)


def judge_limit(limit: Limit, runs: Runs) -> Decision:
    """Whether runs of one job keep a limit; raises UserError if they do not have what it is about."""
    _refuse_without(limit.name, limit.typed, runs)
    found, step = estimate_figure(limit.name, runs), estimate_figure(STEP, runs)
    bound = Interval(value=limit.value, low=limit.value, high=limit.value)
    wanted = f"{limit.value:g} samples/s" if limit.name == RATE else format_seconds(limit.value)
    share = ""
    if limit.share:
        bound = step.scale(limit.value)
        wanted = f"{100 * limit.value:g}% of the step"
        share = f" ({found.value / step.value:.1%} of the step)"
    unit: Unit = "samples/s" if limit.name == RATE else "seconds"
    how = "at most" if limit.at_most else "at least"
    ends = (bound, found) if limit.at_most else (found, bound)
    return Decision(
        limit=limit.typed,
        verdict=_verdict(subtract_runs(*ends)),
        sentence=f"{limit.name} is {format_quantity(found, unit)}{share}; asked for is {how} {wanted}",
    )


def not_slower(
    tolerance: Tolerance, before: Runs, after: Runs, alike: bool = True, per_sample: bool = False
) -> Decision:
    """Whether the step, or a stall, is longer than a baseline's by more than a fraction of that.

    ``alike`` and ``per_sample`` are those of ``compare``. Raises UserError if a side does not have the stall.
    """
    name = tolerance.name
    _refuse_without(name, tolerance.typed, [*before, *after])
    first = estimate_figure(name, before, per_sample)
    apart, beyond = (
        changed_by(name, before, after, factor, alike, per_sample)
        for factor in (1.0, 1 + tolerance.fraction)
    )
    share = f" ({apart.value / first.value:+.1%})" if first.value > 0 else ""
    stall = "" if name == STEP else " stall"
    what = f"the {name}{stall}{' per sample' if per_sample else ''}"
    return Decision(
        limit=tolerance.typed,
        verdict=_verdict(beyond),
        sentence=f"{what} changed by {format_quantity(apart, 'seconds')} from {format_seconds(first.value)}{share}; "
        f"asked for is at most {100 * tolerance.fraction:+g}%",
    )


def overall_verdict(decisions: Sequence[Decision]) -> str:
    """The verdict over all: one that fails is enough, and one that is undecided keeps the rest from passing."""
    verdicts = {decision.verdict for decision in decisions}
    return next((verdict for verdict in (FAILS, CANNOT_TELL) if verdict in verdicts), PASSES)


def _verdict(beyond: Interval) -> str:
    """Of how far something lies beyond its limit."""
    if beyond.low is None or beyond.high is None:
        return CANNOT_TELL
    if beyond.low > 0:
        return FAILS
    return PASSES if beyond.high <= 0 else CANNOT_TELL


def _refuse_without(name: str, typed: str, runs: Sequence[Breakdown | Trace]) -> None:
    for run in runs:
        known = part_times(run)
        is_counted = isinstance(run, Breakdown) and run.samples_per_second is not None
        if name == STEP or name in known or (name == RATE and is_counted):
            continue
        there = f"{', '.join(known)} and {STEP}"
        if isinstance(run, Trace):
            raise UserError(f"{typed}: the traces {run.workload} have no {name}; they have {there}")
        raise UserError(f"{typed}: {run.source} has no {name}; it has {there}")


def _number(typed: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UserError(f"{typed}: {text!r} is not a number from 0 up")
    return number


_ALSO = {"batch": "batch per device", "world size": "ranks", "gpu": "gpus"}
"""Other words for a fact; without regard to case, and with ``_`` for a blank."""


class Requirement(Record):
    """One fact and what it must be."""

    name: str
    value: str
    typed: str
    """The whole option, as it was typed."""


def parse_requirement(text: str) -> Requirement:
    """What ``--require ranks=8`` asks for; raises UserError."""
    name, sign, value = (part.strip() for part in text.partition("="))
    if not (name and sign and value):
        raise UserError(
            f"cannot read --require {text!r}; write NAME=VALUE, like ranks=8 or precision=bfloat16"
        )
    return Requirement(name=name, value=value, typed=f"--require {text}")


def check_requirement(requirement: Requirement, runs: Iterable[Profile | Trace]) -> Decision:
    """Whether all runs say so; raises UserError if there is no such fact."""
    recorded = []
    for facts in map(recorded_facts, runs):
        known = {_plain_fact(name): name for name in facts}
        wanted = _plain_fact(requirement.name)
        name = known.get(_ALSO.get(wanted, wanted))
        if name is None:
            raise UserError(
                f"{requirement.typed}: no profile says that; what it says is {', '.join(facts)}"
            )
        recorded.append(facts[name])
    values = {value.casefold() for value in recorded}
    verdict = PASSES
    if values - {NOT_RECORDED, requirement.value.casefold()}:
        verdict = FAILS
    elif NOT_RECORDED in recorded:
        verdict = CANNOT_TELL
    return Decision(
        limit=requirement.typed,
        verdict=verdict,
        sentence=f"{requirement.name} is {' or '.join(dict.fromkeys(recorded))}; asked for is {requirement.value}",
    )


def _plain_fact(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ")
