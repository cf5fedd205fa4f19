"""The zoo: training workloads with their data pipelines, as ordinary code a user could have written.

Knows models, data sets and one plain training script (``python -m stash.lab.zoo.train``). Uses nothing of
Stash but its errors and ``compat``, and imports torch only when something is built.
"""

from __future__ import annotations

from stash.lab.zoo.registry import WORKLOADS, WorkloadSpec, workload

__all__ = ["WORKLOADS", "WorkloadSpec", "workload"]
