"""The paper's contention: what a server's link leaves each of N workers, and how long their iterations take.

Equations (6) to (10) of spotDNN (Shang et al., IWQoS 2023). Where the original slips, decision 17 says how
it is resolved here. Knows no queue: a slow worker loads the server as much as a fast one.
"""

from __future__ import annotations

import math

import numpy as np

from stash.base.spot.fleets import Contention, FleetPool
from stash.derive.predict.uncertainty.draws import Array


def contending(workers: Array, contention: Contention) -> Array:
    """(9) P = min(α₁ · √N + β₁, 1): the share of its exchange in which a worker has to share; never below 0."""
    share: Array = np.clip(contention.alpha * np.sqrt(workers) + contention.beta, 0.0, 1.0)
    return share


def bandwidth(workers: Array, wanted: float, server: float, contention: Contention) -> Array:
    """(8) Bwk = P · Bps / N + (1 − P) · Breq if Breq > Bps / N, else Breq: bytes/s of each of ``workers``.

    ``server`` is what all servers carry together.
    """
    shared = contending(workers, contention)
    fair = server / workers
    return np.where(wanted > fair, shared * fair + (1 - shared) * wanted, wanted)


def exchange_seconds(size: float, gpus: Array, network: Array, pcie: float) -> Array:
    """(7) Tcomm = 2 · S / Bwk + 2 · g · S / Bpcie."""
    return 2 * size / network + 2 * gpus * size / pcie


def compute_seconds(pool: FleetPool) -> Array:
    """Tcomp of every type, from its speed alone with the server: (6) backwards, so both parts of (7) come off.

    The original adds the PCIe part back, and counts it twice. Not positive where a type is faster alone than its
    exchange, which the speed and the rates then contradict.
    """
    gpus, wanted = np.array([kind.gpus for kind in pool.types]), np.array(pool.worker_bytes_per_second)
    alone = np.array([kind.lone_seconds for kind in pool.types])
    return alone - exchange_seconds(pool.exchange_bytes, gpus, wanted, pool.pcie_bytes_per_second)


def iteration_seconds(pool: FleetPool, workers: Array) -> Array:
    """(6) T = Tcomm + Tcomp of every type in fleets of so many ``workers``: ``[fleet, type]``."""
    assert pool.contention is not None
    network = bandwidth(
        workers, pool.worker_bytes_per_second, pool.server.count * pool.server.bytes_per_second, pool.contention
    )
    gpus = np.array([kind.gpus for kind in pool.types], dtype=float)
    exchange = exchange_seconds(pool.exchange_bytes, gpus[None, :], network[:, None], pool.pcie_bytes_per_second)
    return compute_seconds(pool)[None, :] + exchange


def largest_batch(memory_bytes: float, alpha: float, beta: float) -> int:
    """(10) b = 2^⌊log₂(α₂ · mem + β₂)⌋: samples that a GPU's memory has room for; 0 where not even one fits."""
    room = alpha * memory_bytes + beta
    return 2 ** math.floor(math.log2(room)) if room >= 1 else 0
