"""How the catalog looks: the list of offers, in as many columns as fit, and the sheet of one instance or GPU.

Only turns records into text and tables; unknown is shown as unknown, never as zero. Names are never wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from stash.catalog.facts import OLD_DAYS, Age, price_age
from stash.core.errors import UserError
from stash.core.printable import printable_line
from stash.core.units import format_bytes, format_rate
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page
from stash.ui.terminal import Listing
from stash.ui.terminal import make_listing as fitted

if TYPE_CHECKING:
    from stash.catalog.facts import Instance, Offer
    from stash.catalog.offers import Catalog, OfferFilter

_UNKNOWN = "?"
_NO_GPU = "-"
OLD = "*"
_OPTIONS = {
    "gpu": "--gpu",
    "min_gpu_count": "--gpus",
    "max_gpu_count": "--gpus",
    "min_gpu_memory_bytes": "--min-gpu-memory",
    "cloud": "--cloud",
    "region": "--region",
    "min_network_bytes_per_second": "--min-network",
    "interconnect": "--interconnect",
    "max_dollars_per_hour": "--max-price",
}


def listing(offers: Sequence[Offer], today: date, width: int | None = None) -> Listing:
    """The offers, one to a line that is never wrapped, in the columns that fit ``width`` (``None``: all of them).

    The region has a column only when there is more than one to a cloud.
    """
    regions = {(offer.instance.cloud, offer.region) for offer in offers}
    several = len(regions) > len({cloud for cloud, _ in regions})
    columns = [column for column in _COLUMNS if several or column[0] != "region"]
    rows = tuple(
        (
            *(printable_line(cell(offer)) for _, _, cell, _ in columns[:-1]),
            _age(price_age(offer.as_of, today)),
        )
        for offer in offers
    )
    return fitted(
        Grid(
            title="",
            first=columns[0][0],
            head=tuple(head for head, _, _, _ in columns[1:]),
            rows=rows,
            texts=frozenset(number for number, (_, _, _, text) in enumerate(columns) if text),
            ranks=tuple(rank for _, rank, _, _ in columns),
        ),
        width,
    )


def explain_mark(offers: Sequence[Offer], today: date) -> str:
    """What the mark behind an age means; empty if no price is marked."""
    if not any(_age(price_age(offer.as_of, today)).endswith(OLD) for offer in offers):
        return ""
    return f"{OLD} may be older than {OLD_DAYS} days; `stash catalog refresh` gets today's prices"


def left_out(counts: Mapping[str, int]) -> str:
    """``"15 offers left out: network unknown (12), price unknown (3)"``."""
    total = sum(counts.values())
    facts = sorted(counts.items(), key=lambda item: -item[1])
    listed = ", ".join(
        f"{fact} unknown" + (f" ({count})" if len(counts) > 1 else "") for fact, count in facts
    )
    return f"{total} {'offer' if total == 1 else 'offers'} left out: {listed}"


class Nothing(NamedTuple):
    """Why no offer fits."""

    kind: str
    is_known: bool
    """Whether there are offers of the kind."""
    nearest: tuple[tuple[str, tuple[Offer, ...]], ...]
    """Each wish that lets something through when it alone is dropped, and what: the cheapest first."""


def explain_nothing(known: Catalog, wish: OfferFilter) -> Nothing:
    """Which wishes leave nothing; a fact that is not known keeps an offer out as well."""
    given = [name for name in _OPTIONS if getattr(wish, name) is not None]

    def query_without(options: Collection[str]) -> tuple[Offer, ...]:
        return known.query(
            wish.model_copy(update={name: None for name in given if _OPTIONS[name] in options})
        )

    options = list(dict.fromkeys(_OPTIONS[name] for name in given))
    found = tuple((option, offers) for option in options if (offers := query_without([option])))
    return Nothing(wish.kinds[0], bool(query_without(options)), found)


def nothing_text(nothing: Nothing) -> str:
    """``"no on-demand offer fits"``, and what there is without single wishes."""
    if not nothing.is_known:
        return f"no {nothing.kind} price is known; `stash catalog refresh` gets today's"
    lines = [
        f"no {nothing.kind} offer fits{'' if nothing.nearest else '; leave out more than one of the options'}"
    ]
    for option, offers in nothing.nearest:
        first = f"{offers[0].instance.name} at ${offers[0].dollars_per_hour:.2f}/h"
        lines.append(
            f"without {option}: {first}"
            + (f" and {len(offers) - 1} more" if len(offers) > 1 else "")
        )
    return "\n".join(lines)


def sheet(known: Catalog, name: str) -> Page:
    """Everything known about the instance or GPU called ``name``; raises UserError with the nearest names."""
    try:
        return _instance_sheet(known, known.instance(name))
    except UserError as unknown:
        try:
            gpu = known.gpu(name)
            rows = [
                ("architecture", gpu.architecture or "unknown"),
                ("fp32", _tera(gpu.fp32_flops_per_second)),
                ("fp16, bf16 tensor", _tera(gpu.tensor_fp16_flops_per_second)),
                ("tf32 tensor", _tera(gpu.tensor_tf32_flops_per_second)),
                ("fp16, no tensor", _tera(gpu.fp16_flops_per_second)),
                ("memory", _bytes(gpu.memory_bytes)),
                ("memory bandwidth", _rate(gpu.memory_bytes_per_second)),
                ("NVLink, one way", _rate(gpu.nvlink_bytes_per_second)),
                ("PCIe", gpu.pcie or "unknown"),
                ("power", "unknown" if gpu.watts is None else f"{gpu.watts:g} W"),
                ("released", "unknown" if gpu.release_year is None else str(gpu.release_year)),
                ("facts from", f"{gpu.source} (compiled {gpu.as_of})"),
                *([("notes", gpu.notes)] if gpu.notes else []),
            ]
            return _sheet(gpu.name, rows)
        except UserError as error:
            if "variants" in str(error):
                raise
        raise unknown from None


def _sheet(title: str, facts: Sequence[tuple[str, str]]) -> Page:
    return Page(
        title, chapters=(Chapter("facts", "What is known of it", facts=tuple(facts), brief=True),)
    )


def _instance_sheet(known: Catalog, instance: Instance) -> Page:
    pairs = f"{_rate(instance.pair_min_bytes_per_second)} to {_rate(instance.pair_max_bytes_per_second)}"
    network = _bits(instance.network_bytes_per_second)
    if instance.network_burst_bytes_per_second is not None:
        network += f", in bursts {_bits(instance.network_burst_bytes_per_second)}"
    disk = _rate(instance.remote_disk_bytes_per_second)
    if instance.remote_disk_burst_bytes_per_second is not None:
        disk += f", in bursts {_rate(instance.remote_disk_burst_bytes_per_second)}"
    about_gpus = [
        ("GPUs", f"{_gpus(instance)}, variant {instance.gpu or 'unknown'}"),
        (
            "interconnect",
            f"{instance.interconnect or 'unknown'}, {_rate(instance.interconnect_bytes_per_second)} per GPU",
        ),
        ("between pairs", pairs),
        ("PCIe, in theory", _rate(instance.pcie_bytes_per_second)),
        ("PCIe, measured", _rate(instance.pcie_measured_bytes_per_second)),
    ]
    facts = [
        *([] if instance.gpu_count == 0 else about_gpus),
        ("vCPUs", "unknown" if instance.vcpus is None else f"{instance.vcpus:g}"),
        ("memory", _bytes(instance.memory_bytes)),
        ("network", network),
        ("RDMA", "no" if instance.rdma is False else _bits(instance.rdma_bytes_per_second)),
        (
            "local disk",
            "none" if instance.local_disk_bytes == 0 else _bytes(instance.local_disk_bytes),
        ),
        ("remote disk", disk),
        *([] if instance.owned_count is None else [("of your own", f"{instance.owned_count}")]),
        *([] if instance.reserved_count is None else [("reserved", f"{instance.reserved_count}")]),
    ]
    for offer in known.offers_of(instance):
        price = f"${offer.dollars_per_hour:.4g}/h in {offer.region or 'unknown region'}, {offer.as_of or 'undated'}"
        detail = "; ".join(part for part in (offer.source, offer.notes) if part)
        facts.append((offer.kind, f"{price} ({detail})"))
    facts.append(("facts from", f"{instance.source} (compiled {instance.as_of})"))
    facts += [("notes", instance.notes)] if instance.notes else []
    return _sheet(f"{instance.name}, {instance.cloud}", facts)


def _gpus(item: Instance) -> str:
    """``8 V100 16 GB``."""
    if item.gpu_count == 0:
        return "none"
    count = _UNKNOWN if item.gpu_count is None else f"{item.gpu_count:.3g}"
    memory = "" if item.gpu_memory_bytes is None else f" {item.gpu_memory_bytes / 2**30:.3g} GiB"
    return f"{count} {item.gpu_model or _UNKNOWN}{memory}"


def _dollars(price: float) -> str:
    return f"{price:.2f}" if price >= 0.1 else f"{price:.3f}"


def _per_gpu(offer: Offer) -> str:
    if offer.dollars_per_gpu_hour is not None:
        return _dollars(offer.dollars_per_gpu_hour)
    return _NO_GPU if offer.instance.gpu_count == 0 else _UNKNOWN


def _interconnect_text(item: Instance) -> str:
    return _NO_GPU if item.gpu_count == 0 else item.interconnect or _UNKNOWN


def _number(value: float | None, unit: float = 1.0) -> str:
    return _UNKNOWN if value is None else f"{value / unit:.4g}"


def _age(known: Age | None) -> str:
    """``125 d *``; of a month or a year it is a bound."""
    if known is None:
        return f"? {OLD}"
    bound = "" if known.days is not None else ">" if known.least > 0 else "<"
    days = known.least if known.least > 0 or known.days is not None else known.most
    return f"{bound}{days} d {OLD if known.is_old else ' '}"


def _bits(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate * 8 / 1e9:.4g} Gbit/s"


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else format_rate(rate)


def _bytes(size: float | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.4g} GiB ({format_bytes(size)})"


def _tera(flops: float | None) -> str:
    return "unknown" if flops is None else f"{flops / 1e12:.4g} TFLOP/s"


_COLUMNS: list[tuple[str, int, Callable[[Offer], str], bool]] = [
    ("cloud", 2, lambda offer: offer.instance.cloud, True),
    ("instance", 0, lambda offer: offer.instance.name, True),
    ("GPUs", 0, lambda offer: _gpus(offer.instance), True),
    ("vCPU", 4, lambda offer: _number(offer.instance.vcpus), False),
    ("GiB", 5, lambda offer: _number(offer.instance.memory_bytes, 2**30), False),
    ("interconnect", 6, lambda offer: _interconnect_text(offer.instance), True),
    ("Gbit/s", 3, lambda offer: _number(offer.instance.network_bytes_per_second, 1e9 / 8), False),
    ("region", 7, lambda offer: offer.region or _UNKNOWN, True),
    ("$/h", 0, lambda offer: _dollars(offer.dollars_per_hour), False),
    ("$/GPU", 1, _per_gpu, False),
    ("as of", 8, lambda offer: offer.as_of or "undated", True),
    ("age", 0, lambda offer: "", False),
]
"""In the order of the table: head, rank (0 is never left out), cell, whether it is text; ages depend on the day."""
