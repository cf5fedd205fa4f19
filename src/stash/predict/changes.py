"""What is asked for: facts of a job and its machines other than measured, and the cluster that makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from stash.catalog.facts import GpuFacts
from stash.catalog.offers import Catalog
from stash.core.errors import UnitError, UserError
from stash.core.records.base import Record
from stash.core.units import nearest, parse_bytes, parse_rate, parse_seconds
from stash.predict.cluster import SOCKETS_FOLLOW, Network, NetworkKind, Storage, Target
from stash.predict.cluster_sources import network_rate, of_instance
from stash.predict.collective_times import Algorithm
from stash.predict.draws import Quantity, given
from stash.predict.timeline import Stage

# Changes ---------------------------------------------------------------------------------------------------
# What is asked for: the facts of a job and its machines that are to be other than they were measured.
#
# Reads each as people write it, refuses what cannot be, and says which of them contradict each other. Knows the
# words and their bounds; what they do to a step is ``training``'s and ``data``'s business.

TrainedIn = Literal["fp32", "amp"]
Sharding = Literal["none", "zero1", "zero2", "zero3"]
"""What each rank holds a part of only: nothing, the optimizer's state, gradients too, parameters too (FSDP)."""
MAX_NODES = 16_384
_COMPRESSED = {"none": 1.0, "fp16": 2.0, "bf16": 2.0}
_SHARDED: Mapping[str, Sharding] = {
    "none": "none", "ddp": "none", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "zero3",
}  # fmt: skip
_ALGORITHMS: Mapping[str, Algorithm] = {"ring": "ring", "tree": "tree", "hierarchical": "hierarchical"}
_YES_OR_NO = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_PRECISIONS = {"fp32": "fp32", "float32": "fp32", "amp": "amp", "fp16": "amp", "bf16": "amp"}


class Alteration(Record):
    """Facts that differ from the profile's; ``None`` leaves one as it is. Base units."""

    network: float | None = None
    """Bytes per second of a node's network, one direction, as it is sold."""
    network_times: float | None = None
    """Times as fast as the profiled one, as collectives see it."""
    nodes: int | None = None
    gpus: int | None = None
    """Of a node; ranks of a node on CPUs."""
    gpu: str | None = None
    cpus: int | None = None
    """Hardware threads of a node."""
    workers: int | None = None
    """Of each rank's loader."""
    cache: float | None = None
    """Share of the data set that fits into a node's page cache."""
    disk: float | None = None
    """Bytes per second of a node's storage."""
    disk_times: float | None = None
    """Times as fast as the profiled one, as the loaders saw it."""
    memory: float | None = None
    """Bytes of a node."""
    batch: int | None = None
    """Samples of a device in one forward and backward pass."""
    compress: float | None = None
    """How many times fewer bytes gradients take on the way."""
    bucket: float | None = None
    """Bytes of DistributedDataParallel's buckets at most (``bucket_cap_mb`` is in MiB)."""
    accumulate: int | None = None
    """Backward passes of a step, the gradients exchanged once."""
    trained_in: TrainedIn | None = None
    instance: str | None = None
    cluster: str | None = None
    """A file that describes machines, or a probe of them."""
    sharding: Sharding | None = None
    bucket_view: bool | None = None
    """Whether gradients are views into DistributedDataParallel's buckets (``gradient_as_bucket_view``)."""
    lasting: float | None = None
    """Seconds of the whole training: how much of it a burst of the disk lasts."""
    algorithm: Algorithm | None = None
    """Of all-reduces; ``None``: as the library chooses."""

    @property
    def names(self) -> tuple[str, ...]:
        """Options that were given."""
        return tuple(OPTIONS[name] for name, value in self if value is not None)


def stage_of(wanted: Alteration) -> Stage | None:
    """ZeRO's stage that is asked for; ``None``: every rank holds the whole model."""
    return None if wanted.sharding in (None, "none") else _STAGES[wanted.sharding]


_STAGES: Mapping[str, Stage] = {"zero1": 1, "zero2": 2, "zero3": 3}
_TIMES = {"network": "network_times", "disk": "disk_times"}
"""What may be given in times of the profiled one, like ``2x``."""
_CALLED = {
    "trained_in": "precision-of-training", "network_times": "network", "disk_times": "disk",
    "bucket_view": "bucket-view",
}  # fmt: skip
OPTIONS: Mapping[str, str] = {name: _CALLED.get(name, name) for name in Alteration.model_fields}
"""How each field is called on the command line, without the dashes."""
_FIELDS = {OPTIONS[name]: name for name in Alteration.model_fields if name not in _TIMES.values()}


def parse(option: str, text: str) -> object:
    """The value of one option as it was typed; raises UserError or UnitError, which name the option."""
    try:
        read = _READERS[_FIELDS[option]]
    except KeyError:
        raise UserError(_no_such(option)) from None
    try:
        return read(text.strip())
    except UnitError as error:
        raise UnitError(f"--{option} {text}: {error}") from None
    except UserError as error:
        raise UserError(f"--{option} {text}: {error}") from None


def changes(typed: Mapping[str, str]) -> Alteration:
    """Of options by name, each as it was typed; raises UserError."""
    return checked(Alteration.model_validate({_field(name, text): parse(name, text) for name, text in typed.items()}))


def _field(option: str, text: str) -> str:
    in_times = option in _TIMES and text.strip().endswith("x")
    return _TIMES[option] if in_times else _FIELDS.get(option, option)


def checked(wanted: Alteration) -> Alteration:
    """The same; raises UserError if two of them contradict each other."""
    if wanted.cache is not None and wanted.memory is not None:
        raise UserError("--cache and --memory both say how much of the data is in memory; leave one of them out")
    for whole in ("instance", "cluster"):
        limit = getattr(wanted, whole)
        if limit is None:
            continue
        for name in ("gpu", "gpus", "cpus", "memory", "instance"):
            if name != whole and getattr(wanted, name) is not None:
                raise UserError(f"--{whole} {limit} says already what --{name} would change; leave one of them out")
    return wanted


def _no_such(option: str) -> str:
    alike = nearest(option, _FIELDS)
    hint = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(_FIELDS)}"
    return f"nothing is called {option!r} that a forecast could change; {hint}"


def _whole(least: int, most: int) -> Callable[[str], object]:
    def read(text: str) -> int:
        if not text.lstrip("-").isdecimal():
            raise UserError(f"it is a whole number, from {least} to {most:,}")
        if not least <= int(text) <= most:
            raise UserError(f"it must be from {least} to {most:,}")
        return int(text)

    return read


def _share(text: str) -> float:
    number = text.removesuffix("%").strip()
    try:
        value = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError("it is a share of the data set, like 35%") from None
    if not 0 <= value <= 1:
        raise UserError("a cache holds from 0% to 100% of the data set")
    return value


def _rate(text: str) -> float:
    """A rate, or times the profiled one, like ``2x``."""
    value = float(text[:-1]) if re.fullmatch(r"[0-9.]*[0-9]x", text) else parse_rate(text)
    if value <= 0:
        raise UserError("nothing would ever arrive; give a rate above 0")
    return value


def _size(text: str) -> float:
    value = parse_bytes(text)
    if value <= 0:
        raise UserError("give a size above 0")
    return value


def _bucket(text: str) -> float:
    """MiB where no unit is given, as of ``bucket_cap_mb``."""
    return _size(f"{text}MiB" if text.replace(".", "", 1).isdecimal() else text)


def _compressed(text: str) -> float:
    if text in _COMPRESSED:
        return _COMPRESSED[text]
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        raise UserError(f"it is one of {', '.join(_COMPRESSED)}, or how many times fewer bytes, like 4x") from None
    if not 1 <= factor <= 10_000:
        raise UserError("it must be from 1x to 10000x")
    return factor


def _precision(text: str) -> object:
    if text.lower() not in _PRECISIONS:
        raise UserError(f"it is {' or '.join(get_args(TrainedIn))}")
    return _PRECISIONS[text.lower()]


def _sharding(text: str) -> Sharding:
    if text.lower() not in _SHARDED:
        raise UserError(f"it is one of {', '.join(get_args(Sharding))}; FSDP is zero3")
    return _SHARDED[text.lower()]


def _algorithm(text: str) -> Algorithm:
    if text.lower() not in _ALGORITHMS:
        raise UserError(f"it is one of {', '.join(_ALGORITHMS)}")
    return _ALGORITHMS[text.lower()]


def _switch(text: str) -> bool:
    if text.lower() not in _YES_OR_NO:
        raise UserError("it is on or off")
    return _YES_OR_NO[text.lower()]


def _duration(text: str) -> float:
    value = parse_seconds(text)
    if value <= 0:
        raise UserError("no training is that short; give a time above 0, like 12h")
    return value


def _name(text: str) -> str:
    if not text:
        raise UserError("give a name; `stash catalog` lists them")
    return text


def _file(text: str) -> str:
    if not text:
        raise UserError("give a file that describes a cluster (docs/how-to/what-if.md), or one of `stash probe`")
    return text


_READERS: Mapping[str, Callable[[str], object]] = {
    "network": _rate,
    "nodes": _whole(1, MAX_NODES),
    "gpus": _whole(1, 64),
    "gpu": _name,
    "cpus": _whole(1, 4096),
    "workers": _whole(0, 512),
    "cache": _share,
    "disk": _rate,
    "memory": _size,
    "batch": _whole(1, 1_000_000),
    "compress": _compressed,
    "bucket": _bucket,
    "accumulate": _whole(1, 4096),
    "trained_in": _precision,
    "instance": _name,
    "cluster": _file,
    "sharding": _sharding,
    "bucket_view": _switch,
    "lasting": _duration,
    "algorithm": _algorithm,
}


# Retarget --------------------------------------------------------------------------------------------------
# The cluster that is asked about: the one that was profiled, or an instance's, with what the changes say instead.
#
# What nobody knows of it stays unknown. A GPU named alone moves into the machines that were profiled: their links
# stay.


def retarget(measured: Target, wanted: Alteration, known: Catalog, clusters: Callable[[str], Target]) -> Target:
    """What ``wanted`` makes of the profiled cluster; raises UserError for unknown names, and if it is too large."""
    other = None if wanted.cluster is None else clusters(wanted.cluster)
    nodes = wanted.nodes or (other or measured).nodes
    if wanted.instance is not None:
        other = of_instance(known.instance(wanted.instance), nodes)
    if other is not None and measured.is_of_machines_like(other):
        other = measured.completed_by(other)
        if (nodes, other.devices) == (measured.nodes, measured.devices):
            other = measured
    target = other or measured
    if wanted.cluster is not None and target.device is None and measured.device is not None:
        raise UserError(
            f"--cluster {wanted.cluster} has no device, and the job was profiled on {measured.device}; name one there"
        )
    if wanted.instance is not None:
        if measured.device is None and target.device is None and not measured.is_of_machines_like(target):
            raise UserError(
                f"--instance {wanted.instance}: no published figure says how fast its CPUs train; run `stash "
                "profile` there, or change single facts with --nodes, --network and --disk"
            )
        if measured.device is not None and target.device is None:
            raise UserError(
                f"--instance {wanted.instance} has no GPU, and the job was profiled on {measured.device}; a step on "
                "its CPUs can only be measured: run `stash profile` there"
            )
    if wanted.gpu is None and _one_gpu(target, measured, known):
        target = target.model_copy(update={"device": measured.device})
    if wanted.gpu is not None or target.device != measured.device:
        target = _with_gpu(target, wanted, measured, known)
    devices = wanted.gpus or target.devices
    update: dict[str, object] = {"nodes": nodes, "devices": devices}
    if devices > 1 and target.devices == 1:
        update["inside"] = None
    if wanted.network is not None:
        update["network"] = _network(target, wanted.network)
    if wanted.network_times is not None:
        update["network"] = _faster(target, wanted.network_times)
    if wanted.disk is not None:
        update["storage"] = Storage(bytes_per_second=given(wanted.disk, "--disk"))
    if wanted.cpus is not None:
        update["cores"] = given(wanted.cpus, "--cpus")
    if wanted.memory is not None:
        update["memory_bytes"] = given(wanted.memory, "--memory")
    if nodes * devices > MAX_NODES:
        ranks = f"{nodes} nodes of {devices} are {nodes * devices:,} ranks"
        raise UserError(f"{ranks}; forecasts go up to {MAX_NODES:,}")
    return target.model_copy(update=update)


def _one_gpu(target: Target, measured: Target, known: Catalog) -> bool:
    """Whether both have one GPU under two names, as a driver and the catalog write them."""
    if target.device is None or measured.device is None:
        return False
    try:
        return known.gpu(target.device).name == known.gpu(measured.device).name
    except UserError:  # made in several variants, or unknown
        return False


def _with_gpu(target: Target, wanted: Alteration, measured: Target, known: Catalog) -> Target:
    if measured.device is None:
        raise UserError(
            "the job was profiled on CPUs, and no speed of a GPU follows from that; profile it once on any GPU: "
            "`stash profile` there"
        )
    if wanted.gpu is None:
        return target
    gpu = named_gpu(wanted.gpu, known)
    memory = None
    if gpu.memory_bytes is not None:
        memory = Quantity(value=gpu.memory_bytes, origin="data sheet", as_of=gpu.as_of, source=gpu.source)
    return target.model_copy(update={"device": gpu.name, "device_memory_bytes": memory, "device_share": 1.0})


def _reached(claimed: Quantity, transport: NetworkKind) -> Quantity | None:
    """What collectives reach of a line; sockets of a faster one at least what they reach where they still follow."""
    found, least = network_rate(claimed, transport), network_rate(given(SOCKETS_FOLLOW, "--network"), transport)
    if found is None or least is None or transport != "tcp" or claimed.value <= SOCKETS_FOLLOW:
        return found
    ends = {name: max(getattr(found, name) or 0.0, getattr(least, name) or 0.0) for name in ("value", "low", "high")}
    return found.model_copy(update=ends)


def _faster(target: Target, times: float) -> Network:
    old = target.network
    if old is None or old.bytes_per_second is None:
        raise UserError(f"--network {times:g}x: the network that was profiled is unknown; give a rate, like 100gbit")
    return old.model_copy(
        update={"bytes_per_second": old.bytes_per_second.scaled(times, source=f"--network {times:g}x")}
    )


def named_gpu(name: str, known: Catalog) -> GpuFacts:
    """A GPU by variant, or by a model's name its first variant: published speeds seldom tell variants apart."""
    variants = [gpu for gpu in known.gpus if gpu.model.lower() == name.strip().lower()]
    return variants[0] if variants else known.gpu(name)


def _network(target: Target, rate: float) -> Network:
    """A line of that rate: what collectives reach of it is published for NCCL; gloo's sockets fill what they get."""
    old = target.network or Network()
    claimed = given(rate, "--network")
    reached = claimed if target.backend == "gloo" else _reached(claimed, old.transport or "tcp")
    return old.model_copy(update={"bytes_per_second": reached, "nics": 1})
