"""``stash spot plan``: the cheapest fleet that reaches a loss in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from stash.api import (
    Constraints,
    OfferFilter,
    find_profile,
    load_catalog,
    print_answer,
    resolve_names,
)
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.formatting import join_names
from stash.core.output_files import output_file, write_output
from stash.core.printable import print_written, shorten_text
from stash.core.units import find_nearest, format_bytes, parse_interruptions
from stash.spot import planning
from stash.spot.fleet_costs import LONGEST, FleetWish
from stash.spot.fleet_records import FleetPlan, InterruptionBand
from stash.spot.model.pool import server_bytes
from stash.spot.pages.fleet_plan import document, page
from stash.spot.provision import provision
from stash.spot.risk import can_keep_wish
from stash.spot.spot_files import load_curve, read_model, read_pool
from stash.ui.options import Options, argument, json_flag, option

_JOB = "The job, from a profile and a curve"
_MAY = "Machines to consider"
_WISH = "Goal"
_REVOCATIONS = "Revocations"


def _deadline(text: str) -> float:

    seconds = parsers.duration(text)
    if seconds > LONGEST:
        raise UnitError("it must be below 30 years")
    return seconds


@dataclass(frozen=True, kw_only=True)
class FleetPlanOptions(Options):
    """One call of ``stash spot plan``."""

    deadline: float = option(
        "TIME",
        'Reach the loss within this time, like "6h" or "2400s".',
        _deadline,
        panel=_WISH,
        default=...,
    )
    loss: float = option("LOSS", "Train until this loss.", parsers.number, panel=_WISH, default=...)
    profile: str | None = argument("PROFILE", "A profile of `stash profile`.", default=None)
    curve: Path | None = option("FILE", "Use this curve of `stash spot learn`.", Path, panel=_JOB)
    pool: Path | None = option(
        "FILE",
        "Read machines, their speed and prices from this file instead (docs/how-to/spot.md).",
        Path,
    )
    cloud: str | None = option("NAME", "Rent from this cloud, like aws.", panel=_MAY)
    region: str | None = option("NAME", "Rent in this region (default: the cheapest).", panel=_MAY)
    quota: tuple[tuple[str, int], ...] = option(
        "TYPE=N",
        "Rent at most N machines of a type; repeatable.",
        parsers.amounts,
        panel=_MAY,
        many=True,
    )
    servers: int | None = option(
        "N", "Use N parameter servers (default 1).", parsers.whole(1), panel=_MAY
    )
    start: float | None = option(
        "TIME",
        "Machines take this long to their first update.",
        parsers.duration_or_zero,
        panel=_MAY,
    )
    instances: Path | None = option(
        "FILE", "Read your own machines and prices from this YAML file.", Path, panel=_MAY
    )
    fleet: Path | None = option("FILE", "Use this model of `stash spot fit`.", Path, panel=_MAY)
    confidence: float | None = option(
        "P", "Meet the deadline with at least this probability.", parsers.probability, panel=_WISH
    )
    output: Path | None = option("FILE", "Write the plan to this file.", Path, "--output", "-o")
    json: bool = json_flag()
    interruptions: tuple[str, ...] = option(
        "RATE",
        "Revoke machines this often, like 10%/month or 0.02/h. Repeatable as TYPE=…",
        panel=_REVOCATIONS,
        many=True,
    )

    def check(self) -> None:
        if self.pool is None:
            return
        said_twice = self.list_given("profile", "cloud", "region", "servers", "start", "instances")
        if said_twice:
            raise UserError(
                f"{said_twice[0]} and --pool: a pool says that itself; leave one of them out"
            )

    @property
    def quotas(self) -> dict[str, int]:
        """Machines of a type at most."""
        return dict(self.quota)


def plan(options: FleetPlanOptions) -> None:
    """Find the cheapest fleet that reaches a loss by a deadline.

    Its speed is that of asynchronous training; `stash recommend` plans for scripts that all-reduce.

    Examples:
      stash spot plan run.stash.json --curve job.curve.json --deadline 6h --loss 0.35
      stash spot plan --pool pool.yaml --deadline 2400s --loss 0.8
    """

    json = options.json
    pool = options.pool
    target = None if options.output is None else output_file(options.output, "job", ".plan.json")
    found = _plan_profile(options) if pool is None else _plan_pool(options, pool)
    bands = stated_bands(found, options.interruptions)
    if bands:
        found = planning.plan_with_revocations(found, bands)
    if target is not None:
        write_output(target, found.model_dump_json(indent=1) + "\n")
    print_answer(
        document(found) if json else page(found, options.profile or (pool.name if pool else ""))
    )
    if target is not None:
        print_written(target, json)
    if not can_keep_wish(found):
        raise typer.Exit(1)


def _plan_pool(options: FleetPlanOptions, pool: Path) -> FleetPlan:

    learned = None if options.curve is None else load_curve(options.curve)
    offered = read_pool(pool, learned)
    known = [kind.name for kind in offered.types]
    for name in options.quotas:
        if name not in known:
            alike = find_nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"it has {join_names(known)}"
            raise UserError(f"--quota {name}: the pool has no such type; {hint}")
    kinds = tuple(
        kind.model_copy(update={"quota": options.quotas.get(kind.name, kind.quota)})
        for kind in offered.types
    )
    offers = offered.model_copy(update={"types": kinds})
    if learned is not None and offers.server.needs_bytes is None:
        needs = server_bytes(learned, offers.server.count)
        offers = offers.model_copy(
            update={"server": offers.server.model_copy(update={"needs_bytes": needs})}
        )
    if offers.server.is_too_small:
        has, wants = (
            format_bytes(each or 0.0)
            for each in (offers.server.memory_bytes, offers.server.needs_bytes)
        )
        raise UserError(
            f"{pool}: a server has {has} of memory and needs {wants}; give it more (memory_bytes), or more servers "
            "(count)"
        )
    offers = planning.apply_timed_model(
        offers, None if options.fleet is None else read_model(options.fleet)
    )
    wish = FleetWish(offers, options.loss, options.deadline, options.confidence)
    return provision(wish)


def _plan_profile(options: FleetPlanOptions) -> FleetPlan:

    if options.profile is None or options.curve is None:
        missing = "a profile" if options.profile is None else "--curve"
        raise UserError(
            f"{missing} is missing: stash spot plan train.stash.json --curve job.curve.json --deadline 6h "
            "--loss 0.35 --cloud aws --quota g4dn.4xlarge=5, or give all numbers in a --pool"
        )
    if options.cloud is None:
        raise UserError(
            "--cloud is missing: workers and servers are rented in one, like --cloud aws"
        )
    known = load_catalog(options.instances)
    regions = () if options.region is None else (options.region,)
    resolve_names(
        Constraints(clouds=(options.cloud,), regions=regions, quotas=options.quotas), known
    )
    kinds = OfferFilter(cloud=options.cloud, region=options.region, kinds=("spot", "on-demand"))
    return planning.plan(
        find_profile(options.profile, None)[0],
        load_curve(options.curve),
        known.query(kinds),
        deadline=options.deadline,
        loss=options.loss,
        quotas=options.quotas,
        servers=options.servers or 1,
        start=options.start or 0.0,
        confidence=options.confidence,
        fleet=None if options.fleet is None else read_model(options.fleet),
        source=options.profile,
        catalog=lambda: known,
    )


def stated_bands(plan: FleetPlan, words: Sequence[str]) -> dict[str, InterruptionBand]:
    """How often each type is revoked: TYPE=… its own, a rate without a type for all others, else the pool's band.

    Raises UserError.
    """

    bands = {kind.name: kind.interruptions for kind in plan.pool.types}
    own: dict[str, InterruptionBand] = {}
    common: list[InterruptionBand] = []
    for word in words:
        kind, equals, text = word.rpartition("=")
        if equals and kind not in bands:
            raise UserError(
                f"--interruptions {shorten_text(kind, 60)}: the plan's pool has no such type; it has "
                f"{', '.join(bands)}"
            )
        try:
            low, high = parse_interruptions(text)
        except UnitError as error:
            raise UserError(f"--interruptions: {error}") from error
        band = InterruptionBand(low=low, high=high)
        if equals:
            own[kind] = band
        else:
            common.append(band)
    if len(common) > 1:
        raise UserError(
            f"--interruptions is given {len(common)} times for all types; give it once, or as TYPE=…"
        )
    known = {**bands, **(dict.fromkeys(bands, common[0]) if common else {}), **own}
    return {name: band for name, band in known.items() if band is not None}
