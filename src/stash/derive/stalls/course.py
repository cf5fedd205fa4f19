"""How a measurement went: what a step took in every block of every round, which rounds count, whether it drifted.

Knows the same times as the stalls rest on, before anything is shared out or averaged. Says nothing of why a round
was disturbed.
"""

from __future__ import annotations

from stash.base.records import Profile, Record
from stash.base.stats.rounds import drift
from stash.derive.stalls.step_times import rank_values, step_matrix


class RoundTime(Record):
    """What a step took under one rung in one round, in seconds, by all ranks that ran it."""

    round: int
    rung: str
    step_seconds: float
    """Of the rank that is slowest on average; of the slowest in this round where the round has no time of its own."""
    fastest_seconds: float
    slowest_seconds: float
    ranks: int


class Course(Record):
    """Every block time in the order of rounds and rungs, and what became of the rounds."""

    times: tuple[RoundTime, ...]
    disturbed: tuple[int, ...]
    """Rounds that something hit: what that cost is shared out among all rungs."""
    incomplete: tuple[int, ...]
    """Rounds that lack blocks, which nothing is derived from."""
    drift: float | None
    """Relative change of the step from the first round to the last, if a trend is shown; never by few rounds."""

    @property
    def dropped(self) -> frozenset[int]:
        """Rounds whose own times the stalls do not rest on."""
        return frozenset((*self.disturbed, *self.incomplete))


def course(profile: Profile) -> Course:
    """The course of a profile's measurement."""
    every = step_matrix(profile)
    calm = every.calmed() if every.rounds else every
    alone = [numbers[0] if len(numbers) == 1 else None for numbers in every.sets]
    combined = {
        (number, name): float(every.matrix[row, column])
        for row, number in enumerate(alone)
        for column, name in enumerate(every.rungs)
        if number is not None
    }
    per_rank = rank_values(profile, lambda block: block.seconds)
    order = {name: place for place, name in enumerate(every.rungs)}
    found = sorted((number, order[name], name) for number, name in per_rank if name in order)
    times = []
    for number, _, name in found:
        ranks = per_rank[number, name].values()
        fastest, slowest = min(ranks), max(ranks)
        times.append(
            RoundTime(
                round=number,
                rung=name,
                step_seconds=combined.get((number, name), slowest),
                fastest_seconds=fastest,
                slowest_seconds=slowest,
                ranks=len(ranks),
            )
        )
    complete = set(every.rounds)
    return Course(
        times=tuple(times),
        disturbed=calm.disturbed,
        incomplete=tuple(sorted({number for number, _, _ in found} - complete)),
        drift=drift(calm.matrix[:, -1]) if every.rounds else None,
    )
