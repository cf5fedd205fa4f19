"""A target as a user writes it down: a small YAML text, checked with line and field of every mistake.

Turns text into a ``Target`` and reads no file. A quantity is one value, or a value with the ends between which it is
known to lie; what is left out stays unknown. Instances and prices are another file's matter (``catalog/own``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from stash.core.errors import UnitError
from stash.core.units import parse_bytes, parse_rate, parse_seconds
from stash.core.user_files import loads, quantity
from stash.predict.cluster import Backend, Network, NetworkKind, NodeLinks, Storage, Target, Wiring
from stash.predict.draws import Quantity

EXAMPLE = """\
name: lab
nodes: 4
devices: 8
device: A100-SXM4-80GB
backend: nccl
as_of: 2026-11-01
source: nccl-tests of last week
inside:
  wiring: nvswitch
  bandwidth: {value: 230GB/s, low: 225GB/s, high: 235GB/s}
  latency: 4us
network:
  transport: infiniband
  bandwidth: 22GB/s
  nics: 4
  latency: 12us
cores: 128
memory: 1TiB
disk:
  bandwidth: 5GB/s
  reads_per_second: 200000
"""


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Ends(_Written):
    value: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(None, gt=0, allow_inf_nan=False)
    high: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> _Ends:
        if (self.low is None) is not (self.high is None):
            raise ValueError("give both low and high, or neither")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError("value must lie between low and high")
        return self


def _ends(parse: Callable[[str], float], bare: bool = True) -> BeforeValidator:
    """Of ``10GB/s``, or ``{value: 10GB/s, low: 9GB/s, high: 11GB/s}``; ``bare``: of a number too, in base units."""
    read = quantity(parse, bare).func

    def ends(given: Any) -> Any:
        if isinstance(given, dict):
            return {name: read(value) for name, value in given.items()}  # type: ignore[call-arg]
        return None if given is None else {"value": read(given)}  # type: ignore[call-arg]

    return BeforeValidator(ends)


def _plain(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UnitError(f"{text!r} is not a number") from None


_Rate = Annotated[_Ends | None, _ends(parse_rate)]
_Size = Annotated[_Ends | None, _ends(parse_bytes)]
_Time = Annotated[_Ends | None, _ends(partial(parse_seconds, likely=("us", "ms", "s")), bare=False)]
_Count = Annotated[_Ends | None, _ends(_plain)]


class _Inside(_Written):
    wiring: Wiring | None = None
    bandwidth: _Rate = None
    latency: _Time = None
    slowest_share: Annotated[float, Field(gt=0, le=1)] = 1.0


class _Between(_Written):
    transport: NetworkKind | None = None
    bandwidth: _Rate = None
    latency: _Time = None
    nics: Annotated[int, Field(ge=1, le=1024)] = 1


class _Disk(_Written):
    bandwidth: _Rate = None
    burst: _Rate = None
    reads_per_second: _Count = None
    latency: _Time = None
    stream: _Rate = None
    remote: bool | None = None

    @model_validator(mode="after")
    def _bursts_above_what_it_sustains(self) -> _Disk:
        if self.burst is not None and self.bandwidth is not None and self.burst.value < self.bandwidth.value:
            raise ValueError("burst is what the disk does at first, so at least bandwidth, which it sustains")
        return self


class _Described(_Written):
    name: Annotated[str, Field(min_length=1, max_length=100)] = "described"
    nodes: Annotated[int, Field(ge=1, le=1_000_000)]
    devices: Annotated[int, Field(ge=1, le=1024)] = 1
    device: Annotated[str, Field(max_length=100)] | None = None
    device_memory: _Size = None
    backend: Backend | None = None
    inside: _Inside | None = None
    network: _Between | None = None
    cores: _Count = None
    memory: _Size = None
    disk: _Disk | None = None
    as_of: Annotated[str | None, BeforeValidator(lambda given: None if given is None else str(given))] = None
    source: Annotated[str, Field(max_length=1_000)] | None = None


def target_of_text(text: str, path: str) -> Target:
    """The target that ``text`` describes; ``path`` is named in errors and as its source. Raises UserError."""
    described = loads(text, path, _Described).content
    inside, network, disk = described.inside, described.network, described.disk

    def fact(ends: _Ends | None) -> Quantity | None:
        """What a user wrote; without a spread it is a wish, and taken as exact."""
        if ends is None:
            return None
        source, as_of = described.source or path, described.as_of
        return Quantity(value=ends.value, low=ends.low, high=ends.high, origin="given", as_of=as_of, source=source)

    return Target(
        name=described.name,
        nodes=described.nodes,
        devices=described.devices,
        backend=described.backend or ("gloo" if described.device is None else "nccl"),
        device=described.device,
        device_memory_bytes=fact(described.device_memory),
        inside=inside
        and NodeLinks(
            wiring=inside.wiring,
            bytes_per_second=fact(inside.bandwidth),
            latency_seconds=fact(inside.latency),
            slowest_share=inside.slowest_share,
        ),
        network=network
        and Network(
            transport=network.transport,
            bytes_per_second=fact(network.bandwidth),
            nics=network.nics,
            latency_seconds=fact(network.latency),
        ),
        cores=fact(described.cores),
        memory_bytes=fact(described.memory),
        storage=disk
        and Storage(
            bytes_per_second=fact(disk.bandwidth),
            burst_bytes_per_second=fact(disk.burst),
            reads_per_second=fact(disk.reads_per_second),
            remote=disk.remote,
            latency_seconds=fact(disk.latency),
            stream_bytes_per_second=fact(disk.stream),
        ),
    )
