"""What a policy says now: stay or move, why, what it saves, and what starts the move. Starts nothing itself."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stash.catalog.offers import Catalog
from stash.catalog.sky import AUTOSTOP, CLOUDS, plain_name, resources, task_yaml
from stash.core.errors import UserError
from stash.core.formatting import dollars, span
from stash.core.records.profile import Profile
from stash.market.job_market import JobMarket, JobState, Policy
from stash.market.market_trace import HOUR, MarketTrace
from stash.plan.launch import task_body, task_name


@dataclass(frozen=True, eq=False)
class MarketAdvice:
    """The answer, with what it rests on."""

    policy: str
    state: JobState
    word: str
    """``stay``, ``move`` or ``wait``."""
    sentence: str
    to: int | None
    """The offer to rent."""
    saves: float | None
    """Dollars over what is left, the move paid; ``None`` where nothing is held, or nothing is better."""
    costs: float | None
    """Dollars of the move."""
    warnings: tuple[str, ...] = ()
    task: str | None = None
    """SkyPilot YAML."""
    command: tuple[str, ...] = ()
    """What starts it."""
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
            f"--on {name}: no such offer has a price now; write it like p3.2xlarge@us-east-1a, and add a market that "
            "has it"
        )
    return min(found)[1]


def advise(
    market: JobMarket, policy: Policy, held: int | None, now: float, deadline: float | None = None,
    warnings: Sequence[str] = (),
) -> MarketAdvice:  # fmt: skip
    """What ``policy`` says ``now`` of a job that holds the offer of number ``held``, and has all its samples before
    it.

    The policy is asked as if it had not been before. Raises UserError.
    """
    limit = None if deadline is None else now + deadline
    here = None if held is None else market.offers[held][:2]
    # Where the job runs there is a copy of its data.
    copies = () if here is None or not market.job.data else (market.home or here, here)
    state = JobState(market, now, now, limit, held=held, ready=now, copies=copies)
    hold = policy.decide(state).hold
    word = "wait" if hold is None else "stay" if hold == held else "move"
    target = hold if word == "move" else state.best()
    saves = costs = None
    if held is not None and target is not None and target != held:
        costs = state.move_cost(target)
        saves = float(state.costs[held] - state.costs[target]) * market.job.samples - costs
    to, sentence = hold if word == "move" else None, _sentence(state, word, target, saves, costs)
    return MarketAdvice(policy.name, state, word, sentence, to, saves, costs, tuple(warnings))


def _sentence(state: JobState, word: str, to: int | None, saves: float | None, costs: float | None) -> str:
    market, held = state.market, state.held
    if word == "wait":
        return "Hold nothing now, says this policy; save and give back what is held."
    if held is None:
        assert to is not None
        seconds, price = market.job.samples / float(market.rates[to]), float(state.prices[to])
        return (
            f"Rent {market.offers[to].name} at ${price:.4g}/h: the whole job takes {span(seconds)} and costs about "
            f"{dollars(seconds * price / HOUR)} there at today's price."
        )
    here = market.offers[held].name
    if to is None or saves is None or costs is None:
        return f"Stay on {here}: nothing that can be rented now costs less for a sample."
    gain = f"saves {dollars(saves)}" if saves >= 0 else f"costs {dollars(-saves)} more"
    moving = f"{gain} over what is left, the move's {dollars(costs)} paid"
    there = market.offers[to].name
    return f"Move to {there}: that {moving}." if word == "move" else f"Stay on {here}: moving to {there} {moving}."


def move_task(advice: MarketAdvice, profile: Profile | None, catalog: Catalog, target: Path | None) -> MarketAdvice:
    """The same with what starts the move: a SkyPilot task in one zone, for ``target``. Raises UserError.

    Spot machines are a managed job, which SkyPilot starts again when they are taken away. Without a profile its
    command is to be written in.
    """
    assert advice.to is not None
    job, offer = advice.state.market.job, advice.state.market.offers[advice.to]
    if offer.cloud not in CLOUDS:
        raise UserError(f"{offer.name} ({offer.cloud}) is nothing that SkyPilot rents; start the job there yourself")
    instance = catalog.instance(f"{offer.cloud}/{offer.instance}")
    region = None if offer.region in ("", "any") else "/".join(filter(None, (offer.region, offer.zone)))
    wanted = resources(instance, offer.cloud, region, offer.kind == "spot")
    if offer.kind != "spot":
        wanted["autostop"] = AUTOSTOP
    if profile is None:
        name = plain_name(job.name) or "job"
        task = task_yaml({"name": name, "num_nodes": job.machines, "resources": wanted})
        notes: Sequence[str] = ("write the job's command into run: a job.yaml does not have it",)
    else:
        name, devices = task_name(profile), '"$SKYPILOT_NUM_GPUS_PER_NODE"'
        ranks = instance.devices
        task, started = task_body(profile, job.machines, ranks, devices if instance.gpu_count else str(ranks), wanted)
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
