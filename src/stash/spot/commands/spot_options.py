"""What the commands of ``stash spot`` share: options, risks as users state them, notes on standard error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.printable import shortened
from stash.ui.options import Options, option

if TYPE_CHECKING:
    from stash.spot.planning import RiskOptionsOf
    from stash.spot.records.fleets import FleetPlan
    from stash.spot.records.risks import Obtainable
    from stash.spot.risk.fleet_risk import RiskOptions
    from stash.spot.risk.lifetimes import ChosenLaw

# The options of ``stash spot plan`` about revocations: what users say of them becomes a ``RiskOptions``.
#
# A type's lives come from one of: a table of lives, a trace, ``--interruptions``, or its band in the pool.

T = TypeVar("T")
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
    lifetimes: tuple[str, ...] = option(
        "FILE", "Read observed lifetimes (CSV: seconds,revoked); repeatable as TYPE=FILE.", panel=_PANEL, many=True
    )
    shocks: str | None = option("RATE", "All machines of a type also go at once, this often.", panel=_PANEL)
    checkpoint_time: float | None = option(
        "TIME", "Writing a checkpoint takes this long; jobs resume from the last.",
        parsers.duration, panel=_PANEL,
    )  # fmt: skip
    notice: float | None = option(
        "TIME", "Machines get this notice: 120s on AWS, 30s on GCP and Azure.", parsers.duration,
        panel=_PANEL,
    )  # fmt: skip


def dangers_of(plan: FleetPlan, options: RevocationOptions) -> RiskOptionsOf | None:
    """What is known of revocations, to be asked for any fleet of the plan's pool; ``None`` if nothing is. Raises
    UserError; so does what it returns, where it is unstated how long a type of the fleet lives.
    """
    from stash.spot.market_files import read_records
    from stash.spot.risk.lifetimes import law_of_band

    known = [kind.name for kind in plan.pool.types]
    listed, own = _advised(plan, options.interruptions)
    bands = {**listed, **_by_type("--interruptions", own, known, _band)}
    lives = _by_type("--lifetimes", options.lifetimes, known, _watched)
    traces = {} if options.trace is None else read_records(options.trace, known)
    sources: Mapping[str, Collection[str]] = {"--interruptions": bands, "--lifetimes": lives, "--trace": traces}
    for name in known:
        given = [option for option, found in sources.items() if name in found]
        if len(given) > 1:
            raise UserError(f"{given[0]} and {given[1]} both say how long {name} lives; give one of them")
    kinds = plan.pool.types
    pooled = {kind.name: law_of_band(kind.interruptions) for kind in kinds if kind.interruptions is not None}
    stated = {**pooled, **bands, **lives}
    if not (stated or traces):
        for name in ("checkpoint_time", "notice", "shocks"):
            if getattr(options, name) is not None:
                raise UserError(
                    f"--{name.replace('_', '-')} needs to know how often machines go; give --interruptions, like "
                    "10%/month"
                )
        return None
    shocks = 0.0 if options.shocks is None else 1 / _band("--shocks", options.shocks).law.mean

    def danger(workers: Mapping[str, int]) -> RiskOptions:
        from stash.spot.risk.fleet_risk import RiskOptions

        records = {name: traces[name] for name in workers if name in traces}
        watched = {name: _law_of_record(name, record, workers[name]) for name, record in records.items()}
        laws = {**stated, **watched}
        missing = next((name for name in workers if name not in laws), None)
        if missing is not None:
            raise UserError(f"how often {missing} is revoked is unknown; give --interruptions {missing}=10%/month")
        if records and len(records) < len(workers):
            raise UserError("a trace of some types and none of others cannot be replayed; give one with all of them")
        own = {name: laws[name] for name in workers}
        return RiskOptions(own, records, shocks, options.checkpoint_time, options.notice)

    return danger


def _advised(plan: FleetPlan, words: Sequence[str]) -> tuple[dict[str, ChosenLaw], list[str]]:
    """Lives by type as a file of AWS's Spot Instance Advisor has them, and the words that name none."""
    from stash.spot.market_files import read_advisor
    from stash.spot.risk.lifetimes import law_of_band

    files = [word for word in words if word.endswith(".json")]
    found = {}
    for word in files:
        if plan.pool.region is None:
            raise UserError(f"--interruptions {word}: the pool does not say where it is; add region: us-east-1 to it")
        bands = read_advisor(Path(word), plan.pool.region)
        found.update({name: law_of_band(band) for name, band in bands.items() if band is not None})
    known = {kind.name for kind in plan.pool.types}
    return {name: law for name, law in found.items() if name in known}, [each for each in words if each not in files]


def _by_type(name: str, words: Sequence[str], known: Sequence[str], read: Callable[[str, str], T]) -> dict[str, T]:
    """What each type is given: TYPE=… its own, one without for all others."""
    own: dict[str, T] = {}
    common: list[T] = []
    for word in words:
        kind, equals, text = word.partition("=")
        if equals and kind in known:
            own[kind] = read(f"{name} {kind}", text)
        elif equals and not Path(word).exists():
            raise UserError(
                f"{name} {shortened(kind, 60)}: the plan's pool has no such type; it has {', '.join(known)}"
            )
        else:
            common.append(read(name, word))
    if len(common) > 1:
        raise UserError(f"{name} is given {len(common)} times for all types; give it once, or as TYPE=…")
    return {kind: own[kind] if kind in own else common[0] for kind in known if kind in own or common}


def _band(name: str, text: str) -> ChosenLaw:
    from stash.core.units import parse_interruptions
    from stash.spot.records.risks import InterruptionBand
    from stash.spot.risk.lifetimes import law_of_band

    try:
        low, high = parse_interruptions(text)
    except UnitError as error:
        raise UserError(f"{name}: {error}") from error
    return law_of_band(InterruptionBand(low=low, high=high))


def _watched(name: str, text: str) -> ChosenLaw:
    from stash.spot.market_files import read_lives
    from stash.spot.risk.lifetimes import law_of

    return law_of(read_lives(Path(text)))


def _law_of_record(name: str, record: Obtainable, count: int) -> ChosenLaw:
    from stash.spot.risk.lifetimes import law_of, runs_of

    lives = runs_of(record.machines, record.gap_seconds, count)
    if not len(lives.seconds):
        raise UserError(f"the trace never has a machine for {name}; give another, or rent on demand")
    return law_of(lives)
