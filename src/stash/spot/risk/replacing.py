"""An asynchronous fleet whose workers are revoked one by one, and replaced: how far it is at the deadline.

Servers keep the parameters, so a revocation loses its worker's gradient under way and the time until another has
joined; the others go on, at the speed of a smaller fleet. With the loss model as it is, a fleet that would take T
seconds does 1 / T of the work in a second, whatever did the rest. Another machine is asked for at once, and is paid
from then on. Knows no prices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stash.predict.draws import Array, Bools
from stash.spot.choose.fleet_costs import FleetWish, all_fleets

_MAX_MARKS = 4_000_000
"""Joins and revocations held at once: some 100 MB."""
_MAX_CHUNKS = 8
_MAX_LIVES = 100_000
"""Of one worker in one run."""


@dataclass(frozen=True, eq=False)
class FleetSpeeds:
    """Work done in a second, 1 being all of it, by every part of one fleet."""

    whole: tuple[int, ...]
    """Machines of each type."""
    table: Array
    """Of every part: [machines of the first type, of the second, …]."""

    def of(self, counts: Array) -> Array:
        """Speed of parts, [type, …], in the last dimensions' shape."""
        found: Array = self.table[tuple(counts.astype(int))]
        return found


def speeds(wish: FleetWish, workers: Sequence[tuple[int, int]]) -> FleetSpeeds:
    """Speeds of every part of a fleet of ``workers``: (place of the type in the pool, how many)."""
    kinds = tuple(wish.pool.types[at].model_copy(update={"quota": count}) for at, count in workers)
    part = replace(wish, pool=wish.pool.model_copy(update={"types": kinds}))
    whole = tuple(count for _, count in workers)
    found = all_fleets(part)
    training = found.updates / found.progress.updates_per_second
    rates = np.where(np.isfinite(found.seconds), 1 / training, 0.0)
    return FleetSpeeds(whole, np.concatenate([[0.0], rates]).reshape([count + 1 for count in whole]))


@dataclass(frozen=True, eq=False)
class FleetRuns:
    """What came of runs: [run] each."""

    seconds: Array
    """Until all work is done; infinite where that is not before the deadline."""
    revocations: Array
    """Of all machines, until then or the deadline."""

    @staticmethod
    def joined(parts: Sequence[FleetRuns]) -> FleetRuns:
        return FleetRuns(
            np.concatenate([part.seconds for part in parts]), np.concatenate([part.revocations for part in parts])
        )


def _marks(rates: Sequence[float], fleet: FleetSpeeds, deadline: float) -> float:
    """Of one run, about."""
    return sum(count * (2 + 2 * deadline * rate) for count, rate in zip(fleet.whole, rates, strict=True))


def affordable(rates: Sequence[float], fleet: FleetSpeeds, deadline: float, runs: int) -> int:
    """``runs``, or as many as there is time for, where revocations are many."""
    return max(min(runs, int(_MAX_CHUNKS * _MAX_MARKS / _marks(rates, fleet, deadline))), 2)


def by_rates(
    fleet: FleetSpeeds,
    rates: Sequence[float],
    join: float,
    work: Array,
    deadline: float,
    generator: np.random.Generator,
) -> FleetRuns:
    """Runs of workers that are revoked at these rates, a second, one a type.

    ``work`` is what each run has to do, 1 being what is predicted: [run].
    """
    at_once = max(int(_MAX_MARKS / _marks(rates, fleet, deadline)), 1)
    parts = []
    for first in range(0, len(work), at_once):
        here = work[first : first + at_once]
        timeline = _timeline(fleet, rates, join, len(here), deadline, generator)
        parts.append(_run_through(fleet, *timeline, here, deadline))
    return FleetRuns.joined(parts)


def _timeline(
    fleet: FleetSpeeds,
    rates: Sequence[float],
    join: float,
    runs: int,
    deadline: float,
    generator: np.random.Generator,
) -> tuple[Array, Array, Bools]:
    """Moments in which some run's fleet changes, ascending: (when, machines of each type from then on, revoked then).

    [run, moment], [type, run, moment] and [run, moment].
    """
    moments, types, changes = [], [], []
    for number, (rate, count) in enumerate(zip(rates, fleet.whole, strict=True)):
        for born, gone in _lives(rate, count, deadline, runs, generator):
            for moment, change in ((np.minimum(born + join, gone), 1), (gone, -1)):
                moments.append(np.minimum(moment, deadline))
                types += [number] * count
                changes += [change] * count
    when = np.concatenate(moments, axis=1)
    order = np.argsort(when, axis=1)
    when, kind, step = np.take_along_axis(when, order, axis=1), np.array(types)[order], np.array(changes)[order]
    counts = np.stack([np.cumsum(np.where(kind == each, step, 0), axis=1) for each in range(len(fleet.whole))])
    # Of marks at one moment the joins may come first; clipped, such a sum lasts no time.
    most = np.array(fleet.whole)[:, None, None]
    return when, np.clip(counts, 0, most).astype(float), (step < 0) & (when < deadline)


def _run_through(
    fleet: FleetSpeeds, when: Array, counts: Array, revoked: Bools, work: Array, deadline: float
) -> FleetRuns:
    """How long each run of a timeline takes for its ``work``: [run]."""
    rows = np.arange(len(work))
    until = np.concatenate([when[:, 1:], np.full((len(work), 1), deadline)], axis=1)
    rates = fleet.of(counts)
    done = np.cumsum(rates * (until - when), axis=1)
    reached = (done >= work[:, None]).argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        early = (done[rows, reached] - work) / rates[rows, reached]
    ends = np.where(done[:, -1] >= work, until[rows, reached] - early, np.inf)
    return FleetRuns(ends, (revoked & (when < ends[:, None])).sum(axis=1).astype(float))


def _lives(
    rate: float, count: int, deadline: float, runs: int, generator: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """(when machines are asked for, when they are gone) of ``count`` workers, life after life: [run, worker]."""
    born = np.zeros((runs, count))
    for _ in range(_MAX_LIVES):
        drawn = -np.log(1 - generator.random((runs, count)))
        gone = born + drawn / rate if rate else np.full((runs, count), math.inf)  # on demand: never
        yield born, gone
        born = np.minimum(gone, deadline)
        if (born >= deadline).all():
            return


def by_record(
    fleet: FleetSpeeds, machines: Sequence[Array], gap: float, join: float, work: Array, deadline: float
) -> FleetRuns:
    """Runs through records of what could be had, one a type, [tick], from each tick that has a whole run after it.

    A worker joins ``join`` after the tick from which on its machine could be had, and goes with the tick in which it
    cannot. ``work`` as in ``by_rates``, one a run: as many as there are such ticks.
    """
    ticks = max(math.ceil(deadline / gap - 1e-9), 1)
    held = [np.minimum(each, count) for each, count in zip(machines, fleet.whole, strict=True)]
    full, part = divmod(join, gap)
    old = int(full) + 1
    runs = len(held[0]) - ticks + 1
    done, ends, revoked = np.zeros(runs), np.full(runs, np.inf), np.zeros(runs)
    before = [np.zeros(runs) for _ in held]
    for tick in range(ticks):
        span = min(gap, deadline - tick * gap)
        late = np.clip(part, 0, span)
        # Old enough for the whole tick; or for all of it but its first ``part``.
        rates = [fleet.of(np.stack([_there(each, runs, tick, age) for each in held])) for age in (old, old - 1)]
        added = late * rates[0] + (span - late) * rates[1]
        here = (done < work) & (done + added >= work)
        first = late * rates[0]
        need = np.where(here, work - done, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            took = np.where(need <= first, need / rates[0], late + (need - first) / rates[1])
        now = [each[tick : tick + runs].astype(float) for each in held]
        going = done < work
        revoked += np.where(going, sum(np.maximum(a - b, 0) for a, b in zip(before, now, strict=True)), 0.0)
        before = now
        done = done + added
        ends = np.where(here, tick * gap + took, ends)
    return FleetRuns(ends, revoked)


def _there(held: Array, runs: int, tick: int, age: int) -> Array:
    """Machines of each run that have been there for ``age`` ticks before this one: [run]; none at its beginning."""
    if age > tick:
        return np.zeros(runs)
    windows = sliding_window_view(held[tick - age : tick + runs], age + 1)
    return np.asarray(windows.min(axis=1), dtype=float)
