"""Which instance types a machine of unknown type is most like, by what was seen of it.

Compares shapes (GPU model, their number and memory, vCPUs, memory, network) and says what could not be compared.
A likeness is not an identity: clouds sell the same shape under many names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from stash.base.records import Host, Record
from stash.derive.findings.machine import model_of, working
from stash.derive.findings.network import reach
from stash.keep.catalog import Catalog, Instance

_OTHER_MODEL = 3.0
"""Distance of another GPU model: as far as 8 GPUs are from 160, so that no size makes up for it."""
_CLOSE = 0.15
"""Natural logarithm of a ratio up to which two sizes count as the same."""


class Near(Record):
    """One type and how far the machine is from it."""

    instance: str
    cloud: str
    distance: float
    """Mean absolute natural logarithm of the ratios compared; 0 is the same shape."""
    differs: tuple[str, ...] = ()
    """In words, what is not the same, e.g. ``network 0.4 times``."""
    not_compared: tuple[str, ...] = ()
    """Dimensions that the machine or the catalog does not know."""


Dimensions = dict[str, float | None]


def nearest_types(hosts: Sequence[Host], node: int, catalog: Catalog, count: int = 3) -> tuple[Near, ...]:
    """The ``count`` types most like ``hosts[node]``, nearest first; empty when too little is known of it."""
    shape, model = _shape_of_host(hosts, node), _model(hosts[node], catalog)
    if sum(value is not None for value in shape.values()) < 2:
        return ()
    found = [near for instance in catalog.instances if (near := _near(shape, model, instance)) is not None]
    found.sort(key=lambda near: (near.distance, len(near.not_compared), near.cloud, near.instance))
    return tuple(found[:count])


def _model(host: Host, catalog: Catalog) -> str | None:
    models = {model_of(gpu, catalog) for gpu in working(host)}
    return models.pop() if len(models) == 1 else None


def _shape_of_host(hosts: Sequence[Host], node: int) -> Dimensions:
    host = hosts[node]
    gpus = working(host)
    memories = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None]
    network = reach(hosts)
    return {
        "GPUs": float(len(gpus)),
        "memory per GPU": float(min(memories)) if memories else None,
        "vCPUs": None if host.cores is None else float(host.cores),
        "memory": None if host.memory_bytes is None else float(host.memory_bytes),
        "network": None if network is None else network.best.value,
    }


def _shape_of_type(instance: Instance) -> Dimensions:
    return {
        "GPUs": float(instance.devices) if instance.gpu_count else instance.gpu_count,
        "memory per GPU": instance.gpu_memory_bytes,
        "vCPUs": instance.vcpus,
        "memory": instance.memory_bytes,
        "network": instance.network_bytes_per_second,
    }


def _near(shape: Dimensions, model: str | None, instance: Instance) -> Near | None:
    """``None`` where one has GPUs and the other has none: no other likeness matters then."""
    theirs = _shape_of_type(instance)
    if theirs["GPUs"] is not None and bool(shape["GPUs"]) != bool(theirs["GPUs"]):
        return None
    steps, differs = [], list(_other_model(model, instance))
    missing = ["GPU model"] if shape["GPUs"] and model is None else []
    steps += [_OTHER_MODEL] * len(differs)
    for name, mine in shape.items():
        other = theirs[name]
        if not shape["GPUs"] and name in ("GPUs", "memory per GPU"):
            continue
        if not mine or not other:
            missing.append(name)
            continue
        step = abs(math.log(mine) - math.log(other))
        steps.append(step)
        if step > _CLOSE:
            differs.append(f"{name} {mine / other:.2g} times")
    if not steps:
        return None
    return Near(
        instance=instance.name,
        cloud=instance.cloud,
        distance=sum(steps) / len(steps),
        differs=tuple(differs),
        not_compared=tuple(missing),
    )


def _other_model(model: str | None, instance: Instance) -> Iterator[str]:
    if model is not None and instance.gpu_model is not None and model != instance.gpu_model:
        yield f"{instance.gpu_model} instead of {model}"
