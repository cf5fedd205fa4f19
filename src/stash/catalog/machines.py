"""A machine of the catalog for other uses: emulated, or owned by oneself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.catalog.facts import GpuFacts
from stash.catalog.offers import Catalog
from stash.core.errors import UserError

# Peak rates of a GPU, for an emulation: what is unknown in the catalog is refused, never guessed.

VALUE_BYTES = {"fp32": 4, "fp16": 2}
"""Bytes of a value in the passes, by precision."""


@dataclass(frozen=True)
class Peak:
    """Peak rates, operations and bytes per second, and which GPU's they are by whose word."""

    flops_per_second: float
    memory_bytes_per_second: float
    about: str


def find_variants(name: str, catalog: Catalog) -> tuple[GpuFacts, ...]:
    """Every variant of the model of that name, else the one GPU of that name; raises UserError naming the nearest."""
    model = tuple(gpu for gpu in catalog.gpus if gpu.model.lower() == name.strip().lower())
    return model or (catalog.gpu(name),)


def peak_rates(gpus: Sequence[GpuFacts], precision: str) -> Peak:
    """The rates of the fastest variant; raises UserError if the catalog does not know them."""
    known = [
        (flops, gpu.memory_bytes_per_second, gpu)
        for gpu in gpus
        if (flops := _flops(gpu, precision)) is not None and gpu.memory_bytes_per_second is not None
    ]
    if not known:
        raise UserError(
            f"the catalog does not know the {precision} rate of {gpus[0].name}; name another GPU or precision"
        )
    # of equals the first: the one with least memory
    flops, memory, gpu = max(known, key=lambda one: one[:2])
    others = [other.name for other in gpus if other is not gpu]
    choice = f", the fastest of its variants (others: {', '.join(others)})" if others else ""
    about = f"{gpu.name}{choice}, {precision}: {flops / 1e12:g} TFLOP/s, {memory / 1e9:g} GB/s"
    return Peak(flops, memory, f"{about} (as of {gpu.as_of}; {gpu.source})")


def _flops(gpu: GpuFacts, precision: str) -> float | None:
    """Tensor cores where there are any: PyTorch's autocast uses them."""
    if precision == "fp32":
        return gpu.fp32_flops_per_second
    return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second


# Owned machines: an hour costs its share of the purchase, and its power.
#
#     dollars per hour = purchase / (years · 8,760 h · utilisation) + power · price of power
#
# An hour in which it stands idle is paid for by those in which it trains, so a machine that is used half the time
# costs twice as much an hour. Power is that drawn in use; what it draws idle, and people, rooms and spare parts,
# are nowhere in it: add them to the purchase.

HOURS_A_YEAR = 8_760.0


@dataclass(frozen=True)
class Ownership:
    """What was paid for one machine, and how it is used."""

    purchase: float
    """Dollars."""
    years: float
    utilisation: float
    """Share of the time in which it is used: above 0, up to 1."""
    watts: float | None = None
    dollars_per_kwh: float | None = None

    @property
    def dollars_per_hour(self) -> float:
        power = (self.watts or 0.0) / 1000 * (self.dollars_per_kwh or 0.0)
        return self.purchase / (self.years * HOURS_A_YEAR * self.utilisation) + power


def is_called(instance: str, cloud: str | None, seen: str) -> bool:
    """Whether ``seen`` is what a machine says its type is: the instance's name in any case, on GCP without its GPUs.

    There GPUs are attached to a machine: ``n1-standard-8`` is all that the metadata of an ``n1-standard-8+1xV100``
    tell, so its GPUs have to be compared besides.
    """
    name = instance.lower()
    seen = seen.lower()
    return name == seen or (cloud == "gcp" and name.partition("+")[0] == seen)
