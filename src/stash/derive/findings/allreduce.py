"""All-reduce as a curve: algorithm and bus bandwidth of each size, and the two-parameter model behind them.

The model is the ring's, t(n) = 2(p−1)·α + 2(p−1)/p · n/β (docs/method.md): latency α of one hop and bandwidth β
of one link. Knows when a curve is not of that form and says so; knows nothing of what a machine should reach.
"""

from __future__ import annotations

import math

import numpy as np

from stash.base.records import Exchange, Record
from stash.base.stats.intervals import Interval, median_interval

TOO_FAR = 0.30
"""Largest relative residual up to which a curve counts as α–β; libraries that switch protocols exceed it."""


class Size(Record):
    """One message size. Bandwidths as nccl-tests define them: algorithm n/t, bus n/t · 2(p−1)/p."""

    bytes: int
    seconds: Interval
    algorithm_bytes_per_second: Interval
    bus_bytes_per_second: Interval


class RingFit(Record):
    """The two parameters with their standard errors, and how well they describe the curve."""

    alpha_seconds: float
    """Per hop. May come out negative where small messages are too noisy to show a latency."""
    alpha_error: float
    bytes_per_second: float
    bytes_per_second_error: float
    relative_error: float
    """Root mean square of the relative residuals."""
    worst_relative_residual: float
    worst_bytes: int
    """The size that is described worst."""
    is_alpha_beta: bool


class Curve(Record):
    """One all-reduce from small messages to large ones."""

    backend: str
    nodes: int
    ranks: int
    hostname: str
    sizes: tuple[Size, ...]
    fit: RingFit | None = None
    """``None`` with fewer than three sizes, or where time does not grow with size."""


def curve(exchange: Exchange, hostname: str) -> Curve:
    """The curve of one measured exchange."""
    sizes = _sizes(exchange)
    return Curve(
        backend=exchange.backend,
        nodes=exchange.nodes,
        ranks=exchange.ranks,
        hostname=hostname,
        sizes=sizes,
        fit=fit(sizes, exchange.ranks),
    )


def bus_factor(ranks: int) -> float:
    """Bytes that each link of a ring carries for every byte reduced: 2(p−1)/p."""
    return 2 * (ranks - 1) / ranks


def _sizes(exchange: Exchange) -> tuple[Size, ...]:
    found = []
    for timing in sorted(exchange.timings, key=lambda timing: timing.bytes):
        seconds = [value for value in timing.seconds if value > 0]
        if not seconds:
            continue
        algorithm = median_interval([timing.bytes / value for value in seconds])
        found.append(
            Size(
                bytes=timing.bytes,
                seconds=median_interval(seconds),
                algorithm_bytes_per_second=algorithm,
                bus_bytes_per_second=algorithm.scaled(bus_factor(exchange.ranks) if exchange.ranks > 1 else 1.0),
            )
        )
    return tuple(found)


def fit(sizes: tuple[Size, ...], ranks: int) -> RingFit | None:
    """Least squares over the sizes' median times, each residual relative to its time.

    Relative, so that a microsecond of a small message counts as much as a millisecond of a large one. Standard
    errors are the regression's (from the residuals, sizes − 2 degrees of freedom).
    """
    if len(sizes) < 3 or ranks < 2:
        return None
    count = np.array([size.bytes for size in sizes], dtype=np.float64)
    times = np.array([size.seconds.value for size in sizes])
    design = np.column_stack([1 / times, count / times])
    # Scaled columns: seconds and seconds per byte differ by many powers of ten.
    scale = np.linalg.norm(design, axis=0)
    solution, _, rank, _ = np.linalg.lstsq(design / scale, np.ones_like(times), rcond=None)
    if rank < 2:
        return None
    residuals = design / scale @ solution - 1
    variance = float(residuals @ residuals) / (len(sizes) - 2)
    errors = np.sqrt(np.diag(np.linalg.inv((design / scale).T @ (design / scale))) * variance) / scale
    start, slope = (float(value) for value in solution / scale)
    if slope <= 0:
        return None
    hops, bandwidth = 2 * (ranks - 1), bus_factor(ranks) / slope
    worst = int(np.argmax(np.abs(residuals)))
    return RingFit(
        alpha_seconds=start / hops,
        alpha_error=float(errors[0]) / hops,
        bytes_per_second=bandwidth,
        bytes_per_second_error=bandwidth * float(errors[1]) / slope,
        relative_error=math.sqrt(float(residuals @ residuals) / len(sizes)),
        worst_relative_residual=float(abs(residuals[worst])),
        worst_bytes=sizes[worst].bytes,
        is_alpha_beta=bool(abs(residuals[worst]) <= TOO_FAR),
    )
