"""What made the steps of a job as long as they were, of stamps of every rank. Pure; no common clock is needed.

Steps are counted at the optimizer but cut where the ranks are together, after the exchange: else one rank's slow
optimizer turned up as everyone's exchange a step later. So a *cycle* is the optimizer's stage of one step and the
others of the next. Over its stages in order, with F_s the largest cumulative time of any rank up to stage s, a stage
is exposed for F_s - F_{s-1} (StageFrontier, arXiv 2606.06751). What is waited for others, in the exchange or in
another collective, comes last, wherever in the step it was called. The exposed times of a cycle add up to its longest
rank exactly, and nothing is clamped.

Not known here: what a rank waits for inside a collective in the middle of a step belongs to the stage of another rank
before it. Where such waits are much of a step (sharded models), the step is ``ambiguous``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stash.core.ledger_rows import CHECKPOINT, COLLECTOR, COMPILATION, EPOCH_START, EVALUATION
from stash.measure.protocol.stamped import StampedStep, StepStage
from stash.monitor.records import LateRank

NOW_AND_THEN: Mapping[str, StepStage] = {
    EPOCH_START: StepStage.EPOCH_START,
    EVALUATION: StepStage.EVALUATION,
    CHECKPOINT: StepStage.CHECKPOINT,
    COLLECTOR: StepStage.COLLECTOR,
    COMPILATION: StepStage.COMPILATION,
}
"""Stages that few steps have, by the names of a ledger's rows, which are their stalls' names as well."""
STAGES = (
    StepStage.OPTIMIZER,
    StepStage.BETWEEN,
    *NOW_AND_THEN.values(),
    StepStage.INPUT,
    StepStage.TRANSFER,
    StepStage.FORWARD,
    StepStage.BACKWARD,
    StepStage.COLLECTIVE,
    StepStage.EXCHANGE,
)
"""In the order of a cycle."""
STALLS = (
    "compute",
    "contention",
    "transfer",
    "exchange",
    "input",
    "other",
    *NOW_AND_THEN,
    "disturbed",
)
"""What a window's step is made of, in the order of the ladder; ``other`` is what lies between steps, ``disturbed``
what other work on the machines cost, where that is known."""
OWN_STAGES: Mapping[str, StepStage] = {
    "optimizer": StepStage.OPTIMIZER,
    "between": StepStage.BETWEEN,
    "input": StepStage.INPUT,
    "transfer": StepStage.TRANSFER,
    "forward": StepStage.FORWARD,
    "backward": StepStage.BACKWARD,
    **NOW_AND_THEN,
}
"""Stages in which a rank waits for none of the others, by the names that users read."""
STALL_OF = {
    "optimizer": "compute",
    "forward": "compute",
    "backward": "compute",
    "input": "input",
    "transfer": "transfer",
    "between": "other",
    **{name: name for name in NOW_AND_THEN},
}
_OWN = STAGES.index(StepStage.COLLECTIVE)
"""So many stages come before those in which ranks wait for each other."""
_OPTIMIZER, _BETWEEN, _INPUT, _TRANSFER, _FORWARD, _BACKWARD = (
    STAGES.index(OWN_STAGES[name])
    for name in ("optimizer", "between", "input", "transfer", "forward", "backward")
)
_COMPUTE = (_OPTIMIZER, _FORWARD, _BACKWARD)
_AMBIGUOUS = 0.05
"""Of a step, in collectives inside it, from which on it is."""

SecondsArray = NDArray[np.float64]


@dataclass(frozen=True)
class StepAccount:
    """What steps were made of, on average."""

    steps: int
    step_seconds: float
    seconds: dict[str, float]
    """Of each of ``STALLS``; they add up to the step."""
    set_by: dict[str, int]
    """The rank at the frontier most often, where one rank's being last exposed a stall."""
    ranks: dict[int, dict[str, float]]
    """Each rank's own seconds in each of ``OWN_STAGES``, and ``exchange``."""
    delays: dict[int, float]
    """Each rank's run-queue delay of a step."""
    ambiguous: bool
    """Whether much of the step was in collectives in the middle of it."""


DELAYS = 3
"""Of a step's run-queue delay: all of it, and what fell into waits for input and for the exchange."""


def join_cycles(
    rows: Mapping[int, Sequence[StampedStep]],
) -> tuple[list[int], SecondsArray, SecondsArray]:
    """(numbers, seconds, delays) of the cycles that every rank has whole.

    ``seconds`` is (cycles, ranks, stages) in the order of ``STAGES``, ``delays`` (cycles, ranks, ``DELAYS``); ranks
    ascend.
    """
    ranks = sorted(rows)
    by_number = [{step.number: step for step in rows[rank]} for rank in ranks]
    common = set.intersection(*(set(each) for each in by_number)) if by_number else set()
    numbers = sorted(number for number in common if number - 1 in common)
    seconds = np.empty((len(numbers), len(ranks), len(STAGES)))
    delays = np.empty((len(numbers), len(ranks), DELAYS))
    places = [stage - StepStage.BETWEEN for stage in STAGES]
    for index, steps in enumerate(by_number):
        for at, number in enumerate(numbers):
            stages = steps[number].stages
            seconds[at, index] = [stages[place] for place in places]
            seconds[at, index, 0] = steps[number - 1].seconds_in(StepStage.OPTIMIZER)
            row = steps[number]
            delays[at, index] = row.delay, row.input_delay, row.exchange_delay
    return numbers, seconds, delays


def account_cycles(
    ranks: Sequence[int], seconds: SecondsArray, delays: SecondsArray
) -> StepAccount:
    """The mean account of cycles (at least one) of these ranks; ``delays`` is (cycles, ranks)."""
    stages = _stages_first(seconds)
    upto = np.zeros(stages.shape[1:])
    tops = []
    last = []
    for stage in stages:  # one sum for all stages, so that it stays in the cache
        upto += stage
        tops.append(upto.max(axis=1))
        last.append(upto.argmax(axis=1))
    shown = np.diff(np.array(tops), axis=0, prepend=0.0)
    middle = (len(ranks) - 1) // 2  # of two ranks the faster
    compute = np.partition(sum(stages[at] for at in _COMPUTE), middle, axis=1)[:, middle]
    late = sum(shown[at] for at in _COMPUTE) - compute
    seldom = {name: STAGES.index(stage) for name, stage in NOW_AND_THEN.items()}
    seldom = {name: place for name, place in seldom.items() if shown[place].any()}
    parts = {
        "compute": compute,
        "contention": late,
        "transfer": shown[_TRANSFER],
        "exchange": shown[_OWN:].sum(axis=0),
        "input": shown[_INPUT],
        "other": shown[_BETWEEN],
        **{name: shown[place] for name, place in seldom.items()},
    }
    own = stages.mean(axis=1).T
    places = {name: STAGES.index(stage) for name, stage in OWN_STAGES.items()}
    alone = {"input": _INPUT, "other": _BETWEEN, "contention": _BACKWARD, **seldom}
    setters = {
        stall: ranks[int(np.bincount(last[at], minlength=len(ranks)).argmax())]
        for stall, at in alone.items()
    }
    step = float(shown.sum(axis=0).mean())
    return StepAccount(
        steps=stages.shape[1],
        step_seconds=step,
        seconds={name: float(part.mean()) for name, part in parts.items()},
        set_by=setters if len(ranks) > 1 else {},
        ranks={
            rank: {
                **{name: row[place] for name, place in places.items()},
                "exchange": sum(row[_OWN:]),
            }
            for rank, row in zip(ranks, own.tolist(), strict=True)
        },
        delays=dict(zip(ranks, delays.mean(axis=0).tolist(), strict=True)),
        ambiguous=bool(own[:, _OWN].min() > _AMBIGUOUS * step),
    )


def _stages_first(seconds: SecondsArray) -> SecondsArray:
    """(stages, cycles, ranks): of many ranks that is the order in which sums are quick."""
    return np.ascontiguousarray(np.moveaxis(seconds, 2, 0))


def account_undisturbed(
    ranks: Sequence[int], seconds: SecondsArray, delays: SecondsArray, lost: SecondsArray
) -> StepAccount:
    """The account without what strangers cost, ``lost`` of ``seconds`` (both of one shape), which is ``disturbed``.

    Ranks and stages are told as they would have been: what others did on a machine is no straggler's doing. A rank
    waits for the last one, and after that for what was left of the exchange then.
    """
    stages = _stages_first(seconds)
    strange = _stages_first(lost)
    before = stages[:_OWN].sum(axis=0)
    longest = (before + stages[_OWN:].sum(axis=0)).max(axis=1)
    last = before.argmax(axis=1)
    after = longest - before.max(axis=1)
    after -= np.minimum(strange[_OWN:, np.arange(len(last)), last].sum(axis=0), after)
    calm = np.zeros_like(stages)
    np.subtract(stages[:_OWN], strange[:_OWN], out=calm[:_OWN])
    own = before - strange[:_OWN].sum(axis=0)
    calm[-1] = (own.max(axis=1) + after)[:, None] - own
    found = account_cycles(ranks, np.moveaxis(calm, 0, 2), delays)
    step = float(longest.mean())
    stalls = {**found.seconds, "disturbed": step - found.step_seconds}
    ambiguous = bool(stages[_OWN].mean(axis=0).min() > _AMBIGUOUS * step)
    return replace(found, step_seconds=step, seconds=stalls, ambiguous=ambiguous)


def find_stragglers(found: StepAccount) -> list[LateRank]:
    """Ranks whose excess in a stage is at least 5 % of the step, the worst first; hidden ones too.

    A rank's excess is its mean less the median of the others: what another one hides behind the frontier counts.
    """
    if len(found.ranks) < 2:
        return []
    late = []
    for stage in OWN_STAGES:
        own = {rank: stages[stage] for rank, stages in found.ranks.items()}
        for rank, seconds in own.items():
            excess = seconds - float(
                np.median([each for other, each in own.items() if other != rank])
            )
            if excess >= 0.05 * found.step_seconds > 0:
                late.append(LateRank(rank=rank, stage=stage, seconds=excess))
    return sorted(late, key=lambda each: -each.seconds)
