"""What Stash makes of recorded profiles: ``python -m bench.noise.play DIR``.

Every recording is cut off after the round in which the rule of stopping fires, attributed, and judged by its truth:
errors in points (hundredths) of the true step, whether intervals hold it, and what the verdict is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.machine import arguments
from bench.noise import truths
from bench.noise.jobs import JOBS, Emulated
from bench.noise.recordings import Folder, Recording
from bench.noise.truths import Known, Outcome, Truth
from bench.table import progress, table
from bench.truth import suite
from stash.advice import stopping
from stash.advice.verdict import Advice, verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import step_matrix
from stash.core.errors import StashError
from stash.core.records.profile import Profile

OVERRUN = 0.1
"""Of the budget, for a round that would else be given up half done: as a measurement has."""
ALIKE = 0.3
"""Cores that others may take more than during the quietest reference."""
NEAR = 3600.0
"""Seconds between a recording and a reference of the same hour."""


@dataclass(frozen=True)
class Found:
    """A stall of a recording as it was answered."""

    stall: str
    truth: Known
    estimate: float
    points: float
    holds: bool | None
    """By its interval."""


@dataclass(frozen=True)
class Judged:
    """A recording with the answer to it."""

    recording: Recording
    outcome: Outcome | None
    """``None`` if there is no answer at all."""
    answer: str
    seconds: float | None
    """Of measuring, until the rule of stopping fired; ``None`` if it never did."""
    rounds: int = 0
    found: tuple[Found, ...] = ()
    unknown: tuple[str, ...] = ()
    """Stalls that are true and were not measured."""


# The rule of stopping --------------------------------------------------------------------------------------


def is_decided(profile: Profile, seconds: float, budget: float) -> bool:
    """Whether a measurement with these rounds ends: what ``measure.launcher.measurement`` asks after each."""
    if not step_matrix(profile).rounds:
        return False
    breakdown, precision = attribute(profile), stopping.precision_asked(profile)
    given_up = precision is None and stopping.is_settled(breakdown, seconds, budget)
    return given_up or stopping.is_decided(breakdown, precision)


def first_rounds(profile: Profile, count: int) -> Profile:
    """The same measurement when it had ``count`` rounds."""
    numbers = {*sorted({block.round for block in profile.blocks})[:count]}
    last = max(numbers, default=-1)
    return profile.model_copy(
        update={
            "blocks": tuple(block for block in profile.blocks if block.round in numbers),
            "rates": tuple(rate for rate in profile.rates if rate.round <= last),
            "workers": tuple(times for times in profile.workers if times.round <= last),
        }
    )


def seconds_measured(profile: Profile) -> float:
    """Seconds from the first block's start to the last one's end."""
    return max(
        (block.started + block.seconds + block.interrupted_seconds for block in profile.blocks),
        default=0.0,
    )


def stop_by_rule(
    profile: Profile, budget: float, rule: Callable[[Profile, float, float], bool] = is_decided
) -> tuple[Profile, float | None]:
    """The measurement as it is when the rule fires, and after how many seconds; else with what the budget allows.

    A recording that was itself ended before ``FIRST_SECONDS``, by an older rule, ends as it did.
    """
    kept, rounds = profile, len({block.round for block in profile.blocks})
    for count in range(1, rounds + 1):
        so_far = first_rounds(profile, count)
        seconds = seconds_measured(so_far)
        if count > 1 and seconds > (1 + OVERRUN) * budget:
            break
        kept = so_far
        if (seconds >= stopping.FIRST_SECONDS or count == rounds) and rule(so_far, seconds, budget):
            return so_far, seconds
    return kept, None


# Judging ---------------------------------------------------------------------------------------------------


def truth_of(folder: Folder, recording: Recording, every: Sequence[Recording]) -> Truth | None:
    """By hand, or by the quietest references of the same hour, else of all."""
    if recording.truth is not None:
        return truths.truth_of_case(recording.truth, recording.cause or (), recording.slow_rank)
    limit = recording.disturbance if recording.disturbance in ("quota", "crowded") else "nothing"
    known = [one for one in every if one.reference and not one.failed]
    known = [one for one in known if (one.job, one.disturbance) == (recording.job, limit)]
    known.sort(key=lambda one: (round(one.others_mean, 1), abs(one.when - recording.when)))
    slow_rank = None if limit == "crowded" else recording.slow_rank
    truth = None
    for chosen in ([one for one in known if abs(one.when - recording.when) < NEAR], known):
        quietest = [one for one in chosen if one.others_mean <= chosen[0].others_mean + ALIKE]
        truth = truths.truth_of_references([folder.profile(one) for one in quietest], slow_rank)
        if truth is not None and not truth.uncertain:
            break
    return truth


def answer(recording: Recording, kept: Profile, truth: Truth, seconds: float | None) -> Judged:
    """What is answered of a measurement as it ended after so many ``seconds``."""
    try:
        breakdown = attribute(kept)
    except StashError as error:
        return Judged(recording, None, str(error), seconds)
    advice = verdict(breakdown, kept)
    right = _right(recording, truth, breakdown, advice)
    found, unknown = [], []
    for name, known in truth.stalls.items():
        stall = breakdown.stall(name)
        if stall is None:
            unknown.append(name)
            continue
        points = truths.error(truth, stall) / truth.step * 100
        found.append(Found(name, known, stall.seconds, points, truths.holds(truth, stall)))
    text = advice.kind if advice.kind in ("cannot tell", "estimate") else ", ".join(advice.stalls)
    value = truths.outcome(
        truth, advice.kind, [] if advice.kind == "compute" else advice.stalls, right
    )
    return Judged(recording, value, text, seconds, breakdown.rounds, tuple(found), tuple(unknown))


def _right(recording: Recording, truth: Truth, breakdown: Breakdown, advice: Advice) -> bool:
    job = next((job for job in JOBS if job.name == recording.job), None)
    if isinstance(job, Emulated):
        return suite.causes(job.case, breakdown, advice.stall)[1]
    rank = breakdown.slow_rank.rank if breakdown.slow_rank else None
    return truths.agrees(truth, truths.rank_stalls(breakdown.stalls), advice.stall, rank)


def play(folder: Folder, only: str = "") -> Iterator[Judged]:
    """Judge all recordings whose truth is known."""
    for recording, truth in known_truths(folder, only):
        if truth is None:
            yield Judged(recording, None, "failed", None)
            continue
        kept, seconds = stop_by_rule(folder.profile(recording), recording.budget)
        yield answer(recording, kept, truth, seconds)


def known_truths(folder: Folder, only: str) -> Iterator[tuple[Recording, Truth | None]]:
    """The recordings whose truth is known; ``None`` where there is no profile."""
    every = folder.recordings()
    for recording in sorted(every, key=lambda one: (one.job, one.disturbance)):
        if recording.reference or only not in f"{recording.job} + {recording.disturbance}":
            continue
        truth = None if recording.failed else truth_of(folder, recording, every)
        if not recording.failed and (truth is None or truth.uncertain):
            why = (
                "has no reference yet"
                if truth is None
                else "left out: its references were not quiet enough"
            )
            progress(recording.name, why)
            continue
        yield recording, truth


# Tables ----------------------------------------------------------------------------------------------------

HEADS = (
    "job",
    "beside",
    "others (cores)",
    "verdict",
    "said",
    "seconds",
    "rounds",
    "worst (points)",
    "stalls: truth → estimate (ms); * no interval, or it misses",
)


def line(one: Judged) -> list[object]:
    """A recording in the long table."""
    worst = max(one.found, key=lambda found: abs(found.points), default=None)
    stalls = [
        f"{found.stall} {_known(found.truth)} → {found.estimate * 1e3:.1f}{'' if found.holds else '*'}"
        for found in one.found
    ] + [f"{name} unknown" for name in one.unknown]
    return [
        one.recording.job,
        one.recording.disturbance,
        f"{one.recording.others_mean:.2f}",
        one.outcome or "**none**",
        one.answer,
        "" if one.seconds is None else f"{one.seconds:.0f}",
        one.rounds,
        "" if worst is None else f"{worst.stall} {worst.points:+.1f}",
        ", ".join(stalls),
    ]


def _known(truth: Known) -> str:
    return f"{truth.seconds * 1e3:.1f}" + (f"±{truth.half * 1e3:.1f}" if truth.half else "")


SUMMARY = (
    "",
    "recordings",
    "right",
    "partly",
    "cannot tell",
    "wrong with confidence",
    "no answer",
    "error, mean (points)",
    "largest error",
    "intervals hold",
    "rule fired",
    "seconds to it, median",
)


def summary(name: str, group: Sequence[Judged]) -> list[object]:
    """Some recordings in a line."""
    outcomes = [one.outcome for one in group]
    errors = [abs(found.points) for one in group for found in one.found]
    fired = [one.seconds for one in group if one.seconds is not None]
    held = [found.holds for one in group for found in one.found if found.holds is not None]
    return [
        name,
        len(group),
        *(outcomes.count(outcome) for outcome in ("right", "partly", "cannot tell", "wrong", None)),
        f"{np.mean(errors):.1f}" if errors else "",
        f"{max(errors):.1f}" if errors else "",
        f"{np.mean(held):.0%}" if held else "",
        f"{len(fired)} of {len(group)}",
        f"{np.median(fired):.0f}" if fired else "",
    ]


def summaries(judged: Sequence[Judged], by: Callable[[Recording], str]) -> str:
    """A line each of the groups that ``by`` makes, and one of all."""
    names = sorted({by(one.recording) for one in judged})
    groups = {name: [one for one in judged if by(one.recording) == name] for name in names}
    return table(SUMMARY, [*(summary(*group) for group in groups.items()), summary("all", judged)])


def main() -> None:
    """Play and print."""
    options = arguments(
        __doc__,
        folder=(["bench/noise/data"], "of recordings"),
        only=("", "recordings whose `JOB + DISTURBANCE` contains this"),
    )
    judged = [one for folder in options.folder for one in play(Folder(Path(folder)), options.only)]
    by_disturbance, by_job = (
        summaries(judged, by) for by in (lambda one: one.disturbance, lambda one: one.job)
    )
    print(table(HEADS, map(line, judged)), by_disturbance, by_job, sep="\n\n")


if __name__ == "__main__":
    main()
