"""What a policy says now: stay or move, why, what it saves, what would change its mind, and what starts the move.

Starts nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from stash.catalog.offers import Catalog
from stash.catalog.sky import AUTOSTOP, CLOUDS, plain_name, resources, task_yaml
from stash.core.errors import UserError
from stash.core.formatting import dollars, span
from stash.core.records.profile import Profile
from stash.market.decisions import JobMarket, JobState, MoveTo, OfferBoard, Policy, Stay, Wait
from stash.market.jobs import MarketJob
from stash.market.market_trace import HOUR, MarketOffer, MarketTrace, stamp
from stash.market.replaying import data_home
from stash.plan.launch import task_body, task_name

_MAX_SHOWN = 8
_FACTORS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Of a price that is tried."""


@dataclass(frozen=True)
class MarketAdvice:
    """The answer, with what it rests on."""

    job: str
    policy: str
    now: float
    word: str
    """``stay``, ``move`` or ``wait``."""
    sentence: str
    to: str | None
    """The offer to rent."""
    saves: float | None
    """Dollars over what is left, the move paid; ``None`` where nothing is held, or nothing is better."""
    costs: float | None
    """Dollars of the move."""
    offers: tuple[tuple[str, float, float, float, bool], ...]
    """Name, dollars an hour, samples a second, dollars a sample, whether held."""
    changes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    task: str | None = None
    """SkyPilot YAML."""
    command: tuple[str, ...] | None = None
    """What starts it."""
    next_steps: tuple[str, ...] = ()


def held_offer(trace: MarketTrace, name: str, now: float) -> tuple[MarketTrace, int, str | None]:
    """(trace, the offer that ``name`` says, what to know of its price); raises UserError.

    Where its zone is not in the market, it is an offer of its region. Where the zone's record has ended, its price is
    that of the region ``now``, and the trace says so.
    """
    prices = trace.price[trace.pieces(now)]
    own, wrong = None, None
    try:
        own = trace.number(name)
    except UserError as error:
        wrong = error
    if own is not None and not math.isnan(prices[own]):
        return trace, own, None
    instance, _, place = name.partition("@")
    kind = "on-demand" if place.endswith(":on-demand") else "spot"
    zone = place.partition(":")[0]
    for number, each in enumerate(trace.offers):
        same = not math.isnan(prices[number]) and each.instance == instance.rpartition("/")[2] and each.kind == kind
        if same and each.region and zone.startswith(each.region):
            if own is None:
                return trace, number, f"{zone} has no price of its own: that of {each.place} is taken"
            price = trace.price.copy()
            price[trace.piece(own, now)] = prices[number]
            return replace(trace, price=price), own, f"{zone} has no price now: that of {each.place} is taken"
    if own is None:
        raise UserError(f"--on {wrong}") from wrong
    return trace, own, f"{name} has no price now, so what staying there costs is not known"


def advise(
    market: JobMarket,
    policy: Policy,
    held: int | None,
    now: float,
    deadline: float | None = None,
    warnings: Sequence[str] = (),
) -> MarketAdvice:
    """What ``policy`` says ``now`` of a job that holds the offer of number ``held``, and has all its samples before
    it.

    The policy is asked as if it had not been before. Raises UserError.
    """
    answer = _asked(market, policy, held, now, deadline)
    board = _board(market, held, now)
    best = board.best()
    word = (
        "move" if isinstance(answer, MoveTo) and answer.to != held else "wait" if isinstance(answer, Wait) else "stay"
    )
    to = answer.to if isinstance(answer, MoveTo) else None
    if word == "stay" and held is None:
        word = "wait"
    target = to if word == "move" else best
    saves = costs = None
    if held is not None and target is not None and target >= 0 and target != held:
        costs = board.move_cost(held, target)
        gain = float(board.costs[held] - board.costs[target]) * market.job.samples
        saves = gain - costs if not math.isnan(gain) else None
    return MarketAdvice(
        market.job.name,
        policy.name,
        now,
        word,
        _sentence(market, board, word, held, target, saves, costs),
        None if word != "move" or to is None else market.offers[to].name,
        saves,
        costs,
        tuple(_listed(board, held)),
        (*_again(answer, now), *_changes(market, policy, held, now, deadline, word)),
        tuple(warnings),
    )


def _again(answer: Stay | MoveTo | Wait, now: float) -> list[str]:
    if not now < answer.until < math.inf:
        return []
    return [f"time: at today's prices the policy looks again by {stamp(answer.until)}, in {span(answer.until - now)}"]


def _board(market: JobMarket, held: int | None, now: float) -> OfferBoard:
    """The offers at ``now``; where the job runs there is a copy of its data."""
    if held is None or not market.job.data:
        return OfferBoard(market, now)
    home = data_home(market) or market.homes[held]
    return OfferBoard(market, now, {home, market.homes[held]}, home)


def _asked(
    market: JobMarket, policy: Policy, held: int | None, now: float, deadline: float | None
) -> Stay | MoveTo | Wait:
    board = _board(market, held, now)
    rented = held if held is not None and board.there[held] else None
    end = None if deadline is None else now + deadline
    state = JobState(now, end, market.job.samples, 0.0, 0.0, rented, now)
    return policy.decide(now, state, board, policy.memory)[0]


def _sentence(
    market: JobMarket, board: OfferBoard, word: str, held: int | None, to: int | None, saves: float | None,
    costs: float | None,
) -> str:  # fmt: skip
    here = "" if held is None else market.offers[held].name
    there = "" if to is None or to < 0 else market.offers[to].name
    price = f"{there} at ${float(board.prices[to]):.4g}/h" if there else ""
    if word == "wait":
        if here:
            return f"Save, give {here} back and wait, says this policy: it would hold nothing now."
        if not there:
            return "Wait: nothing on which the job's speed is known can be rented now."
        return f"Wait, says this policy, though {price} can be rented now."
    if not here:
        seconds = market.job.samples / float(board.rates[to])
        cost = seconds * float(board.prices[to]) / HOUR
        whole = f"takes {span(seconds)} and costs about {dollars(cost)} there at today's price"
        return f"Rent {price}: the whole job {whole}."
    if word == "move":
        if saves is None or costs is None:
            return f"Move to {there}, says this policy: what {here} costs now is not known."
        if saves < 0:
            more = dollars(-saves)
            return f"Move to {there}, says this policy, though that costs {more} more, the move included."
        return f"Move to {there}: it saves {dollars(saves)} over what is left, the move's {dollars(costs)} paid."
    if math.isnan(board.prices[held]):
        return f"Stay on {here}, says this policy: what it costs now is not known."
    if saves is None or costs is None:
        return f"Stay on {here}: nothing that can be rented now costs less for a sample."
    if saves <= 0:
        return (
            f"Stay on {here}: moving to {there}, the cheapest for a sample, costs {dollars(costs)} and would not pay."
        )
    return (
        f"Stay on {here}, says this policy: {there} would save {dollars(saves)} over what is left, a move of "
        f"{dollars(costs)} paid, if prices stay."
    )


def _listed(board: OfferBoard, held: int | None) -> list[tuple[str, float, float, float, bool]]:
    """The cheapest for a sample first, each with what a sample costs in dollars."""
    order = [int(each) for each in np.argsort(board.per_sample, kind="stable") if np.isfinite(board.per_sample[each])]
    shown = order[:_MAX_SHOWN]
    if held is not None and held not in shown:
        shown.append(held)
    return [
        (
            f"{board.offers[each].cloud}/{board.offers[each].name}",
            float(board.prices[each]),
            float(board.rates[each]),
            float(board.costs[each]),
            each == held,
        )
        for each in shown
    ]


def _changes(
    market: JobMarket, policy: Policy, held: int | None, now: float, deadline: float | None, word: str
) -> list[str]:
    """Prices at which the policy would answer otherwise, tried one by one."""
    board = _board(market, held, now)
    order = [int(each) for each in np.argsort(board.per_sample, kind="stable") if np.isfinite(board.per_sample[each])]
    best = next((each for each in order if each != held), None)
    if held is None or best is None:
        return ["an offer that can be rented"] if best is None else ["another price of the cheapest offer"]

    def answers(offer: int, factor: float) -> bool:
        prices = market.trace.price.copy()
        prices[market.trace.piece(offer, now)] *= factor
        changed = replace(market, trace=replace(market.trace, price=prices))
        answer = _asked(changed, policy, held, now, deadline)
        return (isinstance(answer, MoveTo) and answer.to != held) == (word == "move")

    # What makes the policy move is that the best falls or what is held rises; what makes it stay is the opposite.
    falling, rising = (held, best) if word == "move" else (best, held)
    found = [
        *_first(partial(answers, falling), board, falling, "falls", _FACTORS),
        *_first(partial(answers, rising), board, rising, "rises", [1 / each for each in _FACTORS]),
    ]
    return found or ["no single price of today, between a tenth and ten times of what it is"]


def _first(
    same: Callable[[float], bool], board: OfferBoard, offer: int, word: str, factors: Sequence[float]
) -> list[str]:
    price = float(board.prices[offer])
    for factor in factors:
        if not same(factor):
            return [f"{board.offers[offer].name} {word} to ${price * factor:.4g}/h (now ${price:.4g}/h)"]
    return []


# A move as it is started: a SkyPilot task in one zone, and the command that launches it.


@dataclass(frozen=True)
class MoveTask:
    """YAML that ``sky`` takes, and what a person has to see to."""

    name: str
    yaml: str
    notes: tuple[str, ...]


def move_task(offer: MarketOffer, job: MarketJob, profile: Profile | None, catalog: Catalog) -> MoveTask:
    """The job on ``offer``; without a profile its command is to be written in. Raises UserError."""
    if offer.cloud not in CLOUDS:
        raise UserError(f"{offer.name} ({offer.cloud}) is nothing that SkyPilot rents; start the job there yourself")
    instance = catalog.instance(f"{offer.cloud}/{offer.instance}")
    region = None if offer.region in ("", "any") else "/".join(filter(None, (offer.region, offer.zone)))
    wanted = resources(instance, offer.cloud, region, offer.kind == "spot")
    if offer.kind != "spot":
        wanted["autostop"] = AUTOSTOP
    resumes = "the job has to go on from its last checkpoint, and find data and checkpoint there"
    if profile is None:
        name = plain_name(job.name) or "job"
        body = task_yaml({"name": name, "num_nodes": job.machines, "resources": wanted})
        return MoveTask(name, body, (resumes, "write the job's command into run: a job.yaml does not have it"))
    rate = job.rate(offer)
    ranks = instance.devices if rate is None else rate.gpus
    devices = '"$SKYPILOT_NUM_GPUS_PER_NODE"' if instance.gpu_count else str(ranks)
    body, started = task_body(profile, job.machines, ranks, devices, wanted)
    return MoveTask(task_name(profile), body, (resumes, *started.notes))


def start_command(offer: MarketOffer, name: str, file: Path) -> tuple[str, ...]:
    """What launches it: spot machines as a managed job, which SkyPilot starts again when they are taken away."""
    if offer.kind == "spot":
        return ("sky", "jobs", "launch", "--yes", "--detach-run", str(file))
    return ("sky", "launch", "--yes", "--detach-run", "-c", name, str(file))
