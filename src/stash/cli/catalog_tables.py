"""How the catalog looks in a terminal of 80 columns: the list of offers, and the sheet of one instance or GPU.

Only turns records into text and tables; unknown is shown as unknown, never as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from stash.base.errors import UserError
from stash.base.words.units import format_bytes, format_rate

if TYPE_CHECKING:
    from stash.keep.catalog import Catalog, GpuFacts, Instance, Offer, OfferFilter

_UNKNOWN = "?"
_OPTIONS = {
    "gpu": "--gpu",
    "min_gpu_count": "--gpus",
    "max_gpu_count": "--gpus",
    "min_gpu_memory_bytes": "--min-gpu-memory",
    "cloud": "--cloud",
    "region": "--region",
    "max_dollars_per_hour": "--max-price",
    "min_network_bytes_per_second": "--min-network",
    "interconnect": "--interconnect",
    "min_vcpus": "--min-vcpus",
    "min_memory_bytes": "--min-memory",
}


def table(offers: Sequence[Offer]) -> Table:
    """The offers, one to a line; the region has a column only when there is more than one to a cloud."""
    regions = {(offer.instance.cloud, offer.region) for offer in offers}
    several = len(regions) > len({cloud for cloud, _ in regions})
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    made.add_column("instance", overflow="fold", min_width=10)
    made.add_column("GPUs", no_wrap=True)
    made.add_column("Gbit/s", justify="right", no_wrap=True)
    if several:
        made.add_column("region", overflow="fold")
    made.add_column("$/h", justify="right", no_wrap=True)
    made.add_column("as of", no_wrap=True)
    for offer in offers:
        where = [offer.region or _UNKNOWN] if several else []
        price = f"{offer.dollars_per_hour:.2f}" if offer.dollars_per_hour >= 0.1 else f"{offer.dollars_per_hour:.3f}"
        cells = [offer.instance.name, _gpus(offer.instance), _gbit(offer.instance), *where, price]
        made.add_row(*(Text(cell) for cell in (*cells, offer.as_of or "undated")))
    return made


def left_out(counts: Mapping[str, int]) -> str:
    """``"15 offers left out: network unknown (12), price unknown (3)"``."""
    total = sum(counts.values())
    facts = sorted(counts.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{fact} unknown" + (f" ({count})" if len(counts) > 1 else "") for fact, count in facts)
    return f"{total} {'offer' if total == 1 else 'offers'} left out: {listed}"


def nearly(known: Catalog, wish: OfferFilter) -> str:
    """What to say when nothing fits: which single wish, when dropped, lets something through."""
    lines = []
    options = {
        _OPTIONS[name] for name in wish.model_fields_set if getattr(wish, name) is not None and name in _OPTIONS
    }
    for option in sorted(options):
        dropped = {name: None for name, its in _OPTIONS.items() if its == option}
        found = known.query(wish.model_copy(update=dropped))
        if found:
            best = found[0]
            first = f"{best.instance.name} at ${best.dollars_per_hour:.2f}/h"
            lines.append(f"without {option}: {first}" + (f" and {len(found) - 1} more" if len(found) > 1 else ""))
    return "\n".join([f"no {wish.kinds[0]} offer fits" + (":" if lines else ""), *lines])


def sheet(known: Catalog, name: str) -> Table:
    """Everything known about the instance or GPU called ``name``; raises UserError with the nearest names."""
    try:
        instance = known.instance(name)
    except UserError:
        try:
            return _gpu_sheet(known.gpu(name))
        except UserError as error:
            if "variants" in str(error):
                raise
        raise
    made = _sheet(f"{instance.name}, {instance.cloud}")
    for label, value in _facts(instance):
        made.add_row(label, Text(value))
    for offer in known.offers_of(instance):
        price = f"${offer.dollars_per_hour:.4g}/h in {offer.region or 'unknown region'}, {offer.as_of or 'undated'}"
        detail = "; ".join(part for part in (offer.source, offer.notes) if part)
        made.add_row(offer.kind, Text(f"{price} ({detail})"))
    made.add_row("facts from", Text(f"{instance.source} (compiled {instance.as_of})"))
    if instance.notes:
        made.add_row("notes", Text(instance.notes))
    return made


def _sheet(title: str) -> Table:
    made = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, title=Text(title), title_justify="left"
    )
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def _facts(item: Instance) -> list[tuple[str, str]]:
    pairs = f"{_rate(item.pair_min_bytes_per_second)} to {_rate(item.pair_max_bytes_per_second)}"
    network = _bits(item.network_bytes_per_second)
    if item.network_burst_bytes_per_second is not None:
        network += f", in bursts {_bits(item.network_burst_bytes_per_second)}"
    disk = _rate(item.remote_disk_bytes_per_second)
    if item.remote_disk_burst_bytes_per_second is not None:
        disk += f", in bursts {_rate(item.remote_disk_burst_bytes_per_second)}"
    about_gpus = [
        ("GPUs", f"{_gpus(item)}, variant {item.gpu or 'unknown'}"),
        ("interconnect", f"{item.interconnect or 'unknown'}, {_rate(item.interconnect_bytes_per_second)} per GPU"),
        ("between pairs", pairs),
        ("PCIe, in theory", _rate(item.pcie_bytes_per_second)),
        ("PCIe, measured", _rate(item.pcie_measured_bytes_per_second)),
    ]
    return [
        *([] if item.gpu_count == 0 else about_gpus),
        ("vCPUs", "unknown" if item.vcpus is None else f"{item.vcpus:g}"),
        ("memory", _bytes(item.memory_bytes)),
        ("network", network),
        ("RDMA", "no" if item.rdma is False else _bits(item.rdma_bytes_per_second)),
        ("local disk", "none" if item.local_disk_bytes == 0 else _bytes(item.local_disk_bytes)),
        ("remote disk", disk),
    ]


def _gpu_sheet(gpu: GpuFacts) -> Table:
    made = _sheet(gpu.name)
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
    for label, value in rows:
        made.add_row(label, Text(value))
    return made


def _gpus(item: Instance) -> str:
    """``8 V100 16 GB``."""
    if item.gpu_count == 0:
        return "none"
    count = _UNKNOWN if item.gpu_count is None else f"{item.gpu_count:.3g}"
    memory = "" if item.gpu_memory_bytes is None else f" {item.gpu_memory_bytes / 2**30:.3g} GiB"
    return f"{count} {item.gpu_model or _UNKNOWN}{memory}"


def _gbit(item: Instance) -> str:
    rate = item.network_bytes_per_second
    return _UNKNOWN if rate is None else f"{rate * 8 / 1e9:.4g}"


def _bits(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate * 8 / 1e9:.4g} Gbit/s"


def _rate(rate: float | None) -> str:
    return "unknown" if rate is None else format_rate(rate)


def _bytes(size: float | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.4g} GiB ({format_bytes(size)})"


def _tera(flops: float | None) -> str:
    return "unknown" if flops is None else f"{flops / 1e12:.4g} TFLOP/s"
