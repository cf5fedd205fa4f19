"""``stash spot plan``: the cheapest fleet that reaches a loss in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import UserError
from stash.spot.commands.spot_options import (
    CHECKPOINT_HELP,
    INTERRUPTIONS_HELP,
    JSON_HELP,
    LIVES_HELP,
    MODEL_HELP,
    NOTICE_HELP,
    SHOCKS_HELP,
    TRACE_HELP,
    DangerWords,
    dangers_of,
    model_of,
    told,
)
from stash.ui.options import flag, option, positive, seconds_of

if TYPE_CHECKING:
    from stash.catalog.offers import Catalog
    from stash.spot.records.fleets import FleetPlan, FleetPool

POOL_HELP = (
    "Instead of a profile, a file that says what may be rented, what it does alone and costs, and, unless --curve "
    "does, the loss (docs/how-to/spot.md)."
)
_JOB, _MAY, _WISH = "The job, from a profile and a curve", "What may be rented", "What is wanted"
_PANEL = "Revocations"


def plan(
    deadline: Annotated[str, option("TIME", 'When the loss has to be reached, like "6h" or "2400s".', panel=_WISH)],
    loss: Annotated[float, option("LOSS", "What training has to reach.", panel=_WISH)],
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="What `stash profile` saved.", show_default=False)
    ] = None,
    curve: Annotated[Path | None, option("FILE", "What `stash spot learn` saved.", panel=_JOB)] = None,
    pool: Annotated[Path | None, option("FILE", POOL_HELP)] = None,
    cloud: Annotated[str | None, option("NAME", "Whose machines, like aws.", panel=_MAY)] = None,
    region: Annotated[str | None, option("NAME", "Else the one where they cost least.", panel=_MAY)] = None,
    quota: Annotated[
        list[str] | None, option("TYPE=N", "Machines of a type at most; repeatable.", panel=_MAY)
    ] = None,
    vcpus: Annotated[float | None, option("N", "vCPUs of all machines at most.", panel=_MAY)] = None,
    server: Annotated[
        str | None, option("TYPE", "Of the parameter server; else the cheapest that keeps up.", panel=_MAY)
    ] = None,
    servers: Annotated[int | None, option("N", "Parameter servers; else 1.", least=1, panel=_MAY)] = None,
    start: Annotated[str | None, option("TIME", "From the request to the first update.", panel=_MAY)] = None,
    instances: Annotated[Path | None, option("FILE", "Your own machines and prices.", panel=_MAY)] = None,
    fleet: Annotated[Path | None, option("FILE", "What `stash spot fit` saved of timed fleets.", panel=_MAY)] = None,
    on_demand: Annotated[
        list[str] | None, option("TYPE", "Not to be rented as spot machines; repeatable.", panel=_MAY)
    ] = None,
    which: Annotated[str, option("NAME", MODEL_HELP, "--model")] = "queue",
    confidence: Annotated[
        float | None, option("P", "How probable it has to be that it is in time.", panel=_WISH)
    ] = None,
    budget: Annotated[float | None, option("DOLLARS", "What all of it may cost.", panel=_WISH)] = None,
    interruptions: Annotated[list[str] | None, option("RATE", INTERRUPTIONS_HELP, panel=_PANEL)] = None,
    trace: Annotated[list[str] | None, option("FILE", TRACE_HELP, panel=_PANEL)] = None,
    lifetimes: Annotated[list[str] | None, option("FILE", LIVES_HELP, panel=_PANEL)] = None,
    shocks: Annotated[str | None, option("RATE", SHOCKS_HELP, panel=_PANEL)] = None,
    checkpoint: Annotated[str | None, option("TIME", CHECKPOINT_HELP, panel=_PANEL)] = None,
    notice: Annotated[str | None, option("TIME", NOTICE_HELP, panel=_PANEL)] = None,
    output: Annotated[Path | None, option("FILE", "Where the plan goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Find the cheapest fleet that reaches a loss by a deadline, and say why others lost; exit code 1 if none does.

    stash spot plan run.stash.json --curve job.curve.json --deadline 6h --loss 0.35 --cloud aws --quota g4dn.4xlarge=5

    stash spot plan --pool pool.yaml --deadline 2400s --loss 0.8 --model paper
    """
    from stash.report.output import output_file, printed, write_output
    from stash.spot.pages.fleet_plan import document, render, view
    from stash.spot.risk.fleet_risk import kept

    wanted = _wanted(deadline, loss, confidence, budget, vcpus)
    quotas = _quotas(quota or [])
    target = None if output is None else output_file(output, "job", ".plan.json")
    if pool is not None:
        beside: dict[str, object] = {
            "PROFILE": profile,
            "--cloud": cloud,
            "--region": region,
            "--server": server,
        }
        beside |= {"--servers": servers, "--start": start, "--instances": instances}
        _refuse(beside)
        found = _of_pool((pool, curve), quotas, wanted, which, fleet, on_demand or ())
    else:
        if which != "queue":
            raise UserError("--model paper needs alpha1 and beta1 of equation (9), which only a --pool has")
        bought = _Bought(cloud, region, quotas, server, servers or 1, start, instances, fleet, on_demand or ())
        found = _of_profile(profile, curve, bought, wanted)
    danger = dangers_of(
        found, DangerWords(interruptions or (), trace or (), lifetimes or (), shocks, checkpoint, notice)
    )
    if danger is not None:
        from stash.spot.planning import plan_with_revocations

        found = plan_with_revocations(found, danger)
    if target is not None:
        write_output(target, found.model_dump_json(indent=1) + "\n")
    printed(document(found) if json else view(found, profile or (pool.name if pool else "")), render)
    if target is not None:
        told(f"Saved {target}.", json)
    if not kept(found):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Wanted:
    """The goal, checked."""

    seconds: float
    loss: float
    confidence: float | None
    budget: float | None
    vcpus: float | None


@dataclass(frozen=True)
class _Bought:
    """What may be rented, as it was typed."""

    cloud: str | None
    region: str | None
    quotas: dict[str, int]
    server: str | None
    servers: int
    start: str | None
    instances: Path | None
    fleet: Path | None
    on_demand: Sequence[str]


def _wanted(
    deadline: str, loss: float, confidence: float | None, budget: float | None, vcpus: float | None
) -> _Wanted:
    """Raises UserError for what nobody can keep."""
    from stash.spot.choose.fleet_costs import LONGEST

    if confidence is not None and not 0.5 <= confidence < 1:
        raise UserError(f"--confidence {confidence:g}: it must be from 0.5 to below 1, like 0.9")
    seconds = seconds_of("--deadline", deadline)
    if seconds > LONGEST:
        raise UserError(f"--deadline {deadline}: it must be below 30 years")
    most = None if vcpus is None else positive("--vcpus", vcpus, finite=True)
    dollars = None if budget is None else positive("--budget", budget, finite=True)
    return _Wanted(seconds, positive("--loss", loss, finite=True), confidence, dollars, most)


def _refuse(given: dict[str, object]) -> None:
    """Raise UserError for an option that a pool leaves nothing to say."""
    word = next((name for name, value in given.items() if value is not None), None)
    if word is not None:
        raise UserError(f"{word} and --pool: a pool says that itself; leave one of them out")


def _of_pool(
    files: tuple[Path, Path | None],
    quotas: dict[str, int],
    wanted: _Wanted,
    which: str,
    fleet: Path | None,
    on_demand: Sequence[str],
) -> FleetPlan:
    """``files``: the pool, and a curve if it has its loss from one."""
    from stash.core.records.base import now
    from stash.core.version import __version__
    from stash.spot.choose.fleet_costs import FleetWish, rented_on_demand
    from stash.spot.choose.provision import provision
    from stash.spot.model.pool import server_bytes, too_small
    from stash.spot.planning import as_timed
    from stash.spot.spot_files import load_curve, read_model, read_pool

    pool, curve = files
    model, learned = model_of(which), None if curve is None else load_curve(curve)
    if model == "paper" and fleet is not None:
        raise UserError("--fleet tells of a queue, and --model paper knows none; leave one of them out")
    offers = rented_on_demand(_limited(read_pool(pool, learned), quotas, wanted.vcpus), on_demand)
    if learned is not None and offers.server.needs_bytes is None:
        needs = server_bytes(learned, offers.server.count)
        offers = offers.model_copy(update={"server": offers.server.model_copy(update={"needs_bytes": needs})})
    if (why := too_small(offers.server)) is not None:
        raise UserError(f"{pool}: {why}; give it more memory (memory_bytes), or more servers (count)")
    if model == "queue":
        offers = as_timed(offers, None if fleet is None else read_model(fleet))
    wish = FleetWish(offers, model, wanted.loss, wanted.seconds, wanted.confidence, wanted.budget)
    return provision(wish, __version__, now())


def _of_profile(profile: str | None, curve: Path | None, bought: _Bought, wanted: _Wanted) -> FleetPlan:
    from stash.catalog.layers import load as load_catalog
    from stash.catalog.offers import OfferFilter
    from stash.spot.planning import plan as planned
    from stash.spot.spot_files import load_curve, read_model
    from stash.store.storing import profile_of

    if profile is None or curve is None:
        missing = "a profile" if profile is None else "--curve"
        raise UserError(
            f"{missing} is missing: stash spot plan train.stash.json --curve job.curve.json --deadline 6h "
            "--loss 0.35 --cloud aws --quota g4dn.4xlarge=5, or give all numbers in a --pool"
        )
    if bought.cloud is None:
        raise UserError("--cloud is missing: workers and servers are rented in one, like --cloud aws")
    starts = 0.0 if bought.start is None else seconds_of("--start", bought.start, zero=True)
    known = load_catalog(bought.instances)
    _check_place(known, bought)
    kinds = OfferFilter(cloud=bought.cloud, region=bought.region, kinds=("spot", "on-demand"))
    return planned(
        profile_of(profile, None)[0],
        load_curve(curve),
        known.query(kinds),
        deadline=wanted.seconds,
        loss=wanted.loss,
        quotas=bought.quotas,
        server=bought.server,
        servers=bought.servers,
        start=starts,
        confidence=wanted.confidence,
        budget=wanted.budget,
        vcpus=wanted.vcpus,
        fleet=None if bought.fleet is None else read_model(bought.fleet),
        on_demand=bought.on_demand,
        source=profile,
        catalog=lambda: known,
    )


def _check_place(known: Catalog, bought: _Bought) -> None:
    """Raise UserError for a cloud or region that the catalog does not have."""
    from stash.plan.candidates import check_names
    from stash.plan.records import Constraints

    assert bought.cloud is not None
    regions = () if bought.region is None else (bought.region,)
    check_names(known, Constraints(clouds=(bought.cloud,), regions=regions, quotas=bought.quotas))


def _quotas(texts: list[str]) -> dict[str, int]:
    """Of ``g4dn.4xlarge=5``; raises UserError."""
    asked: dict[str, int] = {}
    for text in texts:
        name, _, count = text.partition("=")
        if not (count.isascii() and count.isdigit() and len(count) < 6):
            raise UserError(f"--quota {text!r} cannot be read; write it like g4dn.4xlarge=5")
        asked[name.strip()] = int(count)
    return asked


def _limited(pool: FleetPool, asked: dict[str, int], vcpus: float | None) -> FleetPool:
    """The pool with these quotas; raises UserError for a type that it does not have."""
    from stash.core.formatting import listed
    from stash.core.units import nearest

    known = [kind.name for kind in pool.types]
    for name in asked:
        if name not in known:
            alike = nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"it has {listed(known)}"
            raise UserError(f"--quota {name}: the pool has no such type; {hint}")
    types = tuple(kind.model_copy(update={"quota": asked.get(kind.name, kind.quota)}) for kind in pool.types)
    return pool.model_copy(update={"types": types, "most_vcpus": pool.most_vcpus if vcpus is None else vcpus})
