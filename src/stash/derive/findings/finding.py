"""What a finding is: one plain sentence about a machine, with the measurement and the fact behind it.

Records only; which findings there are, and when one is justified, is decided by the modules beside this one.
"""

from __future__ import annotations

from stash.base.records import Host, Record
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import Unit
from stash.keep.catalog import GpuFacts, Instance


class Fact(Record):
    """What a machine should have, and who says so."""

    value: float
    unit: Unit
    about: str
    """What it is a fact about, e.g. ``network of p3.8xlarge``."""
    as_of: str | None = None
    """ISO date; ``None`` for what the machine itself claims."""
    source: str = "the machine itself"


class Finding(Record):
    """One sentence worth reading, and what it rests on."""

    name: str
    """Which kind it is, e.g. ``slow-pairs``; ``docs/probe.md`` lists them all."""
    hostname: str | None = None
    """``None`` when it is about several machines."""
    text: str
    unit: Unit | None = None
    """Of ``measured``."""
    measured: Interval | None = None
    fact: Fact | None = None


def unlike(fact: Fact, measured: Interval, name: str, text: str, host: Host | None = None) -> Finding:
    """The finding that ``measured`` is not what ``fact`` says; about ``host``, or about several machines."""
    hostname = None if host is None else host.hostname
    return Finding(name=name, hostname=hostname, text=text, unit=fact.unit, measured=measured, fact=fact)


def fact_of(item: Instance | GpuFacts, about: str, value: float | None, unit: Unit) -> Fact | None:
    """The catalog's ``value`` as a fact with its date and source; ``None`` where the catalog is silent."""
    if value is None:
        return None
    return Fact(value=value, unit=unit, about=f"{about} of {item.name}", as_of=item.as_of, source=item.source)


def origin(fact: Fact) -> str:
    """``"(catalog of 2026-11-20: EC2 user guide)"``, to stand behind a fact."""
    return f"({fact.source})" if fact.as_of is None else f"(catalog of {fact.as_of}: {fact.source})"
