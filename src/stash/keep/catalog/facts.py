"""What the catalog holds: a GPU, an instance type, and an offer (an instance at a price), as frozen records.

Every number is in base units (bytes, bytes per second, FLOP per second, dollars per hour); ``None`` means that
no source was found and never zero. Knows nothing of files, of where a fact came from beyond its ``source``
text, or of how offers are chosen. ``docs/catalog.md`` describes every field of the files behind them.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from stash.base.records import Record

PriceKind = Literal["on-demand", "spot", "prior", "reserved"]
"""``prior`` is an on-demand price that is no longer asked; it stays as history. ``reserved`` is one of capacity that
the user has reserved, and there is only so much of it."""
KINDS: tuple[PriceKind, ...] = ("on-demand", "spot", "prior", "reserved")
"""In the order of their numbers in snapshots: new ones come last."""

CatalogLayer = Literal["shipped", "snapshot", "user"]
"""Where an instance is described first of all: in Stash itself, in a refreshed snapshot, or in the user's file."""

Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class GpuFacts(Record):
    """One GPU as its vendor and independent measurements describe it. Rates are peaks without sparsity."""

    name: str
    """The exact variant, e.g. ``A100-SXM4-80GB``."""
    model: str
    """What clouds call it, e.g. ``A100``; several variants may share it."""
    architecture: str | None = None
    fp32_flops_per_second: Amount | None = None
    tensor_fp16_flops_per_second: Amount | None = None
    """fp16 and bf16 on tensor cores, dense."""
    tensor_tf32_flops_per_second: Amount | None = None
    fp16_flops_per_second: Amount | None = None
    """Without tensor cores."""
    memory_bytes: Amount | None = None
    """Nominal: the vendor's figure read as GiB, except where ``notes`` says otherwise."""
    memory_bytes_per_second: Amount | None = None
    watts: Amount | None = None
    pcie: str | None = None
    """Generation and width of the card, e.g. ``4.0 x16``."""
    nvlink_bytes_per_second: Amount | None = None
    """One direction, all links of the GPU together."""
    release_year: int | None = None
    as_of: str
    source: str
    notes: str = ""


class Instance(Record):
    """One rentable VM type, or a machine of the user's own."""

    cloud: str
    name: str
    gpu_model: str | None = None
    """``None`` on types without GPUs (``gpu_count`` is 0)."""
    gpu: str | None = None
    """Name of the exact variant, a key of the GPU table; ``None`` when no source says which it is."""
    gpu_count: Amount | None = None
    """A fraction for slices of a GPU; one die counts as one GPU on K80 and M60."""
    gpu_memory_bytes: Amount | None = None
    """Of one GPU."""
    vcpus: Amount | None = None
    memory_bytes: Amount | None = None
    interconnect: str | None = None
    """Fabric between GPUs: ``none`` (one GPU), ``pcie3`` …, ``nvlink2`` …, ``nvlink3+nvswitch``."""
    interconnect_bytes_per_second: Amount | None = None
    """Per GPU, one direction, all its links together."""
    pair_min_bytes_per_second: Amount | None = None
    pair_max_bytes_per_second: Amount | None = None
    """Between one pair of GPUs, one direction: the worst and the best pair."""
    pcie_bytes_per_second: Amount | None = None
    """Theoretical x16 rate of the GPU's PCIe generation, one direction."""
    pcie_measured_bytes_per_second: Amount | None = None
    network_bytes_per_second: Amount | None = None
    """Sustained."""
    network_burst_bytes_per_second: Amount | None = None
    rdma_bytes_per_second: Amount | None = None
    rdma: bool | None = None
    local_disk_bytes: Amount | None = None
    """0 when the type has no local disk."""
    remote_disk_bytes_per_second: Amount | None = None
    remote_disk_burst_bytes_per_second: Amount | None = None
    owned_count: int | None = None
    """How many of it the user has, where it is the user's own."""
    reserved_count: int | None = None
    """How many of it the user has reserved."""
    as_of: str
    source: str
    notes: str = ""
    layer: CatalogLayer = "shipped"

    @property
    def devices(self) -> int:
        """Ranks that one of it trains, one each: its GPUs, a slice of one counting as one; 1 without GPUs."""
        return max(1, int(self.gpu_count or 0))

    @property
    def gpu_share(self) -> float:
        """Of a whole GPU, what each of its devices is: below 1 where a slice of one is sold."""
        return min(1.0, self.gpu_count) if self.gpu_count else 1.0

    @property
    def total_gpu_memory_bytes(self) -> float | None:
        """Memory of all GPUs together, in bytes."""
        if self.gpu_count is None or self.gpu_memory_bytes is None:
            return None
        # A slice's memory is already that of the slice.
        return self.gpu_memory_bytes * max(1.0, self.gpu_count)


class Offer(NamedTuple):
    """An instance at a price. A tuple, because catalogs hold a hundred thousand of them."""

    instance: Instance
    kind: PriceKind
    dollars_per_hour: float
    region: str | None
    as_of: str | None
    """ISO date, possibly only a year or a month; ``None`` when the source is undated."""
    source: str
    notes: str

    @property
    def dollars_per_gpu_hour(self) -> float | None:
        """Price of one GPU for an hour; ``None`` without GPUs."""
        return self.dollars_per_hour / self.instance.gpu_count if self.instance.gpu_count else None


class Price(NamedTuple):
    """One price before it is joined to its instance: a line of ``prices.csv`` or of a user's file."""

    cloud: str
    instance: str
    region: str | None
    kind: PriceKind
    dollars_per_hour: float
    as_of: str | None
    source: str
    notes: str
