"""``stash spot plan``: the cheapest fleet that reaches a loss in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.printable import print_written, shortened
from stash.ui.options import Options, argument, json_flag, option

if TYPE_CHECKING:
    from stash.spot.planning import RiskOptionsOf
    from stash.spot.records.fleets import FleetPlan, FleetPool
    from stash.spot.risk.fleet_risk import RiskOptions
    from stash.spot.risk.lifetimes import RevocationRate

_JOB, _MAY, _WISH = "The job, from a profile and a curve", "What may be rented", "What is wanted"
_REVOCATIONS = "Revocations"


def _deadline(text: str) -> float:
    from stash.spot.choose.fleet_costs import LONGEST

    seconds = parsers.duration(text)
    if seconds > LONGEST:
        raise UnitError("it must be below 30 years")
    return seconds


@dataclass(frozen=True, kw_only=True)
class FleetPlanOptions(Options):
    """One call of ``stash spot plan``."""

    deadline: float = option(
        "TIME", 'Reach the loss within this time, like "6h" or "2400s".', _deadline, panel=_WISH, default=...
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
        "TYPE=N", "Rent at most N machines of a type; repeatable.", parsers.amounts, panel=_MAY, many=True
    )
    servers: int | None = option("N", "Use N parameter servers (default 1).", parsers.whole(1), panel=_MAY)
    start: float | None = option(
        "TIME", "Machines take this long to their first update.", parsers.duration_or_zero, panel=_MAY
    )
    instances: Path | None = option(
        "FILE", "Read your own machines and prices from this YAML file.", Path, panel=_MAY
    )
    fleet: Path | None = option("FILE", "Use this model of `stash spot fit`.", Path, panel=_MAY)
    confidence: float | None = option(
        "P", "Meet the deadline with at least this probability.", parsers.probability, panel=_WISH
    )
    max_dollars: float | None = option("DOLLARS", "Spend at most this in total.", parsers.dollars, panel=_WISH)
    output: Path | None = option("FILE", "Write the plan to this file.", Path, "--output", "-o")
    json: bool = json_flag()
    interruptions: tuple[str, ...] = option(
        "RATE",
        "Revoke machines this often, like 10%/month or 0.02/h. Repeatable as TYPE=…",
        panel=_REVOCATIONS, many=True,
    )  # fmt: skip
    trace: Path | None = option(
        "FILE", "Read available machines from a market file of `stash market import`.", Path, panel=_REVOCATIONS
    )

    def check(self) -> None:
        if self.pool is None:
            return
        said_twice = self.given("profile", "cloud", "region", "servers", "start", "instances")
        if said_twice:
            raise UserError(f"{said_twice[0]} and --pool: a pool says that itself; leave one of them out")

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
    from stash.core.output_files import output_file, write_output
    from stash.report.output import printed
    from stash.spot.pages.fleet_plan import document, page
    from stash.spot.planning import plan_with_revocations
    from stash.spot.risk.fleet_risk import kept

    json, pool = options.json, options.pool
    target = None if options.output is None else output_file(options.output, "job", ".plan.json")
    found = _of_profile(options) if pool is None else _of_pool(options, pool)
    danger = dangers_of(found, options)
    if danger is not None:
        found = plan_with_revocations(found, danger)
    if target is not None:
        write_output(target, found.model_dump_json(indent=1) + "\n")
    printed(document(found) if json else page(found, options.profile or (pool.name if pool else "")))
    if target is not None:
        print_written(target, json)
    if not kept(found):
        raise typer.Exit(1)


def _of_pool(options: FleetPlanOptions, pool: Path) -> FleetPlan:
    from stash.core.units import format_bytes
    from stash.spot.choose.fleet_costs import FleetWish
    from stash.spot.choose.provision import provision
    from stash.spot.model.pool import server_bytes
    from stash.spot.planning import as_timed
    from stash.spot.spot_files import load_curve, read_model, read_pool

    learned = None if options.curve is None else load_curve(options.curve)
    offers = _limited(read_pool(pool, learned), options.quotas)
    if learned is not None and offers.server.needs_bytes is None:
        needs = server_bytes(learned, offers.server.count)
        offers = offers.model_copy(update={"server": offers.server.model_copy(update={"needs_bytes": needs})})
    if offers.server.too_small:
        has = format_bytes(offers.server.memory_bytes or 0.0)
        raise UserError(
            f"{pool}: a server has {has}, and each of {offers.server.needed}; "
            "give it more memory (memory_bytes), or more servers (count)"
        )
    offers = as_timed(offers, None if options.fleet is None else read_model(options.fleet))
    wish = FleetWish(offers, options.loss, options.deadline, options.confidence, options.max_dollars)
    return provision(wish)


def _of_profile(options: FleetPlanOptions) -> FleetPlan:
    from stash.catalog.layers import load as load_catalog
    from stash.catalog.offers import OfferFilter
    from stash.plan.candidates import with_names_as_written
    from stash.plan.records import Constraints
    from stash.spot.planning import plan as planned
    from stash.spot.spot_files import load_curve, read_model
    from stash.store.storing import profile_of

    if options.profile is None or options.curve is None:
        missing = "a profile" if options.profile is None else "--curve"
        raise UserError(
            f"{missing} is missing: stash spot plan train.stash.json --curve job.curve.json --deadline 6h "
            "--loss 0.35 --cloud aws --quota g4dn.4xlarge=5, or give all numbers in a --pool"
        )
    if options.cloud is None:
        raise UserError("--cloud is missing: workers and servers are rented in one, like --cloud aws")
    known = load_catalog(options.instances)
    regions = () if options.region is None else (options.region,)
    with_names_as_written(Constraints(clouds=(options.cloud,), regions=regions, quotas=options.quotas), known)
    kinds = OfferFilter(cloud=options.cloud, region=options.region, kinds=("spot", "on-demand"))
    return planned(
        profile_of(options.profile, None)[0],
        load_curve(options.curve),
        known.query(kinds),
        deadline=options.deadline,
        loss=options.loss,
        quotas=options.quotas,
        servers=options.servers or 1,
        start=options.start or 0.0,
        confidence=options.confidence,
        budget=options.max_dollars,
        fleet=None if options.fleet is None else read_model(options.fleet),
        source=options.profile,
        catalog=lambda: known,
    )


def _limited(pool: FleetPool, asked: dict[str, int]) -> FleetPool:
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
    return pool.model_copy(update={"types": types})


# What users say of revocations: a type's lives come from a trace, ``--interruptions``, or its band in the pool.


def dangers_of(plan: FleetPlan, options: FleetPlanOptions) -> RiskOptionsOf | None:
    """What is known of revocations, to be asked for any fleet of the plan's pool; ``None`` if nothing is. Raises
    UserError; so does what it returns, where it is unstated how long a type of the fleet lives.
    """
    from stash.spot.market_files import read_records
    from stash.spot.risk.lifetimes import rate_of_band

    kinds = plan.pool.types
    known = [kind.name for kind in kinds]
    given = _stated_rates(options.interruptions, known)
    traces = {} if options.trace is None else read_records(options.trace, known)
    twice = next((name for name in known if name in given and name in traces), None)
    if twice is not None:
        raise UserError(f"--interruptions and --trace both say how long {twice} lives; give one of them")
    pooled = {kind.name: rate_of_band(kind.interruptions) for kind in kinds if kind.interruptions is not None}
    rates = {**pooled, **given}
    if not (rates or traces):
        return None

    def danger(workers: Mapping[str, int]) -> RiskOptions:
        from stash.spot.risk.fleet_risk import RiskOptions

        records = {name: traces[name] for name in workers if name in traces}
        missing = next((name for name in workers if name not in rates and name not in records), None)
        if missing is not None:
            raise UserError(f"how often {missing} is revoked is unknown; give --interruptions {missing}=10%/month")
        if records and len(records) < len(workers):
            raise UserError("a trace of some types and none of others cannot be replayed; give one with all of them")
        return RiskOptions({} if records else {name: rates[name] for name in workers}, records)

    return danger


def _stated_rates(words: Sequence[str], known: Sequence[str]) -> dict[str, RevocationRate]:
    """What each type is given: TYPE=… its own, one without for all others."""
    from stash.core.units import parse_interruptions
    from stash.spot.records.risks import InterruptionBand
    from stash.spot.risk.lifetimes import rate_of_band

    own: dict[str, RevocationRate] = {}
    common: list[RevocationRate] = []
    for word in words:
        kind, equals, text = word.rpartition("=")
        if equals and kind not in known:
            raise UserError(
                f"--interruptions {shortened(kind, 60)}: the plan's pool has no such type; it has {', '.join(known)}"
            )
        try:
            low, high = parse_interruptions(text)
        except UnitError as error:
            raise UserError(f"--interruptions: {error}") from error
        rate = rate_of_band(InterruptionBand(low=low, high=high))
        if equals:
            own[kind] = rate
        else:
            common.append(rate)
    if len(common) > 1:
        raise UserError(f"--interruptions is given {len(common)} times for all types; give it once, or as TYPE=…")
    return {**(dict.fromkeys(known, common[0]) if common else {}), **own}
