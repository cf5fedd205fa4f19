"""When to rent where: once, every day, on spot alone, or so that the job is in time.

r = p / (3600 · q) is what a sample costs on an offer, p dollars an hour of all machines and q samples a second. Each
policy is a pure function with its formula and its source beside it: DISPA'20 is "Analysis and Exploitation of Dynamic
Pricing in the Public Cloud for ML Training", NSDI'24 "Can't Be Late", whose two are decided once a tick; a revocation
is noticed at once.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.units import find_nearest
from stash.market.job_market import JobMarket, JobState, Policy, PolicyDecision
from stash.market.market_trace import DAY, Integers

NAMES = (
    "stay",
    "multi-cloud",
    "daily",
    "spot-wait",
    "uniform-progress",
)
DEFAULT = NAMES[:3]
_TICK = 600.0
_SAME = 1e-9


def once(state: JobState, allowed: Integers | None = None) -> PolicyDecision:
    """argmin r over a set, once; again when the machine is taken away (DISPA'20)."""
    hold = state.held if state.held is not None else state.best(allowed)
    return PolicyDecision(hold, changes=hold is None)


def daily(state: JobState) -> PolicyDecision:
    """argmin r over everything, again every 24 hours (DISPA'20)."""
    due = state.memory
    held = state.held
    if held is not None and due is not None and state.now < due:
        return PolicyDecision(held, due, False, due)
    best = state.best()
    if best is None:
        return PolicyDecision(None)
    if held is not None and state.there[held] and state.costs[held] <= state.costs[best]:
        best = held
    due = state.now + DAY
    return PolicyDecision(best, due, False, due)


def spot_wait(state: JobState) -> PolicyDecision:
    """Spot machines while they last, and waiting without (NSDI'24)."""
    _, spots = _fixed_and_spots(state)
    held = state.held
    keeps = held is not None and state.market.offers[held].kind == "spot"
    return PolicyDecision(held if keeps else state.best(spots), state.now + _TICK, False)


def uniform_progress(state: JobState) -> PolicyDecision:
    """As much done as time has passed: on demand once behind, spot when ahead (NSDI'24).

    Work is counted in seconds on the on-demand offer, checkpoints included. Memory: whether on-demand machines are
    held to the end. The last moment of an idle job is R < C + 2 · d; it decides again a tick later only, so without
    spot machines R − gap counts. Raises UserError without an on-demand offer.
    """
    market = state.market
    now = state.now
    deadline = state.deadline
    held = state.held
    fixed, spots = _fixed_and_spots(state)
    if fixed is None:
        raise UserError(
            "--policy uniform-progress: it needs an on-demand offer, which this market has none of then; add one "
            "(docs/market.md)"
        )
    assert deadline is not None
    rate = float(market.rates[fixed]) / (1 + market.job.save_seconds / market.job.interval)
    work = market.job.samples / rate
    kept = (market.job.samples - state.saved) / rate
    left = state.left / rate
    rest = deadline - now
    move = market.start_seconds(True) + market.job.save_seconds
    on_spot = held is not None and market.offers[held].kind == "spot"
    best = held if on_spot else state.best(spots)
    gap = min(_TICK, max(rest, 1.0))
    # Whether on-demand machines would be in time if spot ones were held in this tick and revoked at its end.
    wait, fresh = (max(state.ready - now, 0.0), kept - left) if on_spot else (move, 0.0)
    worked = max(min(gap, rest) - wait, 0.0)
    interval = min(market.job.interval + market.job.save_seconds, 2 * work + 1)
    lost = kept - math.floor((fresh + worked) / interval + _SAME) * interval
    safe = (
        worked >= kept - fresh - _SAME
        or lost <= 0
        or rest - gap >= lost + move - _SAME * (deadline - state.started)
    )
    last = (rest if best is not None else rest - gap) < left + 2 * move
    final = bool(state.memory) or (last and held is None)
    final = final or (best is not None and not safe and (held is None or on_spot))
    pace = work / (deadline - state.started)
    elapsed = now - state.started
    done = work - left
    ahead = best is not None and safe and done >= (elapsed + 2 * move) * pace
    behind = held is None and best is None and done < elapsed * pace
    stays = held is not None and not on_spot and not ahead
    return PolicyDecision(fixed if final or behind or stays else best, now + _TICK, False, final)


def _fixed_and_spots(state: JobState) -> tuple[int | None, Integers]:
    """The best on-demand offer, and the spot offers that are no slower."""
    rates = state.market.rates
    is_spot = np.array([each.kind == "spot" for each in state.market.offers])
    fixed = state.best(np.flatnonzero(~is_spot))
    return fixed, np.flatnonzero(
        is_spot & (rates >= (0.0 if fixed is None else rates[fixed] * 0.999))
    )


def policy(name: str, market: JobMarket, home: str | None = None) -> Policy:
    """The policy called so, or ``stay:p3.2xlarge``, on this market; raises UserError.

    ``home`` is the instance that ``stay`` holds, unless it is named.
    """
    base, colon, option = name.strip().partition(":")
    if base == "stay":
        # The cheapest zone of one instance for a sample, once.
        instance = option or home or _usual_home(market)
        numbers = np.flatnonzero([offer.instance == instance for offer in market.offers])
        if not len(numbers):
            names = sorted({each.instance for each in market.offers})
            raise UserError(
                f"--policy stay:{instance}: no offer on which the job's speed is known; there are "
                f"{join_names(find_nearest(instance, names) or names[:4])}"
            )
        return Policy(f"stay:{instance}", partial(once, allowed=numbers))
    decide = _RULES.get(base)
    if decide is not None and not colon:
        return Policy(base, decide)
    alike = find_nearest(base, NAMES, 2)
    hint = (
        f"did you mean {join_names(alike)}?"
        if alike
        else f"there are {join_names(NAMES, len(NAMES))}"
    )
    raise UserError(f"--policy {name}: there is no such policy; {hint}")


_RULES = {
    "multi-cloud": once,
    "daily": daily,
    "spot-wait": spot_wait,
    "uniform-progress": uniform_progress,
}


def _usual_home(market: JobMarket) -> str:
    """Where none is named: the first instance of the job's rates that the market has."""
    names = [name.rpartition("/")[2] for name in market.job.rates]
    return min((each.instance for each in market.offers), key=names.index)
