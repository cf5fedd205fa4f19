"""Profiles with the facts that predictions need, hand-made: of two nodes of two V100s, and of one node of CPUs."""

from profile_builder import build

from stash.core.measured import Collective, Rate
from stash.core.records.host import Gpu, Host, Limits
from stash.core.records.profile import Gradient, Loader

WIGGLE = (-0.001, 0.001, -0.001, 0.001, 0.0, 0.0)
CALM = (0.0002, -0.0002, 0.0, 0.0001, -0.0001, 0.0)
BUCKETS = (2_052_000, 26_000_000, 26_000_000, 26_000_000, 22_176_128)


def around(mean, offsets=CALM):
    """Rounds of a rung with this mean."""
    return [round(mean + offset, 6) for offset in offsets]


def gradients(backward=0.11, count=50):
    """102.2 MB in equal parts, ready evenly over the backward pass."""
    size = sum(BUCKETS) // count
    return tuple(
        Gradient(name=f"layer{i}", bytes=size, ready_seconds=round(backward * i / (count - 1), 6))
        for i in range(count)
    )


def gpu_job(**changes):
    """Means 170, 174, 178, 186, 240, 260, 300 ms: compute, transfer 4, contention 4, interconnect 8, network 54,
    prep 20, fetch 40; 64 samples a rank, three workers each, storage at 140 MB/s a node."""
    fields = {
        "ranks": 4,
        "nodes": 2,
        "device": "cuda",
        "batch": 64,
        "block_extra": {
            "warm": {"wait_seconds": 0.2, "fetch_seconds": 7.8},
            "cold": {"files": 640, "file_bytes": 640 * 110_000, "samples": 640},
        },
        "workload": {
            "name": "resnet50",
            "precision": "float32",
            "parameters": 25_557_032,
            "parameter_bytes": 102_228_128,
            "bucket_bytes": BUCKETS,
            "gradients": gradients(),
            "sample_bytes": 602_112.0,
            "sample_disk_bytes": 110_000.0,
            "dataset_bytes": 140e9,
            "loaders": (
                Loader(
                    kind="map", workers=3, prefetch_factor=2, samples=1_281_167, pin_memory=True
                ),
            ),
        },
        "hosts": tuple(
            Host(
                hostname=f"gpu{i}",
                cores=16,
                memory_bytes=64 * 10**9,
                gpus=tuple(
                    Gpu(index=j, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30)
                    for j in range(2)
                ),
                limits=Limits(),
            )
            for i in range(2)
        ),
        "rates": (
            *(Rate(feed="warm", rank=r, round=6, samples=640, seconds=2.6) for r in range(4)),
            *(Rate(feed="cold", rank=r, round=6, samples=640, seconds=3.0) for r in range(4)),
        ),
        "collectives": (
            *(
                Collective(
                    scope="node", ranks=2, bytes=102_228_128, seconds=s, latency_seconds=0.0002
                )
                for s in (0.0120, 0.0121, 0.0119)
            ),
            *(
                Collective(
                    scope="world", ranks=4, bytes=102_228_128, seconds=s, latency_seconds=0.001
                )
                for s in (0.130, 0.131, 0.129)
            ),
        ),
    }
    times = {
        "resident": around(0.170, WIGGLE),
        "solo": around(0.174),
        "crowd": around(0.178, WIGGLE),
        "node": around(0.186),
        "cluster": around(0.240, WIGGLE),
        "warm": around(0.260),
        "cold": around(0.300, WIGGLE),
    }
    return build(times, **{**fields, **changes})


def cpu_job(**changes):
    """One node of two CPU ranks; means 100, 104, 140, 170, 200 ms; two workers a rank."""
    fields = {
        "batch": 16,
        "block_extra": {"warm": {"wait_seconds": 0.28, "fetch_seconds": 3.2}},
        "workload": {
            "name": "resnet18",
            "precision": "float32",
            "parameter_bytes": 46_758_048,
            "bucket_bytes": (2_052_000, 26_000_000, 18_706_048),
            "gradients": tuple(
                Gradient(name=f"layer{i}", bytes=2_337_902, ready_seconds=round(0.06 * i / 19, 6))
                for i in range(20)
            ),
            "sample_disk_bytes": 110_000.0,
            "dataset_bytes": 30e9,
            "loaders": (Loader(kind="map", workers=2, prefetch_factor=2, samples=270_000),),
        },
        "rates": (
            *(Rate(feed="warm", rank=r, round=6, samples=160, seconds=1.6) for r in range(2)),
            *(Rate(feed="cold", rank=r, round=6, samples=160, seconds=2.0) for r in range(2)),
        ),
        "collectives": tuple(
            Collective(scope="node", ranks=2, bytes=46_758_048, seconds=s, latency_seconds=0.0006)
            for s in (0.048, 0.0485, 0.0475)
        ),
    }
    times = {
        "solo": around(0.100, WIGGLE),
        "crowd": around(0.104),
        "node": around(0.140, WIGGLE),
        "warm": around(0.170),
        "cold": around(0.200, WIGGLE),
    }
    return build(times, **{**fields, **changes})
