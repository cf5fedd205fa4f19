"""How clouds bill beside the price per hour: by the second or the hour, disks, and data that leave.

Reads ``data/tariffs.csv``, a dated and sourced line for each fact. A cloud of which a fact was found in no source has
``None`` there, never zero. Knows nothing of what is rented.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from stash.base.records import Record
from stash.keep.catalog import shipped


class TariffFact(Record):
    """One published number of a cloud's billing."""

    value: float
    as_of: str
    source: str
    notes: str = ""


class Tariff(Record):
    """What one cloud charges beside its instances, and how it rounds; ``None``: no source says."""

    cloud: str
    billed_by_seconds: TariffFact | None = None
    """Use is rounded up to whole multiples of this."""
    least_seconds: TariffFact | None = None
    """That are paid for at any rate."""
    disk_dollars_per_gb_month: TariffFact | None = None
    """Of the network disk that machines commonly get."""
    egress_dollars_per_gb: TariffFact | None = None
    """Of data that leave the cloud, at the first tier."""


@lru_cache(maxsize=1)
def tariffs() -> Mapping[str, Tariff]:
    """The shipped tariffs by cloud."""
    found: dict[str, dict[str, object]] = {}
    for row in shipped.rows("tariffs.csv"):
        fact = TariffFact(value=float(row["value"]), as_of=row["as_of"], source=row["source"], notes=row["notes"])
        found.setdefault(row["cloud"], {})[row["fact"]] = fact
    return {cloud: Tariff.model_validate({"cloud": cloud, **facts}) for cloud, facts in found.items()}
