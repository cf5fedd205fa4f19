"""ScheduleAdvice as manifests for Kueue: a flavor for each GPU type, the cluster's quotas, and priorities of jobs.

The objects are those of ``kueue.x-k8s.io/v1beta2``. They are printed and applied by nobody but the reader: `kubectl
apply -f`. Nodes carry their type as the label that NVIDIA's feature discovery gives them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from stash.schedule.advice_now import ScheduleAdvice
from stash.schedule.records import LabCluster

API = "kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
LABEL = "nvidia.com/gpu.product"
_LEVELS = 1_000_000


def manifests(found: ScheduleAdvice, cluster: LabCluster) -> str:
    """The YAML of all objects."""
    return yaml.safe_dump_all(objects(found, cluster), sort_keys=False, width=120)


def objects(found: ScheduleAdvice, cluster: LabCluster) -> list[dict[str, Any]]:
    """Flavors, the queue with its quotas, a local queue for each user, a priority class for each job."""
    name = dns_name(cluster.name)
    flavors = [_object("ResourceFlavor", dns_name(kind), {"nodeLabels": {LABEL: kind}}) for kind in cluster.types]
    quotas = [{"name": dns_name(kind), "resources": [{"name": GPU, "nominalQuota": str(int(count))}]}
              for kind, count in zip(cluster.types, cluster.counts, strict=True)]  # fmt: skip
    queue = _object("ClusterQueue", name, {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}],
    })  # fmt: skip
    users = list(dict.fromkeys(each.job.user for each in found.jobs))
    locals_ = [
        _object("LocalQueue", dns_name(user), {"clusterQueue": name}, namespace=dns_name(user)) for user in users
    ]
    classes: dict[str, dict[str, Any]] = {}
    for place, each in enumerate(found.jobs):
        own = dns_name(f"stash-{each.job.name}")
        own = own if own not in classes else f"{own[:52]}-{place}"  # cut off, or written otherwise, two may be alike
        where = f"on {each.gpu}" if each.gpu else "waits"
        classes[own] = {
            "apiVersion": API,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": own},
            "value": _LEVELS - place,
            "description": f"{each.job.name} {where} by {found.policy}: {each.why}",
        }
    return [*flavors, queue, *locals_, *classes.values()]


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def dns_name(text: str) -> str:
    """A name that Kubernetes takes: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-") or "all"
