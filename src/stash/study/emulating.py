"""An instance of the catalog as a testbed: how fast its devices are, what its links carry, at which scales.

Devices take the times that were published for this workload on this GPU, else half of the GPU's peak. Links carry
what collectives reach of them (``predict/cluster_sources.py``). Then bytes shrink until this machine's links can
carry them, and times change until a step takes a while that can be measured: links follow both, so ratios of stalls
stay what they are. A fact that is unknown is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log
from statistics import median

from stash.api import (
    VALUE_BYTES,
    Instance,
    Quantity,
    WorkloadSpec,
    instance_target,
    model_key,
    peak_rates,
    published_speeds,
)
from stash.core.errors import UserError
from stash.core.units import format_rate
from stash.study.places import StudyPlace
from stash.study.study_file import EmulatedTarget

FASTEST = 4e8
"""Bytes per second of a link that is shaped. One core carries 1.1 GB/s of an all-reduce at most, and both ends share
two cores: a loopback of 1.6 GB/s was verified on two idle cores, and one of 0.8 GB/s not always while other work ran.
A loopback that has to be faster is left as fast as it is.
"""
_ROUNDED_UP = 1.01
"""A link whose scale was chosen so that it is just as fast may come out faster by a rounding."""
UNSHAPED = 2e9
"""What a loopback carries that is left as it is: more than 1.6 GB/s, less than 2.4."""
SLOWEST = 4e7
"""Of a line between nodes: at 9 MB/s a packet of 64 KiB takes 7 ms, and a ring of small buckets 8 % longer than its
bytes; at 40 MB/s 1 %.
"""
STEP_SECONDS = 0.2
"""What a step with its exchange takes on the testbed, without collectives. A link that was idle lets 2.1 ms pass at
once: 1 point of this.
"""
BUCKET_SECONDS = 0.004
"""What every collective adds to that: one without bytes takes 0.5 ms here, and hardly anything on the instance."""
BUCKET_BYTES = 25 * 2**20
"""Of DistributedDataParallel."""
HALF = 0.5
"""Of a GPU's peak: what is taken where no speed of a workload was published."""
_ALONE = 0.01
"""The scale of one device's bytes without links, where it only saves memory."""
_PASSES = 3
"""A backward pass is twice a forward pass."""
_UPDATE = 3
"""Times that the optimizer moves the weights: read, write, and the gradients read."""
_OTHER_INPUT = frozenset(("resnet18",))
"""Keys of models whose published speeds are of another input than the zoo's: Gavel's ResNet-18 trains on CIFAR-10."""
_AS_PUBLISHED = {"fp32": "fp32", "fp16": "amp"}


@dataclass(frozen=True)
class EmulatedCell:
    """What stands for some nodes of an instance on which one workload trains."""

    devices: int
    """Of a node that is stood for."""
    ranks: int
    """Of an emulated node: each stands for the same share of its devices."""
    gpu: str
    precision: str
    interconnect: float | None
    """Bytes per second of a host's loopback, scaled; ``None`` with one rank. See ``shaping_limit``."""
    network: float | None
    """Of a host's uplink, scaled; ``None`` with one node."""
    scale: float
    """Of all bytes."""
    time_scale: float
    """Of all times: a second of the instance takes so many here."""
    samples_per_second: float
    """Of one device, unscaled."""
    facts: tuple[str, ...]
    """What it rests on, in sentences."""

    @property
    def shaping_limit(self) -> float | None:
        """The loopback's limit; ``None`` for one rank, and where it has to be faster than this machine can shape."""
        limit = self.interconnect
        return limit if limit is not None and limit < _ROUNDED_UP * FASTEST else None


def ring(ranks: int) -> float:
    """How many times its message every rank of a ring all-reduce sends."""
    return 2 * (ranks - 1) / ranks


def emulate_cell(
    place: StudyPlace, target: EmulatedTarget, nodes: int, model: WorkloadSpec, batch: int
) -> EmulatedCell:
    """The testbed for a cell; raises UserError for a fact that is not known, naming the field that gives it."""
    instance = place.instance
    if instance is None or not place.gpus:
        raise UserError(
            f"{target.instance} has no GPU that the catalog knows, so nothing can stand for it"
        )
    if instance.gpu_share < 1:
        part = f"{instance.gpu_share:.2g} of one {instance.gpu_model}"
        raise UserError(
            f"{target.instance} has {part}, and no speed of a slice of a GPU was published"
        )
    devices = target.devices or instance.devices
    ranks = min(target.ranks or devices, devices)
    if devices > 1 and ranks == 1:
        raise UserError(
            f"one rank cannot stand for the {devices} devices of {instance.name}; `ranks:` is at least 2"
        )
    inside, network, facts = _links(instance, target, nodes, devices, ranks)
    speed, source = _published_speed(model, batch, place, target.precision) or _roofline_speed(
        model, batch, place, target.precision
    )
    # A ring all-reduce lasts as long as whichever link takes longer.
    size = model.gradient_bytes
    step = batch / speed + max(
        2 * (ranks - 1) * size / inside, ring(nodes * ranks) * size / network
    )
    time = (STEP_SECONDS + BUCKET_SECONDS * size / BUCKET_BYTES) / step
    scale = _scale(inside, network, time)
    found = EmulatedCell(
        devices=devices,
        ranks=ranks,
        gpu=instance.gpu or place.gpus[0].model,
        precision=target.precision,
        interconnect=None if devices == 1 else inside * scale / time,
        network=None if nodes == 1 else network * scale / time,
        scale=scale,
        time_scale=time,
        samples_per_second=speed,
        facts=(*facts, source),
    )
    if found.interconnect is None or found.shaping_limit is not None:
        return found
    left = (
        f"{nodes} × {instance.name}: links inside a node are as fast as this machine's, not shaped"
    )
    return replace(found, facts=(*found.facts, left))


def _scale(inside: float, network: float, time: float) -> float:
    """Of bytes: so that the fastest link can be shaped, unless a line between nodes would be too slow by that."""
    fastest = max((rate for rate in (inside, network) if rate < inf), default=inf)
    if fastest == inf:
        return _ALONE
    return min(1.0, time * max(FASTEST / fastest, min(SLOWEST / network, UNSHAPED / fastest)))


def _links(
    instance: Instance, target: EmulatedTarget, nodes: int, devices: int, ranks: int
) -> tuple[float, float, list[str]]:
    """What the medium inside a node and the line between nodes carry, and whose word that is; without one ``inf``.

    A ring of p ranks sends 2(p−1)·n bytes over a loopback that all of them share, in 2(p−1)/p·n/B seconds where a
    real link has bus bandwidth B: the loopback carries p·B, and (q−1)/(p−1) of that where q ranks stand for p. Over
    a line between nodes each of P ranks sends 2(P−1)/P·n.
    """
    sheet = instance_target(instance, nodes)
    facts = []
    inside = network = inf
    if devices > 1:
        known = sheet.inside.bytes_per_second if sheet.inside is not None else None
        bus, whose = _rate(instance, "interconnect", target.interconnect, known)
        inside = devices * bus * (ranks - 1) / (devices - 1)
        facts.append(
            f"{instance.name}: {format_rate(bus)} of bus bandwidth inside a node ({whose})"
        )
    if nodes > 1:
        line = sheet.network.bytes_per_second if sheet.network is not None else None
        rate, whose = _rate(instance, "network", target.network, line)
        network = rate * ring(nodes * ranks) / ring(nodes * devices)
        facts.append(f"{instance.name}: {format_rate(rate)} between nodes ({whose})")
    if ranks < devices:
        facts.append(
            f"{instance.name}: {ranks} ranks stand for {devices} devices, and wait as long as all would"
        )
    return inside, network, facts


def _rate(
    instance: Instance, field: str, given: float | None, known: Quantity | None
) -> tuple[float, str]:
    """Bytes per second of a link, and whose word that is; raises UserError where it is unknown."""
    if given is None and known is None:
        raise UserError(f"what the {field} of {instance.name} carries is unknown; give `{field}:`")
    return (
        (known.value, known.source)
        if given is None and known is not None
        else (given or 0.0, "given")
    )


def _published_speed(
    model: WorkloadSpec, batch: int, place: StudyPlace, precision: str
) -> tuple[float, str] | None:
    """Samples per second of one GPU at the nearest published batch, and the sentence that says so."""
    gpu = place.gpus[0].model
    key = model_key(model.name)
    wanted = (key, gpu, _AS_PUBLISHED[precision])
    known = [
        (each.batch, each)
        for each in published_speeds()
        if (each.key, each.gpu, each.precision) == wanted
        and each.batch is not None
        and key not in _OTHER_INPUT
    ]
    if not known:
        return None
    nearest = min((own for own, _ in known), key=lambda own: (abs(log(own / batch)), own))
    alike = [speed for own, speed in known if own == nearest]
    value = median(speed.per_second for speed in alike)
    sources = dict.fromkeys(speed.source for speed in alike)
    of = (
        f" at batch {nearest}"
        if nearest == batch
        else f" at batch {nearest}, the nearest published"
    )
    return value, f"{model.name} on {gpu}: {value:.4g} samples/s{of} ({'; '.join(sources)})"


def _roofline_speed(
    model: WorkloadSpec, batch: int, place: StudyPlace, precision: str
) -> tuple[float, str]:
    """A roofline of the whole step (Williams, Waterman, Patterson 2009), of which half is reached."""
    rates = peak_rates(place.gpus, precision)
    moved = batch * model.moved_bytes + model.gradient_bytes
    forward = max(
        batch * model.forward_flops / rates.flops_per_second,
        moved * VALUE_BYTES[precision] / VALUE_BYTES["fp32"] / rates.memory_bytes_per_second,
    )
    update = _UPDATE * model.gradient_bytes / rates.memory_bytes_per_second
    value = batch / (_PASSES * forward + update) * HALF
    source = f"no speed was published, so half of the GPU's peak is taken: {value:.4g} samples/s"
    return value, f"{model.name} at batch {batch} on {place.gpus[0].model}: {source}"
