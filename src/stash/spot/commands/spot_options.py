"""What the commands of ``stash spot`` share: options, risks as users state them, notes on standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stash.core.errors import UnitError, UserError
from stash.core.printable import shortened
from stash.ui.options import Options, option

if TYPE_CHECKING:
    from stash.spot.planning import RiskOptionsOf
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.risk.fleet_risk import RiskOptions
    from stash.spot.risk.lifetimes import RevocationRate

# The options of ``stash spot plan`` about revocations: what users say of them becomes a ``RiskOptions``.
# A type's lives come from one of: a trace, ``--interruptions``, or its band in the pool.

_PANEL = "Revocations"


@dataclass(frozen=True, kw_only=True)
class RevocationOptions(Options):
    """What users say of revocations."""

    interruptions: tuple[str, ...] = option(
        "RATE",
        "Revoke machines this often: 10%/month, 0.02/h, or AWS's spot-advisor-data.json. Repeatable as TYPE=…",
        panel=_PANEL, many=True,
    )  # fmt: skip
    trace: Path | None = option(
        "FILE", "Read available machines from a market file of `stash market import`.", Path, panel=_PANEL
    )


def dangers_of(plan: FleetPlan, options: RevocationOptions) -> RiskOptionsOf | None:
    """What is known of revocations, to be asked for any fleet of the plan's pool; ``None`` if nothing is. Raises
    UserError; so does what it returns, where it is unstated how long a type of the fleet lives.
    """
    from stash.spot.market_files import read_records
    from stash.spot.risk.lifetimes import rate_of_band

    kinds = plan.pool.types
    known = [kind.name for kind in kinds]
    files = [word for word in options.interruptions if word.endswith(".json")]
    stated = _stated_rates([word for word in options.interruptions if word not in files], known)
    given = {**_advised_rates(plan, files), **stated}
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


def _advised_rates(plan: FleetPlan, files: Sequence[str]) -> dict[str, RevocationRate]:
    """By type, as files of AWS's Spot Instance Advisor have them."""
    from stash.spot.market_files import read_advisor
    from stash.spot.risk.lifetimes import rate_of_band

    rates = {}
    for file in files:
        if plan.pool.region is None:
            raise UserError(f"--interruptions {file}: the pool does not say where it is; add region: us-east-1 to it")
        bands = read_advisor(Path(file), plan.pool.region)
        rates.update({name: rate_of_band(band) for name, band in bands.items() if band is not None})
    return rates


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
