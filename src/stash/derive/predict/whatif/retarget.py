"""The cluster that is asked about: the one that was profiled, or an instance's, with what the changes say instead.

What nobody knows of it stays unknown. A GPU named alone moves into the machines that were profiled: their links stay.
"""

from __future__ import annotations

from collections.abc import Callable

from stash.base.errors import UserError
from stash.derive.predict.target.cluster import Network, NetworkKind, Storage, Target
from stash.derive.predict.target.efficiency import SOCKETS_FOLLOW
from stash.derive.predict.target.from_catalog import network_rate, of_instance
from stash.derive.predict.uncertainty.quantity import Quantity, given
from stash.derive.predict.whatif.changes import MOST_NODES, Alteration
from stash.keep.catalog import Catalog, GpuFacts


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
                f"--instance {wanted.instance}: nobody published how fast its CPUs train; run `stash profile` there, "
                "or change single facts with --nodes, --network and --disk"
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
    if nodes * devices > MOST_NODES:
        ranks = f"{nodes} nodes of {devices} are {nodes * devices:,} ranks"
        raise UserError(f"{ranks}; forecasts go up to {MOST_NODES:,}")
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
