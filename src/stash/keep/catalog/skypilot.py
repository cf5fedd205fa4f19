"""How SkyPilot calls a machine of the catalog, in the ``resources`` of its tasks (docs.skypilot.co, YAML spec).

A type names its GPUs, except on GCP: N1 has them attached, and older SkyPilots want them named of all others, too.
Knows names; what a task does on the machine is not known here.
"""

from __future__ import annotations

from stash.keep.catalog.facts import Instance
from stash.keep.catalog.published import skypilot_gpu


def resources(instance: Instance, cloud: str, region: str | None, spot: bool) -> dict[str, object]:
    """What asks for one such machine; ``region`` of ``None`` leaves the choice to SkyPilot."""
    machine, _, attached = instance.name.partition("+")
    found: dict[str, object] = {**where(cloud, region), "instance_type": machine}
    if instance.gpu_count and (attached or cloud == "gcp"):
        found["accelerators"] = f"{skypilot_gpu(instance)}:{instance.gpu_count:g}"
    return {**found, "use_spot": spot}


def where(cloud: str, region: str | None) -> dict[str, object]:
    return {"infra": cloud if region is None else f"{cloud}/{region}"}
