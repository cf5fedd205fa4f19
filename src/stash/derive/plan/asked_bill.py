"""What a bill needs, from what was typed: ``--start 5m``, ``--image-size 20GB``, ``--egress-price $0.09``.

Reads options. What nobody typed is a cloud's own tariff where a source has it, else not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stash.base.errors import UnitError, UserError
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import listed
from stash.base.words.spelling import nearest
from stash.base.words.units import parse_bytes, parse_dollars, parse_rate, parse_seconds
from stash.derive.plan.bill import BillFacts
from stash.derive.plan.typed import number
from stash.keep.catalog import Catalog
from stash.keep.catalog.own import ON_PREMISE
from stash.keep.catalog.tariffs import tariffs

_PER_GB = re.compile(r"\s*(/|per)\s*gb([\s-]*(/|per|and|a)?[\s-]*(mo|month))?\s*$", re.IGNORECASE)
"""What may follow the dollars: ``/GB``, ``per GB-month``."""


def bill_facts(typed: Mapping[str, str], dataset_bytes: float | None, catalog: Catalog) -> BillFacts:
    """Of options by name, each as it was typed; raises UserError. ``dataset_bytes`` is what a profile says of it.

    Reads ``start``, ``image-size``, ``data-size``, ``download``, ``disk-size``, ``disk-price``, ``data-in`` and
    ``egress-price``, and leaves others alone.
    """

    def size(name: str) -> float | None:
        return number(typed, name, parse_bytes, positive=False) if name in typed else None

    def dollars(name: str) -> float | None:
        return number(typed, name, _dollars_per_gb, positive=False) if name in typed else None

    return BillFacts(
        start_seconds=_start(typed),
        image_bytes=size("image-size"),
        dataset_bytes=size("data-size") if "data-size" in typed else dataset_bytes,
        download_bytes_per_second=number(typed, "download", parse_rate) if "download" in typed else None,
        disk_bytes=size("disk-size"),
        disk_dollars_per_gb_month=dollars("disk-price"),
        egress_dollars_per_gb=dollars("egress-price"),
        data_in=_cloud(typed, catalog),
        tariffs=tariffs(),
    )


def _start(typed: Mapping[str, str]) -> Interval | None:
    """A duration, exact as typed; or two, between which it lies with 95 %, like ``3m..8m``."""
    if "start" not in typed:
        return None
    first, dots, last = typed["start"].partition("..")
    ends = [
        number({"start": text}, "start", parse_seconds, positive=False) for text in (first, last if dots else first)
    ]
    if ends[0] > ends[1]:
        raise UserError(f"--start {typed['start']}: the shorter time comes first, like 3m..8m")
    return Interval(value=sum(ends) / 2, low=ends[0], high=ends[1])


def _dollars_per_gb(text: str) -> float:
    """Dollars in ``$0.08``, ``$0.08/GB`` or ``0.08 USD per GB-month``; raises UnitError."""
    try:
        return parse_dollars(_PER_GB.sub("", text))
    except UnitError:
        raise UnitError("it is in US dollars per GB, like $0.08") from None


def _cloud(typed: Mapping[str, str], catalog: Catalog) -> str | None:
    if "data-in" not in typed:
        return None
    name = typed["data-in"].strip().lower()
    clouds = {instance.cloud for instance in catalog.instances} | {ON_PREMISE}
    known = {cloud.lower(): cloud for cloud in clouds}
    if name not in known:
        alike = nearest(name, clouds)
        hint = f"did you mean {listed(alike)}?" if alike else f"there are {listed(sorted(clouds))}"
        raise UserError(f"--data-in {typed['data-in']}: no offer is of that cloud; {hint}")
    return known[name]
