"""Policies that follow prices: where to rent, once, every day, or when moving has paid for itself.

r = p / (3600 · q) is what a sample costs on an offer, p dollars an hour of all machines and q samples a second. Each
policy is a pure function with its formula and its source beside it. Those with deadlines are in ``deadline_rules``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.formatting import listed
from stash.core.units import nearest
from stash.market.decisions import JobMarket, JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, Stay, Wait
from stash.market.market_trace import DAY, HOUR, MarketOffer


def _once(now: float, state: JobState, board: OfferBoard, memory: Any, which: Callable[[MarketOffer], bool]) -> Any:
    """The cheapest for a sample of those allowed, held until it is taken away."""
    if state.offer is not None:
        return Stay(changes=False), memory
    best = board.best(board.market.numbers(which))
    return (Wait() if best < 0 else MoveTo(best, changes=False)), memory


def once(name: str, which: Callable[[MarketOffer], bool], text: str) -> Policy:
    """argmin r over a set, once; again when the machine is taken away (DISPA'20)."""
    return Policy(name, partial(_once, which=which), None, text)


def _daily(
    now: float, state: JobState, board: OfferBoard, memory: float | None, every: float
) -> tuple[PolicyAnswer, Any]:
    """argmin r over everything, again ``every`` so many seconds; 0: at every change (DISPA'20)."""
    due = memory is None or now >= memory or state.offer is None
    if not due:
        return Stay(until=memory or math.inf, changes=False), memory
    best = board.best()
    if best < 0:
        return Wait(), None
    if state.offer is not None and board.per_sample[state.offer] <= board.per_sample[best]:
        best = state.offer
    again = now + every if every else math.inf
    answer = Stay(again, changes=not every) if best == state.offer else MoveTo(best, again, changes=not every)
    return answer, again if every else now


def _look_ahead(
    now: float, state: JobState, board: OfferBoard, memory: Any, horizon: float
) -> tuple[PolicyAnswer, Any]:
    """Move when (r_now − r_b) · samples of the next ``horizon`` seconds exceed M, as if prices stood still."""
    best = board.best()
    if state.offer is None:
        return (Wait() if best < 0 else MoveTo(best)), memory
    if best < 0 or best == state.offer:
        return Stay(), memory
    gain = float(board.costs[state.offer] - board.costs[best])
    samples = min(state.left, horizon * float(board.rates[best]))
    return (MoveTo(best) if gain * samples > board.move_cost(state.offer, best) else Stay()), memory


def stay(instance: str) -> Policy:
    """The cheapest zone of one instance."""
    return once(f"stay:{instance}", lambda offer: offer.instance == instance, f"the cheapest zone of {instance}")


def multi_cloud() -> Policy:
    """The cheapest for a sample of everything."""
    return once("multi-cloud", lambda offer: True, "the cheapest for a sample of everything, once")


def daily(every: float = DAY) -> Policy:
    """The cheapest for a sample of everything, again every so many seconds; 0: at every change."""
    name = "daily" if every == DAY else "daily:every=change" if not every else f"daily:every={every:g}s"
    text = "at every change" if not every else f"every {every / HOUR:g} h"
    return Policy(name, partial(_daily, every=every), None, f"the cheapest for a sample of everything, again {text}")


def look_ahead(horizon: float) -> Policy:
    """Move when a horizon at today's prices saves more than moving costs."""
    text = f"move when {horizon / HOUR:g} h at today's prices save more than moving costs"
    return Policy(f"look-ahead:{horizon / HOUR:g}h", partial(_look_ahead, horizon=horizon), None, text)


# Names, as ``--policy`` takes them

NAMES = ("stay", "gpu-type", "packed", "multi-cloud", "daily", "look-ahead", "spot-wait", "uniform-progress")
DEADLINE_NAMES = NAMES[6:]
DEFAULT = NAMES[:6]


def policy(name: str, market: JobMarket, home: str | None = None) -> Policy:
    """The policy called so, ``stay:p3.2xlarge`` or ``look-ahead:6h``, on this market; raises UserError.

    ``home`` is the instance that ``stay`` holds and whose cloud ``gpu-type`` and ``packed`` keep to, unless it is
    named.
    """
    base, _, option = name.strip().partition(":")
    if base not in NAMES:
        alike = nearest(base, NAMES, 2)
        hint = f"did you mean {listed(alike)}?" if alike else f"there are {listed(NAMES, len(NAMES))}"
        raise UserError(f"--policy {name}: there is no such policy; {hint}")
    if base in DEADLINE_NAMES:
        from stash.market.deadline_rules import deadline_policy

        return deadline_policy(base)
    if base in ("stay", "gpu-type", "packed"):
        return _homely(base, option, market, home)
    if base == "multi-cloud":
        return multi_cloud()
    if base == "daily":
        text = option.removeprefix("every=")
        return daily(DAY if not option else 0.0 if text == "change" else _seconds(name, text))
    return look_ahead(_seconds(name, option or "24h"))


def _seconds(name: str, text: str) -> float:
    try:
        return parsers.duration(text)
    except UnitError as error:
        raise UserError(f"--policy {name}: {error}") from error


def _homely(base: str, option: str, market: JobMarket, home: str | None) -> Policy:
    instance = option or home or _usual_home(market)
    offers = [each for each in market.offers if each.instance == instance]
    if not offers:
        names = sorted({each.instance for each in market.offers})
        alike = nearest(instance, names) or names[:4]
        raise UserError(
            f"--policy {base}:{instance}: no offer on which the job's speed is known; there are {listed(alike)}"
        )
    cloud = offers[0].cloud
    if base == "stay":
        return stay(instance)
    if base == "packed":
        text = f"the cheapest for a sample of all of {cloud}, once"
        return once("packed", lambda offer: offer.cloud == cloud, text)
    found = [(each, market.job.rate(each)) for each in market.offers]
    single = frozenset(each.instance for each, rate in found if rate is not None and rate.gpus == 1)
    if not any(each.instance in single and each.cloud == cloud for each in market.offers):
        raise UserError(f"--policy gpu-type: {cloud} has no instance with one GPU in this market; leave it out")
    text = f"the cheapest for a sample of {cloud}'s instances with one GPU, once"
    return once("gpu-type", lambda offer: offer.cloud == cloud and offer.instance in single, text)


def _usual_home(market: JobMarket) -> str:
    """Where none is named: the first instance of the job's rates that the market has, with one GPU if any."""
    names = [name.rpartition("/")[2] for name in market.job.rates]
    there = [name for name in names if any(each.instance == name for each in market.offers)]
    rates = {each.instance: market.job.rate(each) for each in market.offers}
    single = [name for name in there if (rate := rates[name]) is not None and rate.gpus == 1]
    return (single or there)[0]
