"""An instance of the catalog as a testbed: how fast its devices are, what its links carry, at which scales.

Devices take the times that a profile of the user's measured (its compute, so nothing of its stalls; on another GPU as
many times as long as ``predict/compute_ratios.py`` has it), else those that were published for this workload on this
GPU, else half of the GPU's peak. Links carry what collectives reach of them (``predict/cluster_sources.py``). Then
bytes shrink until this machine's links can carry them, and times change until a step takes a while that can be
measured: links follow both, so ratios of stalls stay what they are. A fact that is unknown is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from statistics import median

from stash.analysis.attribution import attribute
from stash.catalog.facts import GpuFacts, Instance
from stash.catalog.machines import VALUE_BYTES, peak
from stash.catalog.reference import Speed, model_key, speeds
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.core.units import format_rate
from stash.predict.cluster_sources import of_instance, placed
from stash.predict.compute_ratios import precision_ratio, time_ratio
from stash.predict.gpu_pairs import Precision, trained_in
from stash.study.fields import EmulatedTarget
from stash.study.places import StudyPlace

_PRECISIONS: Mapping[str, Precision] = {"fp32": "fp32", "fp16": "amp"}


@dataclass(frozen=True)
class DeviceSpeed:
    """The speed of one device, and its source."""

    samples_per_second: float
    source: str
    """A sentence."""


@dataclass(frozen=True)
class CalibratingProfile:
    """A profile that tells how fast a workload is."""

    path: str
    """As the study file has it."""
    profile: Profile
    gpu: GpuFacts | None
    """That it was taken on; ``None`` if on CPUs, or on a GPU that the catalog does not know."""

    def speed(self, workload: str, gpus: Sequence[GpuFacts], precision: str) -> DeviceSpeed:
        """Speed on the first of ``gpus``, variants of one model; raises UserError if the profile cannot tell."""
        batch, compute = self.profile.workload.batch, attribute(self.profile).stall("compute")
        if not batch or compute is None:
            raise UserError(f"{self.path} does not tell its batch and compute, so nothing can be calibrated by it")
        if self.gpu is None:
            raise UserError(f"{self.path} was taken on no GPU that the catalog knows, so no GPU's speed follows")
        own = next((gpu for gpu in gpus if gpu.name == self.gpu.name), gpus[0])
        work, to = self.profile.workload, _PRECISIONS[precision]
        had = trained_in(work)
        ratio = time_ratio(self.gpu, own, workload, batch, had)
        if ratio is None:
            raise UserError(f"nothing tells how {own.name} compares with the {self.gpu.name} of {self.path}")
        value = batch / (compute.time.value * ratio.value)
        how = "" if own.name == self.gpu.name else f"; it takes {ratio.value:.2g} times as long ({ratio.source})"
        if had != to:
            times = precision_ratio(workload, own, to)
            if times is None:
                raise UserError(
                    f"{self.path} was trained in {had}, and nothing tells how fast {own.name} is in {to}; profile "
                    "with it"
                )
            value /= times.value
            how += f"; in {precision} it takes {times.value:.2g} times as long ({times.source})"
        source = f"{value:.4g} samples/s, from {self.path}, measured at batch {batch} on {self.gpu.name}{how}"
        return DeviceSpeed(value, f"{workload} on {own.name}: {source}")


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
class EmulatedJob:
    """What has to be known of a zoo workload at one batch."""

    workload: str
    batch: int
    gradient_bytes: float
    sample_flops: float | None
    """FLOPs of one sample's forward pass; ``None`` if they were not counted."""
    sample_bytes: float | None
    """That it reads and writes in float32, without weights."""
    calibrated: DeviceSpeed | None = None
    """As a profile of the user's measured it."""


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
    """Bytes per second of a host's loopback, scaled; ``None`` with one rank. See ``shaped``."""
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
    def shaped(self) -> float | None:
        """The loopback's limit; ``None`` for one rank, and where it has to be faster than this machine can shape."""
        limit = self.interconnect
        return limit if limit is not None and limit < _ROUNDED_UP * FASTEST else None


@dataclass(frozen=True)
class _Links:
    """The medium inside a node and the line between nodes, unscaled, such that fewer ranks wait as long as all."""

    inside: float | None
    network: float | None
    facts: tuple[str, ...]

    def seconds(self, size: float, nodes: int, ranks: int) -> float:
        """A ring all-reduce of so many bytes, by whichever link takes longer."""
        within = 0.0 if self.inside is None else 2 * (ranks - 1) * size / self.inside
        across = 0.0 if self.network is None else ring(nodes * ranks) * size / self.network
        return max(within, across)


def ring(ranks: int) -> float:
    """How many times its message every rank of a ring all-reduce sends."""
    return 2 * (ranks - 1) / ranks


def emulated(place: StudyPlace, target: EmulatedTarget, nodes: int, job: EmulatedJob) -> EmulatedCell:
    """The testbed for a cell; raises UserError for a fact that is not known, naming the field that gives it."""
    instance = place.instance
    if instance is None or not place.gpus:
        raise UserError(f"{target.instance} has no GPU that the catalog knows, so nothing can stand for it")
    if instance.gpu_share < 1:
        part = f"{instance.gpu_share:.2g} of one {instance.gpu_model}"
        raise UserError(f"{target.instance} has {part}, and no speed of a slice of a GPU was published")
    devices = target.devices or instance.devices
    ranks = min(target.ranks or devices, devices)
    if devices > 1 and ranks == 1:
        raise UserError(f"one rank cannot stand for the {devices} devices of {instance.name}; `ranks:` is at least 2")
    links = _links(instance, target, nodes, devices, ranks)
    speed = job.calibrated or _published(job, place, target.precision) or _half_of_peak(job, place, target.precision)
    step = job.batch / speed.samples_per_second + links.seconds(job.gradient_bytes, nodes, ranks)
    time = target.time_scale or (STEP_SECONDS + BUCKET_SECONDS * job.gradient_bytes / BUCKET_BYTES) / step
    scale = target.scale or _scale(links, time)
    found = EmulatedCell(
        devices=devices,
        ranks=ranks,
        gpu=instance.gpu or place.gpus[0].model,
        precision=target.precision,
        interconnect=None if links.inside is None else links.inside * scale / time,
        network=None if links.network is None else links.network * scale / time,
        scale=scale,
        time_scale=time,
        samples_per_second=speed.samples_per_second,
        facts=(*links.facts, speed.source),
    )
    if found.interconnect is None or found.shaped is not None:
        return found
    left = f"{nodes} × {instance.name}: links inside a node are as fast as this machine's, not shaped"
    return replace(found, facts=(*found.facts, left))


def _scale(links: _Links, time: float) -> float:
    """Of bytes: so that the fastest link can be shaped, unless a line between nodes would be too slow by that."""
    fastest = max((rate for rate in (links.inside, links.network) if rate is not None), default=None)
    if fastest is None:
        return _ALONE
    least = 0.0 if links.network is None else min(SLOWEST / links.network, UNSHAPED / fastest)
    return min(1.0, time * max(FASTEST / fastest, least))


def _links(instance: Instance, target: EmulatedTarget, nodes: int, devices: int, ranks: int) -> _Links:
    """What the links carry, and whose word that is.

    A ring of p ranks sends 2(p−1)·n bytes over a loopback that all of them share, in 2(p−1)/p·n/B seconds where a
    real link has bus bandwidth B: the loopback carries p·B, and (q−1)/(p−1) of that where q ranks stand for p. Over
    a line between nodes each of P ranks sends 2(P−1)/P·n.
    """
    sheet, facts = of_instance(instance, nodes), []
    inside = network = None
    if devices > 1:
        known = sheet.inside.bytes_per_second if sheet.inside is not None else None
        known = known if target.gpus is None else placed(instance, target.gpus, devices)
        bus = target.interconnect or (known.value if known is not None else None)
        if bus is None:
            raise UserError(f"what links inside {instance.name} carry is unknown; give `interconnect:`")
        inside = devices * bus * (ranks - 1) / (devices - 1)
        whose = "given" if target.interconnect or known is None else known.source
        facts.append(f"{instance.name}: {format_rate(bus)} of bus bandwidth inside a node ({whose})")
    if nodes > 1:
        line = sheet.network.bytes_per_second if sheet.network is not None else None
        rate = target.network or (line.value if line is not None else None)
        if rate is None:
            raise UserError(f"what a line between nodes of {instance.name} carries is unknown; give `network:`")
        network = rate * ring(nodes * ranks) / ring(nodes * devices)
        whose = "given" if target.network or line is None else line.source
        facts.append(f"{instance.name}: {format_rate(rate)} between nodes ({whose})")
    if ranks < devices:
        facts.append(f"{instance.name}: {ranks} ranks stand for {devices} devices, and wait as long as all would")
    return _Links(inside, network, tuple(facts))


def _published(job: EmulatedJob, place: StudyPlace, precision: str) -> DeviceSpeed | None:
    """Samples per second of one GPU at the nearest published batch, and the sentence that says so."""
    gpu = place.gpus[0].model
    known = _speeds(model_key(job.workload), gpu, _AS_PUBLISHED[precision])
    if not known:
        return None
    nearest = min((speed.batch or 1 for speed in known), key=lambda each: (abs(log(each / job.batch)), each))
    own: list[Speed] = [speed for speed in known if speed.batch == nearest]
    of = f" at batch {nearest}" if nearest == job.batch else f" at batch {nearest}, the nearest published"
    value, sources = (
        median(speed.per_second for speed in own),
        "; ".join(dict.fromkeys(speed.source for speed in own)),
    )
    return DeviceSpeed(value, f"{job.workload} on {gpu}: {value:.4g} samples/s{of} ({sources})")


@lru_cache(maxsize=1024)
def _speeds(key: str, gpu: str, precision: str) -> tuple[Speed, ...]:
    """Those of a known batch and of the zoo's own input."""
    if key in _OTHER_INPUT:
        return ()
    wanted = (key, gpu, precision)
    return tuple(
        each for each in speeds() if (each.key, each.gpu, each.precision) == wanted and each.batch is not None
    )


def _half_of_peak(job: EmulatedJob, place: StudyPlace, precision: str) -> DeviceSpeed:
    """A roofline of the whole step (Williams, Waterman, Patterson 2009), of which half is reached."""
    if job.sample_flops is None or job.sample_bytes is None:
        raise UserError(f"what a step of {job.workload} computes is unknown; give a profile of it as `calibrate:`")
    rates = peak(place.gpus, precision)
    moved = job.batch * job.sample_bytes + job.gradient_bytes
    forward = max(
        job.batch * job.sample_flops / rates.flops_per_second,
        moved * VALUE_BYTES[precision] / VALUE_BYTES["fp32"] / rates.memory_bytes_per_second,
    )
    update = _UPDATE * job.gradient_bytes / rates.memory_bytes_per_second
    value = job.batch / (_PASSES * forward + update) * HALF
    source = f"no speed was published, so half of the GPU's peak is taken: {value:.4g} samples/s"
    return DeviceSpeed(value, f"{job.workload} at batch {job.batch} on {place.gpus[0].model}: {source}")
