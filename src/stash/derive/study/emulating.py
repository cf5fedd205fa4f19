"""An instance of the catalog as a testbed: how fast its devices are, what its links carry, at which scale.

Devices take the times that somebody published for this workload on this GPU, where anybody has. Links carry what
collectives reach of them (``derive/predict/sources.py``), and everything that is bytes shrinks by one factor, so that
a link of this machine can stand for them: ratios of stalls stay what they are. A fact that nobody knows is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import median

from stash.base.errors import UserError
from stash.base.words.units import format_rate
from stash.derive.predict.sources import of_instance
from stash.keep.catalog import Instance
from stash.keep.catalog.speeds import Speed, model_key, speeds
from stash.keep.study.fields import EmulatedTarget

_FASTEST = 4e8
"""Bytes per second of an emulated link that two cores still carry, a testbed's own limit (`--interconnect 4gbit`)."""
_ALONE = 0.01
"""The scale of one device without links, where it only saves memory."""
_OTHER_INPUT = frozenset(("resnet18",))
"""Keys of models whose published speeds are of another input than the zoo's: Gavel's ResNet-18 trains on CIFAR-10."""
_AS_PUBLISHED = {"fp32": "fp32", "fp16": "amp"}


@dataclass(frozen=True)
class EmulatedCell:
    """What stands for some nodes of an instance on which one workload trains."""

    devices: int
    gpu: str
    precision: str
    interconnect: float | None
    """Bytes per second of a host's loopback, scaled; ``None`` with one device."""
    network: float | None
    """Of a host's uplink, scaled; ``None`` with one node."""
    scale: float
    samples_per_second: float | None
    """Of one device, as published; ``None``: the catalog's roofline is taken."""
    facts: tuple[str, ...]
    """What it rests on, in sentences."""


def emulated(
    instance: Instance, target: EmulatedTarget, nodes: int, workload: str, batch: int | None
) -> EmulatedCell:
    """The testbed for a cell; raises UserError for a fact that is not known, naming the field that gives it."""
    gpu = instance.gpu or instance.gpu_model
    if gpu is None or instance.gpu_model is None:
        raise UserError(f"{instance.name} has no GPU that the catalog knows, so nothing can stand for it")
    devices = target.devices or max(1, int(instance.gpu_count or 1))
    inside, network, facts = _links(instance, target, nodes, devices)
    scale = target.scale or _scale(inside, network)
    speed, said = _speed(workload, batch, instance.gpu_model, target.precision)
    return EmulatedCell(
        devices=devices,
        gpu=gpu,
        precision=target.precision,
        interconnect=None if inside is None else inside * scale,
        network=None if network is None else network * scale,
        scale=scale,
        samples_per_second=speed,
        facts=(*facts, said),
    )


def _links(
    instance: Instance, target: EmulatedTarget, nodes: int, devices: int
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """The medium inside a node and the line between nodes, unscaled, and whose word that is.

    A ring of p ranks sends 2(p−1)·n bytes over a loopback that all of them share, in 2(p−1)/p·n/B seconds where a
    real link has bus bandwidth B: the loopback carries p·B.
    """
    sheet, facts = of_instance(instance, nodes), []
    inside = network = None
    if devices > 1:
        known = sheet.inside.bytes_per_second if sheet.inside is not None else None
        bus = target.interconnect or (known.value if known is not None else None)
        if bus is None:
            raise UserError(f"nobody knows what links inside {instance.name} carry; give `interconnect:`")
        inside = devices * bus
        whose = "given" if target.interconnect or known is None else known.source
        facts.append(f"{instance.name}: {format_rate(bus)} of bus bandwidth inside a node ({whose})")
    if nodes > 1:
        line = sheet.network.bytes_per_second if sheet.network is not None else None
        network = target.network or (line.value if line is not None else None)
        if network is None:
            raise UserError(f"nobody knows what a line between nodes of {instance.name} carries; give `network:`")
        whose = "given" if target.network or line is None else line.source
        facts.append(f"{instance.name}: {format_rate(network)} between nodes ({whose})")
    return inside, network, tuple(facts)


def _scale(inside: float | None, network: float | None) -> float:
    fastest = max((rate for rate in (inside, network) if rate is not None), default=None)
    return _ALONE if fastest is None else min(1.0, _FASTEST / fastest)


def _speed(workload: str, batch: int | None, gpu: str, precision: str) -> tuple[float | None, str]:
    """Samples per second of one GPU at the nearest published batch, and the sentence that says so."""
    known = [
        speed
        for speed in speeds()
        if (speed.key, speed.gpu, speed.precision) == (model_key(workload), gpu, _AS_PUBLISHED[precision])
        and speed.batch is not None
        and speed.key not in _OTHER_INPUT
    ]
    if not known:
        return None, f"{workload} on {gpu}: nobody published how fast, so half of the GPU's peak is taken"
    wanted = batch or known[0].batch or 1
    nearest = min((speed.batch or 1 for speed in known), key=lambda each: (abs(log(each / wanted)), each))
    own: list[Speed] = [speed for speed in known if speed.batch == nearest]
    of = f" at batch {nearest}" if nearest == batch else f" at batch {nearest}, the nearest published"
    value = median(speed.per_second for speed in own)
    return value, f"{workload} on {gpu}: {value:.4g} samples/s{of} ({own[0].source})"
