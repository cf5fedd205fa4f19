"""Where to be now: stay or move, why, what that saves, and what starts the move. Starts nothing itself."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stash.api import (
    AUTOSTOP,
    CLOUDS,
    Catalog,
    plain_name,
    sky_resources,
    sky_task_yaml,
    task_body,
    task_name,
)
from stash.core.errors import UserError
from stash.core.formatting import format_dollars, format_span
from stash.core.records.profile import Profile
from stash.market.job_market import JobMarket, JobState
from stash.market.market_trace import HOUR, MarketTrace


@dataclass(frozen=True, eq=False)
class MarketAdvice:
    """The answer, with what it rests on."""

    state: JobState
    word: str
    """``stay`` or ``move``."""
    sentence: str
    to: int | None
    saves: float | None
    """Dollars over what is left, the move paid; ``None`` where nothing is held, or nothing is better."""
    costs: float | None
    warnings: tuple[str, ...] = ()
    task: str | None = None
    """SkyPilot YAML."""
    command: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


def held_offer(trace: MarketTrace, name: str, now: float) -> int:
    """The offer that ``name`` says, or where its zone has no price ``now``, that of its region; raises UserError."""
    instance, _, place = name.strip().lower().partition("@")
    zone, _, kind = place.partition(":")
    found = [
        (each.place.lower() != zone, number)
        for number, each in enumerate(trace.offers)
        if (each.instance.lower(), each.kind) == (instance, kind or "spot")
        and (each.place.lower() == zone or (not each.zone and zone.startswith(each.region.lower())))
        and not math.isnan(trace.price[trace.find(number, now)])
    ]
    if not found:
        raise UserError(
            f"--on {name}: no such offer has a price now; `stash catalog refresh`, add a market that has it, or "
            "write it like p3.2xlarge@us-east-1:on-demand"
        )
    return min(found)[1]


def advise(
    market: JobMarket,
    held: int | None,
    now: float,
    deadline: float | None = None,
    warnings: Sequence[str] = (),
) -> MarketAdvice:
    """Where to be ``now``: the least that what is left costs, a move included, of what is done by the deadline.

    The job holds the offer of number ``held`` and has all its samples before it. Prices are taken to stand still: how
    they move is for backtests. Where nothing is in time, the soonest.
    """
    here = None if held is None else market.offers[held][:2]
    # Where the job runs there is a copy of its data.
    copies = () if here is None or not market.job.data else (market.home or here, here)
    state = JobState(market, now, now, None, held=held, ready=now, copies=copies)
    options = {number: _outlook(state, number) for number in np.flatnonzero(state.there).tolist()}
    if held is not None:
        options[held] = _outlook(state, held)
    if not options:
        raise UserError(
            "nothing can be rented now at a price that is known; renew them: `stash catalog refresh`"
        )
    in_time = {
        each: it for each, it in options.items() if deadline is None or it.seconds <= deadline
    }

    def dollars_first(number: int) -> tuple[float, bool]:
        return options[number].dollars, number != held

    best = (
        min(in_time, key=dollars_first)
        if in_time
        else min(options, key=lambda each: options[each].seconds)
    )
    others = [each for each in in_time or options if each != held]
    other = min(others, key=dollars_first, default=None) if best == held else best
    saves = costs = None
    if held is not None and other is not None:
        costs = state.move_cost(other)
        saves = options[held].dollars - options[other].dollars
    word = "stay" if best == held else "move"
    sentence = _sentence(state, options, best, other, (saves, costs))
    if deadline is not None and held not in in_time and best != held:
        sentence = f"{sentence} {_late(state, options, best, deadline, bool(in_time))}"
    return MarketAdvice(
        state, word, sentence, best if word == "move" else None, saves, costs, tuple(warnings)
    )


class _Outlook(NamedTuple):
    """What is left of the job on one offer, the move there included."""

    seconds: float
    dollars: float


def _outlook(state: JobState, to: int) -> _Outlook:
    market = state.market
    held = state.held
    seconds = state.left / float(market.rates[to])
    paid = float(state.costs[to]) * state.left
    if to == held:
        return _Outlook(seconds, paid)
    start = market.start_seconds(resumes=held is not None)
    if held is not None:
        return _Outlook(seconds + market.job.save_seconds + start, paid + state.move_cost(to))
    data = 0.0 if market.home is None else market.data_dollars(market.home, to)
    return _Outlook(seconds + start, paid + start * float(state.prices[to]) / HOUR + data)


def _late(
    state: JobState, options: Mapping[int, _Outlook], best: int, deadline: float, is_in_time: bool
) -> str:
    done = f"done in {format_span(options[best].seconds)}"
    if not is_in_time:
        return f"Nothing is done within {format_span(deadline)}: this is the soonest, {done}."
    if state.held is None:
        return f"It is {done}."
    return f"It is {done}; {state.market.offers[state.held].name} takes {format_span(options[state.held].seconds)}."


def _sentence(
    state: JobState,
    options: Mapping[int, _Outlook],
    best: int,
    other: int | None,
    move: tuple[float | None, ...],
) -> str:
    market, held, (saves, costs) = state.market, state.held, move
    if held is None:
        seconds = options[best].seconds
        price = float(state.prices[best])
        return (
            f"Rent {market.offers[best].name} at ${price:.4g}/h: the whole job takes {format_span(seconds)}, its "
            f"start "
            f"included, and costs about {format_dollars(options[best].dollars)} there at today's price."
        )
    here = market.offers[held].name
    if other is None or saves is None or costs is None:
        return f"Stay on {here}: nothing else can be rented now."
    gain = (
        f"saves {format_dollars(saves)}" if saves >= 0 else f"costs {format_dollars(-saves)} more"
    )
    moving = f"{gain} over what is left, the move's {format_dollars(costs)} paid"
    there = market.offers[other].name
    return (
        f"Move to {there}: that {moving}."
        if best != held
        else f"Stay on {here}: moving to {there} {moving}."
    )


def move_task(
    advice: MarketAdvice, profile: Profile | None, catalog: Catalog, target: Path | None
) -> MarketAdvice:
    """The same with what starts the move: a SkyPilot task in one zone, for ``target``. Raises UserError.

    Spot machines are a managed job, which SkyPilot starts again when they are taken away. Without a profile its
    command is to be written in.
    """
    assert advice.to is not None
    job = advice.state.market.job
    offer = advice.state.market.offers[advice.to]
    if offer.cloud not in CLOUDS:
        raise UserError(
            f"{offer.name} ({offer.cloud}) is nothing that SkyPilot rents; start the job there yourself"
        )
    instance = catalog.instance(f"{offer.cloud}/{offer.instance}")
    region = (
        None if offer.region in ("", "any") else "/".join(filter(None, (offer.region, offer.zone)))
    )
    wanted = sky_resources(instance, offer.cloud, region, offer.kind == "spot")
    if offer.kind != "spot":
        wanted["autostop"] = AUTOSTOP
    if profile is None:
        name = plain_name(job.name) or "job"
        task = sky_task_yaml({"name": name, "num_nodes": job.machines, "resources": wanted})
        notes: Sequence[str] = ("write the job's command into run: a job.yaml does not have it",)
    else:
        name = task_name(profile)
        devices = '"$SKYPILOT_NUM_GPUS_PER_NODE"'
        ranks = instance.devices
        task, started = task_body(
            profile, job.machines, ranks, devices if instance.gpu_count else str(ranks), wanted
        )
        notes = started.notes
    how = ("jobs", "launch") if offer.kind == "spot" else ("launch", "-c", name)
    file = target or Path("move.sky.yaml")
    command = ("sky", *how, "--yes", "--detach-run", str(file))
    write = "" if target else f", write the task below to {file}"
    steps = (
        f"save a checkpoint{write}, and: `{shlex.join(command)}`",
        "the job has to go on from its last checkpoint, and find data and checkpoint there",
    )
    return replace(advice, task=task, command=command, next_steps=(*steps, *notes))
