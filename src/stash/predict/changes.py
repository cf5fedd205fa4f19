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
    links_of_gpu,
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
_WITH_MESH = ("mesh", "network", "network_times", "transport", "cluster")
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
    """Bytes per second, one direction, as it is sold."""
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
    network_times: float | None = None
    """Times as fast as the profiled one, as collectives see it."""
    disk_times: float | None = None
    """Times as fast as the profiled one, as the loaders saw it."""

    def check(self) -> None:
        for name in ("network", "disk"):
            if isinstance(getattr(self, name), Times):
                object.__setattr__(self, f"{name}_times", float(getattr(self, name)))
                object.__setattr__(self, name, None)
        if self.cache is not None and self.memory is not None:
            raise UserError(
                "--cache and --memory both say how much of the data is in memory; leave one of them out"
            )
        if self.mesh is not None and (
            others := [name for name in self.facts if name not in _WITH_MESH]
        ):
            raise UserError(
                "--mesh shares the profiled job's model otherwise, on its own machines; only --network and --cluster "
                f"go with it: ask about --{option_name(others[0])} by itself"
            )
        for whole in ("instance", "cluster"):
            if getattr(self, whole) is None:
                continue
            for name in ("gpu", "gpus", "cpus", "memory", "instance"):
                if name != whole and getattr(self, name) is not None:
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
        return tuple(dict.fromkeys(map(option_name, self.facts)))

    @property
    def texts(self) -> dict[str, str]:
        """What was given as text, as it was typed, by the options' names without the dashes."""
        return {option_name(name): str(text) for name, text in self.typed.items()}


AS_IT_IS = Alteration()


def option_name(field: str) -> str:
    """How a field is called on the command line, without the dashes."""
    return field.removesuffix("_times").replace("_", "-")


def document_name(option: str) -> str:
    """What JSON documents call an option that has another name on the command line since."""
    return {"dtype": "precision-of-training"}.get(option, option)


_FIELDS = {
    declared.name(field).removeprefix("--"): field
    for field, declared in declarations(Alteration).items()
}
"""Fields by the names of their options."""


def field_of(option: str) -> str:
    """The field that an option changes; raises UserError with what there is."""
    if option not in _FIELDS:
        alike = find_nearest(option, _FIELDS)
        there_is = ", ".join(map(option_name, declarations(Alteration)))
        hint = f"did you mean {alike[0]}?" if alike else f"there are {there_is}"
        raise UserError(f"nothing is called {option!r} that a forecast could change; {hint}")
    return _FIELDS[option]


def parse(field: str, text: str) -> object:
    """The value of one field as it was typed; raises UserError, which names the option."""
    declared = declarations(Alteration)[field]
    return read_as(declared.name(field), declared.read, text)


# The cluster that is asked about. A GPU named alone moves into the machines that were profiled: their links stay.


def retarget(
    measured: Target, wanted: Alteration, known: Catalog, clusters: Callable[[str], Target]
) -> Target:
    """What ``wanted`` makes of the profiled cluster; raises UserError for unknown names, and if it is too large."""
    other = None if wanted.cluster is None else clusters(wanted.cluster)
    nodes = wanted.nodes or (other or measured).nodes
    if (
        other is not None
        and wanted.network is None
        and wanted.transport not in (None, transport_used(other.network))
    ):
        raise UserError(
            f"--transport: {wanted.cluster} says already what its nodes talk over; give --network too"
        )
    used = transport_used(measured.network)
    transport = wanted.transport or used
    if wanted.instance is not None:
        other = target_of_instance(known.instance(wanted.instance), nodes, transport)
    elif transport != used and wanted.network is None and other is None:
        other = _change_transport(measured, nodes, transport, known)
    if other is not None and measured.has_same_machines(other):
        seen = measured if transport == used else measured.model_copy(update={"network": None})
        other = seen.complete_from(other)
        if (nodes, other.devices, transport) == (measured.nodes, measured.devices, used):
            other = measured
    target = other or measured
    if wanted.cluster is not None and target.device is None and measured.device is not None:
        raise UserError(
            f"--cluster {wanted.cluster} has no GPU, and the job was profiled on {measured.device}"
        )
    if wanted.instance is not None:
        if (
            measured.device is None
            and target.device is None
            and not measured.has_same_machines(target)
        ):
            raise UserError(
                f"--instance {wanted.instance}: no published figure says how fast its CPUs train; run `stash "
                "profile` there, or change single facts with --nodes, --network and --disk"
            )
        if measured.device is not None and target.device is None:
            raise UserError(
                f"--instance {wanted.instance} has no GPU, and the job was profiled on {measured.device}; a step on "
                "its CPUs can only be measured: run `stash profile` there"
            )
    if wanted.gpu is None and target.device and _is_measured(target.device, measured, known):
        target = target.model_copy(update={"device": measured.device})
    if wanted.gpu is not None or target.device != measured.device:
        target = _change_gpu(target, wanted, measured, known)
    devices = wanted.gpus or target.devices
    update: dict[str, object] = {"nodes": nodes, "devices": devices}
    if devices > 1 and target.devices == 1:
        update["inside"] = None
    if wanted.network is not None:
        update["network"] = _make_network(target, wanted.network, wanted.transport, devices)
    if wanted.network_times is not None:
        times, old = f"--network {wanted.network_times:g}x", target.network
        if old is None or old.bytes_per_second is None:
            raise UserError(
                f"{times}: the network that was profiled is unknown; give a rate, like 100gbit"
            )
        faster = old.bytes_per_second.scale(wanted.network_times, source=times)
        update["network"] = old.model_copy(update={"bytes_per_second": faster})
    if wanted.disk is not None:
        update["storage"] = Storage(bytes_per_second=given_quantity(wanted.disk, "--disk"))
    for field, value in (("cores", wanted.cpus), ("memory_bytes", wanted.memory)):
        known_value = getattr(target, field)
        if value is not None and (
            known_value is None or known_value.value != value
        ):  # else what there is
            update[field] = given_quantity(value, "--cpus" if field == "cores" else "--memory")
    if nodes * devices > MAX_NODES:
        ranks = f"{nodes} nodes of {devices} are {nodes * devices:,} ranks"
        raise UserError(f"{ranks}; forecasts go up to {MAX_NODES:,}")
    return target.model_copy(update=update)


def _change_transport(
    measured: Target, nodes: int, transport: NodeTransport, known: Catalog
) -> Target:
    """Machines like those measured, talking over what they did not; raises UserError where their type is unknown."""
    type_ = next((each for each in known.instances if each.name.lower() == measured.machine), None)
    if type_ is None:
        raise UserError(
            "--transport: what the profiled machines would reach over another one is unknown, as their type is in no "
            "catalog; name it with --instance, or say a rate with --network"
        )
    return target_of_instance(type_, nodes, transport).model_copy(
        update={"devices": measured.devices}
    )


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
    memory = None
    if gpu.memory_bytes is not None:
        memory = Quantity(
            value=gpu.memory_bytes, origin="data sheet", as_of=gpu.as_of, source=gpu.source
        )
    return target.model_copy(
        update={"device": gpu.name, "device_memory_bytes": memory, "device_share": 1.0}
    )


def _reachable_rate(claimed: Quantity, transport: NetworkKind, pcie: int | None) -> Quantity | None:
    """What collectives reach of a line; sockets of a faster one at least what they reach where they still follow."""
    if pcie is not None:
        return network_rate(claimed, transport, pcie=pcie)
    found, least = (
        network_rate(claimed, transport),
        network_rate(given_quantity(SOCKETS_FOLLOW, "--network"), transport),
    )
    if found is None or least is None or transport != "tcp" or claimed.value <= SOCKETS_FOLLOW:
        return found
    ends = {
        name: max(getattr(found, name) or 0.0, getattr(least, name) or 0.0)
        for name in ("value", "low", "high")
    }
    return found.model_copy(update=ends)


def named_gpu(name: str, known: Catalog) -> GpuFacts:
    """A GPU by variant, or by a model's name its first variant: published speeds seldom tell variants apart."""
    return find_variants(name, known)[0]


def _make_network(
    target: Target, rate: float, transport: NodeTransport | None, devices: int
) -> Network:
    """A line of that rate: what collectives reach of it is published for NCCL; gloo's sockets fill what they get."""
    old = target.network or Network()
    used = transport or transport_used(old)
    kind = old.transport
    if kind is None or used != transport_used(old):
        kind = "tcp" if used == "sockets" else "infiniband"
    if used != transport_used(old):
        old = old.model_copy(update={"transport": kind, "latency_seconds": None})
    claimed, wiring = (
        given_quantity(rate, "--network"),
        None if target.inside is None else target.inside.wiring,
    )
    linked = links_of_gpu(target.device) if wiring is None else wiring != "pcie"
    pcie = devices if target.device is not None and not linked else None
    reached = claimed if target.backend == "gloo" else _reachable_rate(claimed, kind, pcie)
    return old.model_copy(update={"bytes_per_second": reached})
