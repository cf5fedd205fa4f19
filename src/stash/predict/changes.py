"""What is asked for: facts of a job and its machines other than measured, and the cluster that makes.

Options of ``stash whatif``, and what Python asks. What they do to a step is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from stash.catalog.facts import GpuFacts, found_by_name
from stash.catalog.machines import find_variants
from stash.catalog.offers import Catalog
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.units import find_nearest
from stash.predict.cluster import (
    SOCKETS_FOLLOW,
    TRANSPORTS,
    Network,
    NetworkKind,
    NodeTransport,
    Storage,
    Target,
    has_linked_gpus,
    transport_used,
)
from stash.predict.cluster_sources import network_rate, target_of_instance
from stash.predict.draws import Quantity, given_quantity
from stash.predict.mesh_shapes import Mesh, read_mesh
from stash.ui.options import Options, declarations, option, read_as

Dtype = Literal["fp32", "amp"]
MAX_NODES = 16_384
_COMPRESSED = {"none": 1.0, "fp16": 2.0, "bf16": 2.0}
_DTYPES: Mapping[str, Dtype] = {
    "fp32": "fp32",
    "amp": "amp",
    "float32": "fp32",
    "fp16": "amp",
    "bf16": "amp",
}
_MACHINES, _JOB = "Machines", "The job"


class Times(float):
    """How many times the profiled one."""


def _parse_rate(text: str) -> float:
    """A rate, or times the profiled one, like ``2x``."""
    if re.fullmatch(r"[0-9.]*[0-9]x", text.strip()):
        return Times(parsers.number(text.strip()[:-1]))
    return parsers.rate(text)


def _parse_bucket(text: str) -> float:
    """MiB where no unit is given, as of ``bucket_cap_mb``."""
    return parsers.size_above_zero(
        f"{text}MiB" if text.strip().replace(".", "", 1).isdecimal() else text
    )


def _parse_compression(text: str) -> float:
    if text.strip() in _COMPRESSED:
        return _COMPRESSED[text.strip()]
    try:
        return parsers.number_between(1, 10_000)(text.strip().removesuffix("x"))
    except UnitError:
        raise UnitError(
            f"it must be one of {', '.join(_COMPRESSED)}, or how many times fewer bytes, from 1x to 10000x, like 4x"
        ) from None


BALANCED = "balanced"
_WITH_MESH = ("mesh", "network", "transport", "cluster")
"""Options that say how the profiled machines are linked."""


def _parse_split(text: str) -> str:
    """Layers of each stage, or ``balanced``."""
    words = [each.strip() for each in text.split(",")]
    if words != [BALANCED] and not all(each.isdecimal() and int(each) > 0 for each in words):
        raise UnitError("give layers for each stage, like 6,6,5,3, or `balanced`")
    return ",".join(words)


def _parse_name(text: str) -> str:
    if not text.strip():
        raise UnitError("give a name")
    return text.strip()


@dataclass(frozen=True, kw_only=True)
class Alteration(Options):
    """Facts that differ from the profile's; ``None`` leaves one as it is. Base units."""

    instance: str | None = option(
        "NAME", "Predict for this instance type (`stash catalog`).", _parse_name, panel=_MACHINES
    )
    cluster: str | None = option(
        "FILE",
        "Predict for machines that `stash probe` measured.",
        _parse_name,
        panel=_MACHINES,
    )
    nodes: int | None = option("N", "Use N machines.", parsers.whole(1, MAX_NODES), panel=_MACHINES)
    gpus: int | None = option(
        "N", "Use N devices per node, one rank each.", parsers.whole(1, 64), panel=_MACHINES
    )
    gpu: str | None = option(
        "NAME", "Predict for another GPU, like A100-SXM4-80GB.", _parse_name, panel=_MACHINES
    )
    network: float | None = option(
        "RATE", "Set the network of a node, like 100gbit.", _parse_rate, panel=_MACHINES
    )
    """Bytes per second, one direction, as it is sold; or ``Times``."""
    transport: NodeTransport | None = option(
        "HOW",
        "Connect nodes by sockets, efa or infiniband (default: as profiled).",
        parsers.one_of(TRANSPORTS, shown=("sockets", "efa", "infiniband")),
        panel=_MACHINES,
    )
    cpus: int | None = option(
        "N", "Set the hardware threads of a node.", parsers.whole(1, 4096), panel=_MACHINES
    )
    memory: float | None = option(
        "SIZE",
        "Set the memory of a node, and with it the cache.",
        parsers.size_above_zero,
        panel=_MACHINES,
    )
    disk: float | None = option(
        "RATE", "Set the storage rate of a node, like 500MB/s.", _parse_rate, panel=_MACHINES
    )
    cache: float | None = option(
        "PERCENT",
        "Set the share of the data set that fits into memory.",
        parsers.fraction(expected="a cache holds from 0% to 100% of the data set, like 35%"),
        panel=_MACHINES,
    )
    workers: int | None = option(
        "N", "Set the worker processes of each rank's loader.", parsers.whole(0, 512), panel=_JOB
    )
    batch: int | None = option(
        "N", "Set the samples of a device in one pass.", parsers.whole(1, 1_000_000), panel=_JOB
    )
    accumulate: int | None = option(
        "N", "Accumulate the gradients of N passes per step.", parsers.whole(1, 4096), panel=_JOB
    )
    compress: float | None = option(
        "HOW", "Compress gradients: fp16, or a factor like 4x.", _parse_compression, panel=_JOB
    )
    """How many times fewer bytes."""
    bucket: float | None = option(
        "SIZE", "Set DDP's bucket_cap_mb, in MiB.", _parse_bucket, panel=_JOB
    )
    """Bytes at most."""
    dtype: Dtype | None = option(
        "HOW",
        "Train in fp32 or amp.",
        parsers.one_of(_DTYPES, shown=get_args(Dtype)),
        panel=_JOB,
    )
    microbatches: int | None = option(
        "N", "Cut a pipeline's batch into N microbatches.", parsers.whole(1, 65_536), panel=_JOB
    )
    split: str | None = option(
        "LAYERS",
        "Set the layers of a pipeline's stages: 6,6,5,3 or balanced.",
        _parse_split,
        panel=_JOB,
    )
    mesh: Mesh | str | None = option(
        "AXES",
        "Share the model by data=2,pipeline=4,tensor=2; `all` lists the best.",
        read_mesh,
        panel=_JOB,
    )

    def check(self) -> None:
        if self.cache is not None and self.memory is not None:
            raise UserError(
                "--cache and --memory both say how much of the data is in memory; leave one of them out"
            )
        others = [name for name in self.facts if name not in _WITH_MESH]
        if self.mesh is not None and others:
            raise UserError(
                "--mesh shares the profiled job's model otherwise, on its own machines; only --network and --cluster "
                f"go with it: ask about --{others[0]} by itself"
            )
        for whole in ("instance", "cluster"):
            for name in ("gpu", "gpus", "cpus", "memory", "instance"):
                if whole in self.facts and name in self.facts and name != whole:
                    raise UserError(
                        f"--{whole} {getattr(self, whole)} says already what --{name} would change; leave one of "
                        "them out"
                    )

    @property
    def facts(self) -> dict[str, Any]:
        """The fields that are not as they were measured."""
        return {
            each.name: value
            for each in fields(Alteration)
            if (value := getattr(self, each.name)) is not None
        }

    def replace_facts(self, **facts: Any) -> Alteration:
        """The same but for these fields, which are no texts to be read but what reading them gives."""
        other = copy(self)
        for name, value in facts.items():
            object.__setattr__(other, name, value)
        other.check()
        return other

    @property
    def names(self) -> tuple[str, ...]:
        """Options that were given, without the dashes."""
        return tuple(self.facts)

    @property
    def texts(self) -> dict[str, str]:
        """What was given as text, as it was typed, by the options' names without the dashes."""
        return {name: str(text) for name, text in self.typed.items()}


AS_IT_IS = Alteration()


def document_name(option: str) -> str:
    """What JSON documents call an option that has another name on the command line since."""
    return {"dtype": "precision-of-training"}.get(option, option)


def check_option(option: str) -> None:
    """Raise UserError, with what there is, for an option of which no forecast knows."""
    options = declarations(Alteration)
    if option not in options:
        alike = find_nearest(option, options)
        hint = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(options)}"
        raise UserError(f"nothing is called {option!r} that a forecast could change; {hint}")


def parse(option: str, text: str) -> object:
    """The value of an option as it was typed; raises UserError, which names it."""
    return read_as(f"--{option}", declarations(Alteration)[option].read, text)


# The cluster that is asked about. A GPU named alone moves into the machines that were profiled: their links stay.


def retarget(
    measured: Target, wanted: Alteration, known: Catalog, clusters: Callable[[str], Target]
) -> Target:
    """What ``wanted`` makes of the profiled cluster; raises UserError for unknown names, and if it is too large."""
    target = _choose_machines(measured, wanted, known, clusters)
    if wanted.gpu is None and target.device and _is_measured(target.device, measured, known):
        target = target.model_copy(update={"device": measured.device})
    if wanted.gpu is not None or target.device != measured.device:
        target = _change_gpu(target, wanted, measured, known)
    nodes, devices = wanted.nodes or target.nodes, wanted.gpus or target.devices
    update: dict[str, object] = {"nodes": nodes, "devices": devices}
    if devices > 1 and target.devices == 1:
        update["inside"] = None
    if wanted.network is not None:
        update["network"] = _make_network(target, wanted.network, wanted.transport, devices)
    if wanted.disk is not None and not isinstance(wanted.disk, Times):
        update["storage"] = Storage(bytes_per_second=given_quantity(wanted.disk, "--disk"))
    for field, value, named in (
        ("cores", wanted.cpus, "--cpus"),
        ("memory_bytes", wanted.memory, "--memory"),
    ):
        there: Quantity | None = getattr(target, field)
        if value is not None and (there is None or there.value != value):
            update[field] = given_quantity(value, named)
    if nodes * devices > MAX_NODES:
        ranks = f"{nodes} nodes of {devices} are {nodes * devices:,} ranks"
        raise UserError(f"{ranks}; forecasts go up to {MAX_NODES:,}")
    return target.model_copy(update=update)


def _choose_machines(
    measured: Target, wanted: Alteration, known: Catalog, clusters: Callable[[str], Target]
) -> Target:
    """The machines that are asked about: another type, those of a file, or those that were profiled."""
    other = None if wanted.cluster is None else clusters(wanted.cluster)
    nodes, used = wanted.nodes or (other or measured).nodes, transport_used(measured.network)
    transport = wanted.transport or used
    if other is not None:
        if wanted.network is None and wanted.transport not in (None, transport_used(other.network)):
            raise UserError(
                f"--transport: {wanted.cluster} says already what its nodes talk over; give --network too"
            )
    elif wanted.instance is not None:
        other = target_of_instance(known.instance(wanted.instance), nodes, transport)
    elif transport != used and wanted.network is None:
        type_ = next(
            (each for each in known.instances if each.name.lower() == measured.machine), None
        )
        if type_ is None:
            raise UserError(
                "--transport: what the profiled machines would reach over another one is unknown, as their type is in no "
                "catalog; name it with --instance, or say a rate with --network"
            )
        other = target_of_instance(type_, nodes, transport)
        other = other.model_copy(update={"devices": measured.devices})
    if other is None:
        return measured
    if measured.has_same_machines(other):
        seen = measured if transport == used else measured.model_copy(update={"network": None})
        other = seen.complete_from(other)
        unchanged = (nodes, other.devices, transport) == (measured.nodes, measured.devices, used)
        return measured if unchanged else other.model_copy(update={"nodes": nodes})
    if other.device is None and measured.device is not None:
        raise UserError(
            f"--cluster {wanted.cluster} has no GPU, and the job was profiled on {measured.device}"
            if wanted.cluster is not None
            else f"--instance {wanted.instance} has no GPU, and the job was profiled on {measured.device}; a step on "
            "its CPUs can only be measured: run `stash profile` there"
        )
    if wanted.instance is not None and other.device is None:
        raise UserError(
            f"--instance {wanted.instance}: no published figure says how fast its CPUs train; run `stash "
            "profile` there, or change single facts with --nodes, --network and --disk"
        )
    return other


def _is_measured(gpu: str, measured: Target, known: Catalog) -> bool:
    """Whether a GPU, or a model of several variants, is asked for that is the profiled one."""
    profiled = (
        found_by_name(measured.device or "", known.gpus) if measured.device_share == 1.0 else []
    )
    return len(profiled) == 1 and profiled[0] in find_variants(gpu, known)


def _change_gpu(target: Target, wanted: Alteration, measured: Target, known: Catalog) -> Target:
    if measured.device is None:
        raise UserError(
            "the job was profiled on CPUs, which says nothing about GPUs; run `stash profile` once on a machine with "
            "any GPU, and use that profile"
        )
    if wanted.gpu is None or _is_measured(wanted.gpu, measured, known):
        return target
    gpu = named_gpu(wanted.gpu, known)
    memory = gpu.memory_bytes and Quantity(
        value=gpu.memory_bytes, origin="data sheet", as_of=gpu.as_of, source=gpu.source
    )
    return target.model_copy(
        update={"device": gpu.name, "device_memory_bytes": memory, "device_share": 1.0}
    )


def named_gpu(name: str, known: Catalog) -> GpuFacts:
    """A GPU by variant, or by a model's name its first variant: published speeds seldom tell variants apart."""
    return find_variants(name, known)[0]


def _make_network(
    target: Target, rate: float, transport: NodeTransport | None, devices: int
) -> Network:
    """A line of that rate, or so many times the rate there is; raises UserError where that is unknown.

    What collectives reach of a line is published for NCCL; gloo's sockets fill what they get.
    """
    old = target.network or Network()
    if isinstance(rate, Times):
        times, known = f"--network {rate:g}x", old.bytes_per_second
        if known is None:
            raise UserError(
                f"{times}: the network that was profiled is unknown; give a rate, like 100gbit"
            )
        return old.model_copy(update={"bytes_per_second": known.scale(rate, source=times)})
    was = transport_used(old)
    used = transport or was
    kind: NetworkKind = "tcp" if used == "sockets" else "infiniband"
    if used != was:
        old = old.model_copy(update={"transport": kind, "latency_seconds": None})
    kind = old.transport or kind
    reached: Quantity | None = given_quantity(rate, "--network")
    if target.backend == "nccl":
        pcie = None if target.device is None or has_linked_gpus(target) else devices
        reached = network_rate(reached, kind, pcie=pcie)
        if pcie is None and kind == "tcp" and rate > SOCKETS_FOLLOW and reached is not None:
            # Sockets of a faster line reach at least what they do where they still follow it.
            least = network_rate(given_quantity(SOCKETS_FOLLOW, "--network"), kind)
            ends = {
                name: max(getattr(reached, name) or 0.0, getattr(least, name, None) or 0.0)
                for name in ("value", "low", "high")
            }
            reached = reached if least is None else reached.model_copy(update=ends)
    return old.model_copy(update={"bytes_per_second": reached})
