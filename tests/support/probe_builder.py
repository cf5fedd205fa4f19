"""Probed hosts by hand, for tests: the rates in a test are the rates in the record, with noise from a seed."""

import numpy as np

from stash.core.records.host import (
    Copy,
    DiskRead,
    Exchange,
    Gpu,
    Host,
    Links,
    Probe,
    Route,
    Stream,
    Timing,
)

GB, GBIT = 1e9, 1e9 / 8
MIB = 2**20


def timing(rate, size=256 * MIB, noise=0.01, repetitions=7, seed=0):
    """Repetitions of moving ``size`` bytes at about ``rate`` bytes per second."""
    factors = np.random.default_rng(seed).lognormal(0.0, noise, repetitions)
    return Timing(bytes=size, seconds=tuple(float(size / rate * factor) for factor in factors))


def copy(source, target, rate, *, together=False, **how):
    between = source.startswith("cuda") and target.startswith("cuda")
    return Copy(
        source=source,
        target=target,
        together=together,
        pinned=None if between else True,
        timings=(timing(rate, **how),),
    )


def pairs(rates, **how):
    """Copies between GPUs, both ways; every one with noise of its own."""
    return tuple(
        copy(f"cuda:{a}", f"cuda:{b}", rate, seed=100 * a + b, **how)
        for (low, high), rate in rates.items()
        for a, b in ((low, high), (high, low))
    )


def stream(source, target, flows, rate, **how):
    return Stream(
        source=source,
        target=target,
        flows=flows,
        timings=(timing(rate, seed=source * 31 + target * 7 + flows, **how),),
    )


def ring(ranks, alpha, beta, sizes=None, **how):
    """An all-reduce that follows the ring's formula, with hops of ``alpha`` seconds and links of ``beta`` bytes/s."""
    sizes = sizes or tuple(4**power for power in range(5, 14))
    seconds = {n: 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * n / beta for n in sizes}
    nodes = how.pop("nodes", 1)
    backend = how.pop("backend", "gloo")
    return Exchange(
        backend=backend,
        nodes=nodes,
        ranks=ranks,
        timings=tuple(timing(n / t, size=n, seed=n % 1000, **how) for n, t in seconds.items()),
    )


def disk(*rates, size=64 * MIB, **fields):
    """Cold sequential reads at these rates, one after the other."""
    seconds = tuple(size / rate for rate in rates)
    return DiskRead(
        **{
            **{
                "pattern": "sequential",
                "cold": True,
                "direct": False,
                "reader": "stash",
                "path": "/data",
            },
            **{
                "file_bytes": size,
                "resident": 0.0,
                "timings": (Timing(bytes=size, seconds=seconds),),
            },
            **fields,
        }
    )


def links(**parts):
    return Links(created="2026-11-20T12:00:00+00:00", elapsed_seconds=30.0, **parts)


def gpus(count, name="Tesla V100-SXM2-16GB", memory=16 * 2**30, **fields):
    return tuple(
        Gpu(index=index, name=name, memory_bytes=memory, **fields) for index in range(count)
    )


def host(name="node0", measured=None, **fields):
    return Host(
        **{
            "hostname": name,
            "cores": 8,
            "memory_bytes": 32 * 2**30,
            "cpu": "Xeon",
            **fields,
            "links": measured,
        }
    )


def probe(*hosts):
    return Probe(
        stash_version="0.1.0",
        created="2026-11-20T12:00:00+00:00",
        hosts=hosts,
        budget_seconds=45.0,
        elapsed_seconds=31.5,
    )


def p3_8xlarge(**fields):
    """Four GPUs of a V100 mesh, of which one pair has no NVLink; everything else as the type promises."""
    measured = links(
        copies=(
            copy("host", "host", 9 * GB),
            *(copy("host", f"cuda:{i}", 11.8 * GB, seed=i) for i in range(4)),
            *(copy(f"cuda:{i}", "host", 12.4 * GB, seed=i) for i in range(4)),
            *(copy("host", f"cuda:{i}", 6.0 * GB, together=True, seed=i) for i in range(4)),
            *(copy(f"cuda:{i}", "host", 6.3 * GB, together=True, seed=i) for i in range(4)),
            *pairs(
                {
                    (0, 1): 48 * GB,
                    (0, 2): 48 * GB,
                    (0, 3): 9.8 * GB,
                    (1, 2): 24 * GB,
                    (1, 3): 48 * GB,
                    (2, 3): 48 * GB,
                }
            ),
        ),
        exchanges=(ring(4, 4e-6, 60 * GB, backend="nccl"),),
        reads=(disk(*[1.0 * GB] * 6, *[0.125 * GB] * 6),),
    )
    usual = {
        "gpus": gpus(4, pcie="gen3 x16", pcie_max="gen3 x16", driver="550.54"),
        "routes": (
            Route(a=0, b=1, kind="single switch", nvlinks=2),
            Route(a=2, b=3, kind="single switch", nvlinks=2),
            Route(a=0, b=2, kind="system"),
        ),
        "cores": 32,
        "memory_bytes": 240 * 2**30,
        "cloud": "aws",
        "instance": "p3.8xlarge",
        "instance_source": "dmi",
    }
    return host("ip-10-0-0-7", measured, **{**usual, **fields})
