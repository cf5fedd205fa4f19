"""The description of an emulated accelerator's work, as people write it in YAML.

Layers with the bytes of their parameters and the time their passes take, and what goes wrong besides.
Knows nothing of PyTorch; ``accelerator`` makes it run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stash.core import user_files
from stash.core.errors import UserError
from stash.core.records.base import first_mistake
from stash.core.units import parse_bytes, parse_rate, parse_seconds
from stash.core.user_files import quantity

Seconds = Annotated[
    float,
    quantity(partial(parse_seconds, named="s"), bare=True),  # fields are called ``…_seconds``
    Field(ge=0, le=1e9, allow_inf_nan=False),
]
Bytes = Annotated[
    int, quantity(lambda text: round(parse_bytes(text)), bare=True), Field(ge=0, le=10**18)
]
BytesPerSecond = Annotated[
    float, quantity(parse_rate, bare=True), Field(ge=1, le=1e18, allow_inf_nan=False)
]
"""Bytes per second."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LayerSpec(_Strict):
    """One layer: a parameter of so many bytes (float32), and its passes at the model's batch."""

    name: Annotated[str, Field(max_length=1_000)]
    bytes: Bytes
    forward_seconds: Seconds
    backward_seconds: Seconds


class ExchangeSpec(_Strict):
    """A gradient exchange that takes a set time instead of crossing a link: bucket after bucket, one at a time."""

    interconnect: BytesPerSecond
    """A bucket's bytes per second among the ranks of one node."""
    network: BytesPerSecond | None = None
    """The same over several nodes; needed if there are several."""
    latency_seconds: Seconds = 0.0
    """Further time of every bucket."""

    def seconds(self, size: int, across_nodes: bool) -> float:
        """How long a bucket of ``size`` bytes takes."""
        rate = self.network if across_nodes else self.interconnect
        if rate is None:
            raise UserError("exchange: give a `network:` rate, too, for a job on several nodes")
        return self.latency_seconds + size / rate


class Emulation(_Strict):
    """A model on an accelerator, one batch per step, and the delays injected around it."""

    name: Annotated[str, Field(max_length=1_000)] = "emulated"
    layers: Annotated[tuple[LayerSpec, ...], Field(min_length=1, max_length=10_000)]
    optimizer_seconds: Seconds = 0.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Standard deviation of a step's compute, as a fraction of it."""
    spread: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Batches differ: a batch's compute lies between 1 - spread and 1 + spread times that described."""
    slow_ranks: dict[
        Annotated[int, Field(ge=0, le=1_000_000)], Annotated[float, Field(gt=0, le=1e6)]
    ] = {}
    """Rank: the factor by which its compute takes longer."""
    prep_seconds: Seconds = 0.0
    """A loader worker's time to make a batch."""
    read_seconds: Seconds = 0.0
    """A worker's further time per batch whose files are not in the page cache."""
    exchange: ExchangeSpec | None = None
    """None: DistributedDataParallel's own, over whatever links there are."""

    @property
    def bytes(self) -> int:
        """What every step must exchange."""
        return sum(layer.bytes // 4 * 4 for layer in self.layers)

    @property
    def compute_seconds(self) -> float:
        """A step of one rank that is not slow, waiting for nothing."""
        passes = sum(layer.forward_seconds + layer.backward_seconds for layer in self.layers)
        return passes + self.optimizer_seconds

    def scale(self, size: float = 1.0, time: float = 1.0) -> Emulation:
        """All bytes times ``size`` and all times times ``time``; a link's rate times size / time keeps all shares.

        Raises UserError where that is more than a description may say.
        """
        layers = [
            {
                "name": layer.name,
                "bytes": round(layer.bytes * size),
                "forward_seconds": layer.forward_seconds * time,
                "backward_seconds": layer.backward_seconds * time,
            }
            for layer in self.layers
        ]
        delays = ("optimizer_seconds", "prep_seconds", "read_seconds")
        longer = {name: getattr(self, name) * time for name in delays}
        try:
            return Emulation.model_validate({**self.model_dump(), "layers": layers, **longer})
        except ValidationError as error:
            raise UserError(
                f"{size:g} times the bytes and {time:g} times the time is too much: {first_mistake(error)}"
            ) from None


def load(path: str | Path) -> Emulation:
    """The description in a YAML file; raises UserError that names every mistake with its line and field."""
    return user_files.load(
        Path(path), Emulation, "the model", "a model is described in YAML"
    ).content


def dump(emulation: Emulation) -> str:
    """The description as YAML that ``load`` reads back as it was."""
    import yaml

    return str(
        yaml.safe_dump(emulation.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    )
