"""Reads the price lists that gpuhunt publishes, and checks them.

Knows the columns of the format and its traps: zones instead of regions, reservations among offers, placeholders for
prices. Keeps GPU types, and CPU types that Stash knows already. Knows nothing of the network or of the catalog that
the result goes into.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from stash.catalog.facts import Instance, PriceKind

CsvRow = dict[str, str]
Prices = dict[PriceKind, float | None]
_GPUHUNT = (
    "instance_name",
    "location",
    "price",
    "cpu",
    "memory",
    "gpu_count",
    "gpu_name",
    "gpu_memory",
    "spot",
)
_OTHERWISE_SOLD = re.compile("calendar|cluster|preview")
"""In a row's flags: it is no machine that anyone can rent by the hour, but a reservation, a part of a cluster …"""
_RUNPOD_GPUS = {
    "A100 80GB PCIe": "A100-80GB",
    "A100-SXM4-80GB": "A100-80GB-SXM",
    "H100 PCIe": "H100",
    "H100 80GB HBM3": "H100-SXM",
    "H200": "H200-SXM",
}
"""Names that SkyPilot does not make of RunPod's id of the GPU (docs.runpod.io/references/gpu-types)."""
_MIN, _MAX = 0.005, 150.0
"""Dollars per hour of one GPU (or one whole CPU machine's 40 vCPUs) between which a price is believed."""


class DamagedError(ValueError):
    """A published file cannot be used; the message says why."""


@dataclass
class ParsedPriceList:
    """What one published file says of one cloud: types, and prices of (name, region, kind) in every zone."""

    cloud: str
    source: str
    as_of: str
    known: Mapping[str, Instance]
    """The cloud's instances that Stash has already."""
    instances: dict[str, Instance] = field(default_factory=dict)
    zones: dict[tuple[str, str, PriceKind], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    read: int = 0
    left_out: int = 0
    """Rows that make no sense: no price, an absurd one, a field that is no number."""

    def prices(self) -> dict[tuple[str, str, PriceKind], float]:
        """Dollars per hour of (name, region, kind): the median over the region's zones."""
        return {key: median(values) for key, values in self.zones.items()}

    def take_all(self, lines: Iterable[CsvRow], take: Callable[[CsvRow], None]) -> ParsedPriceList:
        """This, once ``take`` has seen every line; raises DamagedError if too many make no sense."""
        for row in lines:
            self.read += 1
            try:
                take(row)
            except ValueError:
                self.left_out += 1
        if not self.zones:
            raise DamagedError("it has no offer that could be used")
        if self.left_out > 0.2 * self.read:
            raise DamagedError(f"{self.left_out} of its {self.read} lines make no sense")
        return self

    def add(
        self,
        name: str,
        model: str | None,
        count: float,
        gib: tuple[float | None, float | None],
        vcpus: float | None,
        region: str,
        prices: Prices,
    ) -> None:
        """Take a type, ``gib`` the memory of one GPU and of the host; raises ValueError if a number cannot be one."""
        if not count and name not in self.known:
            return
        if not (name and region):
            raise ValueError("no name or region")
        asked = {kind: price for kind, price in prices.items() if price is not None}
        for price in asked.values():
            if not is_believable(price, count, vcpus):
                raise ValueError(f"{price} is no price")
        if (
            name not in self.instances
        ):  # before its prices, which would be of nothing if a field of it makes no sense
            self.instances[name] = Instance(
                cloud=self.cloud,
                name=name,
                gpu_model=model,
                gpu_count=count,
                gpu_memory_bytes=gib[0] and gib[0] * 2**30,
                vcpus=vcpus,
                memory_bytes=gib[1] and gib[1] * 2**30,
                interconnect="none" if 0 < count <= 1 else None,
                as_of=self.as_of,
                source=self.source,
                layer="snapshot",
            )
        for kind, price in asked.items():
            self.zones[name, region, kind].append(price)


def read_csv(text: str, required: tuple[str, ...]) -> Iterator[CsvRow]:
    """The lines of a published CSV file; raises DamagedError when it is cut off or has other columns."""
    if not text.endswith("\n"):
        raise DamagedError("it is cut off: its last line is not complete")
    reader = csv.DictReader(io.StringIO(text))
    try:
        missing = [column for column in required if column not in (reader.fieldnames or ())]
        if missing:
            raise DamagedError(f"it has no column {missing[0]!r}; the format may have changed")
        for row in reader:
            if None in row or None in row.values():
                raise DamagedError(f"line {reader.line_num} has more or fewer fields than the head")
            yield row
    except csv.Error as error:
        raise DamagedError(f"line {reader.line_num + 1}: {error}") from None


def is_believable(price: float, gpu_count: float, vcpus: float | None) -> bool:
    """Whether a price in dollars per hour can be one: publishers use 0, 700 and the like for "not sold here"."""
    size = gpu_count or max(1.0, (vcpus or 1.0) / 40)
    return _MIN <= price / size <= _MAX


def parse_gpuhunt(
    cloud: str, text: str, source: str, as_of: str, known: Mapping[str, Instance]
) -> ParsedPriceList:
    """Read one ``<provider>.csv`` of gpuhunt's catalog. ``known``: the cloud's instances that Stash has already.

    Memory is in GB as clouds write it, meaning GiB. Raises DamagedError.
    """

    found = ParsedPriceList(cloud, source, as_of, known)

    def add_row(row: CsvRow) -> None:
        count = float(row["gpu_count"] or 0)
        # A GPU's model as Stash writes it: `A100` for `A100-80GB`, `T4G` for `T4g`.
        model = re.sub(r"-(\d+GB|MEGA)$", "", row["gpu_name"].upper()) or None
        name = row["instance_name"]
        if (
            bool(re.match(r"tpu|v\d(litepod|p|e)?-\d|inferentia|trainium", row["gpu_name"].lower()))
            or row.get("gpu_vendor") == "google"
            or _OTHERWISE_SOLD.search(row.get("flags", ""))
        ):
            return
        if cloud == "gcp" and name.startswith("n1-") and count:
            name = f"{name}+{count:g}x{model}"
        if cloud == "runpod" and count:
            name = _runpod_name(name, count, row["location"])
        region = re.sub(r"-[a-z]$", "", row["location"]) if cloud == "gcp" else row["location"]
        kind: PriceKind = "spot" if row["spot"].lower() == "true" else "on-demand"
        gib = _number(row["gpu_memory"]), _number(row["memory"])
        found.add(
            name, model, count, gib, _number(row["cpu"]), region, {kind: _number(row["price"])}
        )

    return found.take_all(read_csv(text, _GPUHUNT), add_row)


def _runpod_name(gpu: str, count: float, location: str) -> str:
    """As SkyPilot calls such a pod, ``2x_A100-80GB_SECURE``: gpuhunt names its GPU alone, by RunPod's id of it.

    Pods of the secure cloud are listed by data center (``US-CA-1``), those of the community by country (``US``).
    """
    plain = re.sub(r"^(NVIDIA|AMD|Tesla|Instinct|GeForce|\s)+|\s+Generation$", "", gpu)
    called = _RUNPOD_GPUS.get(plain) or plain.replace("RTX PRO ", "RTXPRO").replace(
        "RTX ", "RTX"
    ).replace(" ", "-")
    return f"{count:g}x_{called}_{'SECURE' if '-' in location else 'COMMUNITY'}"


def skypilot_gpu(instance: Instance) -> str:
    """How SkyPilot's GCP list calls the instance's GPU."""
    if instance.name.startswith("a3-mega"):
        return "H100-MEGA"
    large = instance.gpu_model == "A100" and (instance.gpu_memory_bytes or 0) > 60 * 2**30
    return "A100-80GB" if large else instance.gpu_model or ""


def _number(text: str) -> float | None:
    return float(text) if text else None
