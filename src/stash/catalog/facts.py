"""What the catalog holds: GPUs, instance types and offers as frozen records; found by name, with their age.

Every number is in base units (bytes, bytes per second, FLOP per second, dollars per hour); ``None`` means that no
source was found and never zero. ``docs/catalog.md`` describes every field of the files behind them.
"""

from __future__ import annotations

import calendar
import math
import os
import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from stash.core.errors import UserError
from stash.core.records.base import Record
from stash.core.units import find_nearest

PriceKind = Literal["on-demand", "spot", "prior", "reserved"]
"""``prior`` is an on-demand price of an earlier date; it stays as history. ``reserved`` is one of capacity that
the user has reserved, and there is only so much of it."""

CatalogLayer = Literal["shipped", "snapshot", "user"]
"""Where an instance is described first of all: in Stash itself, in a refreshed snapshot, or in the user's file."""

Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


Architecture = Literal[
    "Kepler",
    "Maxwell",
    "Pascal",
    "Volta",
    "Turing",
    "Ampere",
    "Ada",
    "Hopper",
    "Blackwell",
    "CDNA2",
    "CDNA3",
    "CDNA4",
]


# Sources date a price by a day, a month or a year, or not at all: an age is a range of days, never a guess within it.

_DATE = re.compile(r"[0-9]{4}(-(?!00)[0-9]{2}(-(?!00)[0-9]{2})?)?")
OLD_DAYS = 90
"""Clouds change prices about this often; gpuhunt and SkyPilot publish theirs daily."""


class Age(NamedTuple):
    """Days since a price was asked: between ``least`` and ``most``, which are equal where the day is known."""

    least: int
    most: int

    @property
    def is_old(self) -> bool:
        """Whether it may be older than ``OLD_DAYS``."""
        return self.most > OLD_DAYS

    @property
    def days(self) -> int | None:
        """The days, where they are known exactly."""
        return self.least if self.least == self.most else None


@lru_cache(maxsize=1024)
def price_age(as_of: str | None, today: date) -> Age | None:
    """The age of a price of the ISO date ``as_of``, which may be a month or a year; ``None`` if it is undated.

    Of a period that is not over yet, only its days until ``today`` count.
    """
    if as_of is None:
        return None
    first, last = _period(as_of)
    return Age(max(0, (today - last).days), (today - first).days)


def is_date(text: str) -> bool:
    """Whether ``text`` is an ISO date, a month or a year, as ``price_age`` takes it."""
    if not _DATE.fullmatch(text):
        return False
    try:
        _period(text)
    except ValueError:
        return False
    return True


def _date(given: object) -> str | None:
    text = given.isoformat() if isinstance(given, date) else str(given)
    if given is not None and not is_date(text):
        raise ValueError(f"{text!r} is not a date; write it like 2026-11-01")
    return None if given is None else text


Date = Annotated[str | None, BeforeValidator(_date)]
"""As people write it in a file: a day, a month or a year."""


def _period(as_of: str) -> tuple[date, date]:
    """Its first and its last day; raises ValueError where there are none."""
    year, *rest = map(int, as_of.split("-"))
    month, day = (*rest, 0, 0)[:2]
    first = date(year, month or 1, day or 1)
    last_month = month or 12
    return first, date(year, last_month, day or calendar.monthrange(year, last_month)[1])


# GPUs, instances and prices


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
        """Share of a whole GPU that each of its devices is: below 1 where a slice of one is sold."""
        return min(1.0, self.gpu_count) if self.gpu_count else 1.0


class Offer(NamedTuple):
    """An instance at a price."""

    instance: Instance
    kind: PriceKind
    dollars_per_hour: float
    region: str | None
    as_of: str | None
    """ISO date, possibly only a year or a month; ``None`` when the source is undated."""
    source: str
    notes: str
    own: bool = False
    """Whether the price is of the user's own file."""

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
    dollars_per_hour: Annotated[float, Field(gt=0, lt=1e9)]
    as_of: Date
    source: str
    notes: str
    own: bool = False
    """Whether it is a line of a user's file."""


_MAKERS = {"nvidia", "tesla", "geforce", "quadro", "amd", "instinct"}

_DRIVERS = {
    "h100 80gb hbm3": "h100 sxm5 80gb",
    "b300 sxm6 ac": "b300",
    "gh200 480gb": "gh200 96gb",
    "rtx 6000 ada generation": "rtx 6000 ada",
    "rtx pro 6000 blackwell workstation edition": "rtx pro 6000",
    "rtx pro 6000 blackwell server edition": "rtx pro 6000",
}
"""Names that NVML reports and that say nothing, or something else, of the variant they belong to: in words without
the maker, with the words of the catalog's name. Of the H100s only SXM5 boards have 80 GB of HBM3; 480 GB are those of
a GH200's processor. All other names (``Tesla V100-SXM2-16GB``) hold the catalog's words already."""


def unknown_name(what: str, name: str, known: Iterable[str], option: str = "") -> UserError:
    """The error for a name that is not there, of an ``option`` if it is one's: what it may have been meant to be."""
    alike = find_nearest(name, known)
    hint = f"did you mean {', '.join(alike)}?" if alike else "`stash catalog` lists what there is"
    wrong = (
        f"--{option} {name}: no such {what} in the catalog"
        if option
        else f"unknown {what} {name!r}"
    )
    return UserError(f"{wrong}; {hint}")


def match_name(name: str, known: Iterable[str], what: str, option: str) -> str:
    """The name as the catalog writes it, taken in any case; raises UserError with the nearest names."""
    written = {each.lower(): each for each in known}
    if name.strip().lower() not in written:
        raise unknown_name(what, name, written.values(), option)
    return written[name.strip().lower()]


@lru_cache(maxsize=4096)
def name_words(name: str) -> frozenset[str]:
    """The words of a GPU's name in lower case, without its maker: {"a100", "sxm4", "80gb"}.

    A name that only drivers use has the words of the catalog's name instead.
    """
    words = [
        word for word in re.split(r"[\s\-_]+", name.strip().lower()) if word and word not in _MAKERS
    ]
    return frozenset(_DRIVERS.get(" ".join(words), " ".join(words)).split())


def found_by_name(name: str, gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    """The GPU of exactly that name, else the only one of that model, else all whose names hold its words.

    A driver's name has words of all three kinds.
    """
    words = name_words(name)
    known = list(gpus)
    exact = [gpu for gpu in known if name_words(gpu.name) == words]
    of_model = [gpu for gpu in known if name_words(gpu.model) == words]
    if not exact and len(of_model) == 1:
        return of_model
    return exact or [gpu for gpu in known if words and words <= name_words(gpu.name)]


# ``STASH_HOME`` wins over ``XDG_CACHE_HOME`` and ``XDG_CONFIG_HOME``, which win over ``~/.cache`` and ``~/.config``.


def snapshot_file() -> Path:
    """The snapshot that ``stash catalog refresh`` writes; it need not exist."""
    return _folder("XDG_CACHE_HOME", ".cache") / "catalog.json"


def own_file() -> Path:
    """The user's own instances; it need not exist."""
    return _folder("XDG_CONFIG_HOME", ".config") / "instances.yaml"


def _folder(variable: str, default: str) -> Path:
    if own := os.environ.get("STASH_HOME"):
        return Path(own).expanduser()
    return Path(os.environ.get(variable) or Path.home() / default).expanduser() / "stash"


# Price lists count a slice of a GPU as none, as a fraction of one, or as a whole one; its memory gives it away.

_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Into which vendors cut a GPU's memory."""
_MIN_WHOLE = 0.7
"""Of the nominal memory: drivers keep a tenth, and boards of one name differ by a quarter (P100, 12 and 16 GB)."""
_USABLE = 0.965
"""Of the nominal memory, between what is sold (all) and what drivers report."""


def share_of(name: str | None, memory_bytes: float | None, gpus: Iterable[GpuFacts]) -> float:
    """Share of a whole GPU that a device of that name with so much memory is: 1, or 1/n of a slice.

    1 as well where its memory, or the GPU, is not known.
    """
    if name is None or not memory_bytes:
        return 1.0
    words = name_words(name)
    alike = [gpu for gpu in gpus if gpu.memory_bytes and name_words(gpu.model) <= words]
    exact = [gpu for gpu in alike if name_words(gpu.name) <= words]
    whole = min((gpu.memory_bytes for gpu in exact or alike if gpu.memory_bytes), default=None)
    if whole is None or memory_bytes >= _MIN_WHOLE * whole:
        return 1.0
    parts = _USABLE * whole / memory_bytes
    return 1 / min(_PARTS, key=lambda count: abs(math.log(parts / count)))


def slice_gpu(instance: Instance, gpus: Iterable[GpuFacts]) -> Instance:
    """The same with the fraction of a GPU that its memory shows, where a price list counts it as a whole one."""
    if instance.gpu_count != 1:
        return instance
    share = share_of(instance.gpu or instance.gpu_model, instance.gpu_memory_bytes, gpus)
    return instance if share == 1.0 else instance.model_copy(update={"gpu_count": share})
