"""Paths with round numbers, for the tests of what takes them."""

from __future__ import annotations

import numpy as np

from stash.predict.collective_times import Fabric, Hops


def hops(start: float = 0.0, inside: float = 0.0, between: float = 0.0) -> Hops:
    return Hops(np.array([start]), np.array([inside]), np.array([between]))


def fabric(
    nodes: int,
    devices: int,
    inside: float = np.inf,
    between: float = np.inf,
    latency: Hops | None = None,
) -> Fabric:
    """One draw of a fabric; rates in bytes per second."""
    latency = latency or hops()
    return Fabric(nodes, devices, np.array([inside]), np.array([between]), latency, latency)
