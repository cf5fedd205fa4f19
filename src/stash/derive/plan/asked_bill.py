"""What is paid beside the hours, from what was typed: start-up, image, data, disks, and where the data lie.

What nobody gave stays unknown and is not counted, which the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stash.base.errors import UserError
from stash.base.stats.intervals import Interval
from stash.base.words.units import parse_bytes, parse_dollars, parse_rate, parse_seconds
from stash.derive.plan.bill import BillFacts
from stash.derive.plan.typed import number
from stash.keep.catalog.tariffs import Tariff


def bill_facts(typed: Mapping[str, str], dataset_bytes: float | None, tariffs: Mapping[str, Tariff]) -> BillFacts:
    """The facts of these options; ``dataset_bytes`` is what the profile knows. Raises UserError."""

    def given(name: str, read: Callable[[str], float], free: bool = False) -> float | None:
        return number(typed, name, read, positive=not free) if name in typed else None

    data_size = given("data-size", parse_bytes, free=True)
    return BillFacts(
        start_seconds=_range(typed, "start") if "start" in typed else None,
        image_bytes=given("image-size", parse_bytes, free=True),
        dataset_bytes=dataset_bytes if data_size is None else data_size,
        download_bytes_per_second=given("download", parse_rate),
        disk_bytes=given("disk-size", parse_bytes, free=True),
        disk_dollars_per_gb_month=given("disk-price", parse_dollars, free=True),
        egress_dollars_per_gb=given("egress-price", parse_dollars, free=True),
        data_in=_cloud(typed, tariffs) if "data-in" in typed else None,
        tariffs=tariffs,
    )


def _range(typed: Mapping[str, str], name: str) -> Interval:
    """A duration, ``5m``, or a range of them, ``3m..8m``."""
    low, dots, high = typed[name].partition("..")
    ends = [number({name: text}, name, parse_seconds, positive=False) for text in ((low, high) if dots else (low,))]
    if ends != sorted(ends):
        raise UserError(f"--{name} {typed[name]}: a range begins with its lower end, like 3m..8m")
    return Interval(value=sum(ends) / len(ends), low=ends[0], high=ends[-1])


def _cloud(typed: Mapping[str, str], tariffs: Mapping[str, Tariff]) -> str:
    name = typed["data-in"].strip().lower()
    if name not in tariffs:
        raise UserError(
            f"--data-in {typed['data-in']}: what its data cost to leave is known of {', '.join(sorted(tariffs))}; of "
            "any other give --egress-price"
        )
    return name
