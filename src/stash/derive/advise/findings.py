"""What to do about a finding: one sentence for each kind that something can be done about.

Knows kinds of findings by name and nothing of the machine they were found on.
"""

from __future__ import annotations

from collections.abc import Iterable

from stash.derive.findings.finding import Finding

ADVICE = {
    "lost-gpu": "Reset or return the machine with the GPU that does not answer before training on it.",
    "cpu-limit": "Raise the container's CPU limit, or start no more loader workers than it allows.",
    "gpu-count": "Check that every GPU was passed to this machine or container (`nvidia-smi -L`).",
    "uneven-nodes": "Rent another machine in place of the slow node and probe again.",
    "slow-pairs": "Rent the size that has the whole mesh of GPUs, or return this machine and probe the next.",
    "uneven-pairs": "Choose GPUs without a slow pair among them (CUDA_VISIBLE_DEVICES), or rent the size that has "
    "the whole mesh.",
    "pcie-trained-down": "Return the machine or have the GPU reseated: its link does not run at full rate.",
    "shared-uplink": "Expect contention when batches are copied: keep them small (uint8) until they are on the GPU.",
    "one-flow": "Let NCCL open more connections: NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4.",
    "no-rdma": "Rent the machines with RDMA switched on (EFA on AWS), or install its driver.",
    "disk-burst": "Measure fetch stalls for longer than the burst lasts, or provision the disk's throughput.",
    "slow-disk": "Provision more throughput for the volume, or copy the data to a local disk.",
    "cores-do-not-scale": "Start no more loader workers than add samples, or prepare data ahead of training.",
    "steal": "Rent a dedicated or larger machine if steps are uneven.",
}
"""In the order of urgency."""


def next_steps(findings: Iterable[Finding], most: int = 3) -> tuple[str, ...]:
    """The most urgent advice on ``findings``, each kind once."""
    found = {finding.name for finding in findings}
    return tuple(text for name, text in ADVICE.items() if name in found)[:most]
