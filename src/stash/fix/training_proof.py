"""What a change did to training: losses and batches of two launches with the same seeds held against each other.

Bit for bit where a change claims to change nothing; within ``TOLERANCE`` where it only claims the order of sums. If
the script as typed does not repeat itself bit for bit, its own two launches say how near is near enough.

Training amplifies the smallest difference: 2e-7 of the first losses was 5 % of single ones 200 steps later. So of a
change of rounding the first losses are held to the tolerance, and of many more their mean, which such a difference
moves to no side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from stash.core.fix_records import Effect, Proof

TOLERANCE = {"rounding": 1e-3, "numerics": 5e-2}
"""Relative difference of any loss."""
_EARLY, _MANY, _OF_MEAN = 20, 100, 1e-2
"""Losses of a rank before rounding has grown; with so many it may have; relative difference of the mean of all."""
_NEAR = 3.0
"""Times what two launches as typed differ by."""
_FEWEST = 5
"""Losses without which nothing is shown."""
TrialEvidence = Sequence[Mapping[str, Any]]
"""By rank, as the agent wrote it."""


def _pair_records(one: TrialEvidence, other: TrialEvidence, name: str) -> list[tuple[Any, Any]]:
    """What both have recorded, rank by rank, up to where the shorter one ends."""
    return [
        pair
        for a, b in zip(one, other, strict=False)
        for pair in zip(a[name], b[name], strict=False)
    ]


def loss_distance(one: TrialEvidence, other: TrialEvidence) -> float | None:
    """The largest relative difference of losses; ``None`` without any. What is no number is infinitely far away."""
    found = None
    for first, second in _pair_records(one, other, "losses"):
        a = float.fromhex(first)
        b = float.fromhex(second)
        if first == second or a == b:
            difference = 0.0
        elif not (math.isfinite(a) and math.isfinite(b)):
            difference = math.inf
        else:
            difference = abs(a - b) / max(abs(a), abs(b))
        found = max(found or 0.0, difference)
    return found


def _count_repeats(ranks: TrialEvidence, batches: int) -> int:
    """How often the print of a batch comes again among the first ``batches`` of all ranks."""
    prints = [each for rank in ranks for each in rank["batches"][:batches] if each is not None]
    return len(prints) - len(set(prints))


def judge_training(
    typed: TrialEvidence, changed: TrialEvidence, effect: Effect, own: float | None
) -> Proof:
    """What ``changed`` trained against the script as ``typed``; ``own``: how far two launches as typed are apart."""
    known = [pair for pair in _pair_records(typed, changed, "batches") if None not in pair]
    fewest = min((len(rank["batches"]) for rank in (*typed, *changed)), default=0)
    again = _count_repeats(changed, fewest) - _count_repeats(typed, fewest)
    other = sum(a != b for a, b in known)
    losses = len(_pair_records(typed, changed, "losses"))
    difference = loss_distance(typed, changed)
    if again > 0:
        holds = False
        text = f"{again} of {fewest * len(changed)} batches came twice"
    elif other and effect != "order" and not own:
        holds = False
        text = f"{other} of {len(known)} batches were others"
    elif losses < _FEWEST or difference is None:
        text = "no losses were seen, so nothing is shown but that the batches are the same"
        holds = bool(known) and not other
    else:
        holds, text = _judge_losses(typed, changed, effect, own, difference, losses)
    return Proof(
        holds=holds,
        text=text,
        losses=losses,
        batches=len(known),
        largest_difference=None if difference == math.inf else difference,
    )


def _judge_losses(
    typed: TrialEvidence,
    changed: TrialEvidence,
    effect: Effect,
    own: float | None,
    difference: float,
    losses: int,
) -> tuple[bool, str]:
    """Whether losses that differ by as much are of the same training, and what is said of it."""
    allowed = TOLERANCE.get(effect, 0.0)
    if effect == "order":
        return math.isfinite(difference), "the same samples in another order"
    if difference == 0:
        return True, f"{losses} losses the same, bit for bit"
    if own and difference <= _NEAR * own:
        apart = f"losses differ by {difference:.1e} at most; two unmodified launches by {own:.1e}"
        return True, apart
    is_amplified = effect == "rounding" and allowed < difference < math.inf
    if is_amplified and losses >= _MANY * len(changed):
        first = [
            [{"losses": rank["losses"][:_EARLY]} for rank in side] for side in (typed, changed)
        ]
        early = loss_distance(*first) or 0.0
        columns = zip(*_pair_records(typed, changed, "losses"), strict=True)
        one, two = (fmean(map(float.fromhex, column)) for column in columns)
        of_mean = abs(one - two) / (max(abs(one), abs(two)) or 1.0)
        text = f"the first {_EARLY} losses differ by {early:.1e} at most, the mean of {losses} by {of_mean:.1e}"
        return early <= allowed and of_mean <= _OF_MEAN, text
    limit = f" ({allowed:.0e} allowed)" if allowed else ""
    return difference <= allowed, f"losses differ by {difference:.1e} at most{limit}"
