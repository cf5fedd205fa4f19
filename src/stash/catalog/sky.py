"""SkyPilot tasks: what asks for a machine of the catalog, and the YAML that ``sky`` takes.

The only place that knows SkyPilot's keys for machines (docs.skypilot.co, reference/yaml-spec). A type names its GPUs,
except on GCP: N1 has them attached, and older SkyPilots want them named of all others, too. Asks no cloud.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from stash.catalog.facts import Instance
from stash.catalog.published import skypilot_gpu

CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod")
"""That SkyPilot rents from, and the catalog knows, by the same names."""
AUTOSTOP = {"idle_minutes": 10, "down": True}
"""When a cluster that has nothing to do is taken down: not so soon that a failed start cannot be looked at."""


def resources(instance: Instance, cloud: str, region: str | None, spot: bool) -> dict[str, object]:
    """What asks for one such machine; ``region`` of ``None`` leaves the choice to SkyPilot."""
    machine, _, attached = instance.name.partition("+")
    found: dict[str, object] = {**where(cloud, region), "instance_type": machine}
    if instance.gpu_count and (attached or cloud == "gcp"):
        found["accelerators"] = f"{skypilot_gpu(instance)}:{instance.gpu_count:g}"
    return {**found, "use_spot": spot}


def where(cloud: str, region: str | None) -> dict[str, object]:
    return {"infra": cloud if region is None else f"{cloud}/{region}"}


def plain_name(text: str, most: int = 40) -> str:
    """A name as SkyPilot and clouds take one: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")


def task_yaml(task: Mapping[str, Any]) -> str:
    """A task as YAML, its keys in their order, scripts as blocks."""
    return yaml.dump(dict(task), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


class _Dumper(yaml.SafeDumper):
    """Writes scripts as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _block)
