"""A profile that has everything a report shows, and its pages: for tests of renderers, and in a browser."""

from dataclasses import replace

import probe_builder
from profile_builder import build

from stash.cli.report_command import read_page
from stash.core.artefact import save
from stash.core.measured import Collective, Rate
from stash.core.records.host import Gpu
from stash.core.records.profile import Gradient, Loader

HOSTILE = "<script>alert('x')</script>\x1b[2J|`rm`@all"
ROUNDS = 8


def whole(**changed):
    """Two nodes of two GPUs; round 5 is disturbed, rank 3 is slow, and every reading is there."""
    steady = {
        "resident": 0.050,
        "solo": 0.052,
        "crowd": 0.056,
        "node": 0.060,
        "cluster": 0.080,
        "warm": 0.090,
        "cold": 0.1,
    }
    times = {
        name: [
            seconds * (1 + 0.004 * ((number * 7 + place) % 5 - 2)) * (1.6 if number == 5 else 1.0)
            for number in range(ROUNDS)
        ]
        for place, (name, seconds) in enumerate(steady.items())
    }
    read = {"files": 320, "file_bytes": 320 * 110_000, "samples": 320, "wait_seconds": 0.05}
    busy = {
        "cpu": 0.4,
        "steal": 0.0,
        "gpu": 0.9,
        "network_bytes": 10**8,
        "disk_bytes": 10**6,
        "samples": 320,
    }
    profile = build(
        times,
        ranks=4,
        nodes=2,
        device="cuda",
        batch=32,
        factors={0: 0.9, 1: 0.9, 2: 0.9},
        block_extra={
            **dict.fromkeys(steady, busy),
            "warm": {**busy, **read, "resident": 1.0, "storage_bytes": 0},
            "cold": {**busy, **read, "resident": 0.01, "storage_bytes": 320 * 112_000},
        },
        workload={
            "name": "resnet50",
            "command": ("train.py", "--batch", "32", "--data", "my photos"),
            "precision": "float32",
            "parameters": 25_557_032,
            "parameter_bytes": 102_228_128,
            "bucket_bytes": (2_000_000, 26_000_000, 72_000_000),
            "gradients": tuple(
                Gradient(name=f"layer{n}.weight", bytes=10_000_000, ready_seconds=0.004 * n)
                for n in range(10)
            ),
            "loaders": (
                Loader(
                    kind="map", workers=6, prefetch_factor=2, samples=1_281_167, startup_seconds=1.5
                ),
            ),
            "sample_disk_bytes": 110_000.0,
            "sample_bytes": 602_112.0,
        },
        rates=tuple(
            Rate(feed=feed, rank=r, round=6, samples=640, seconds=0.8 + (feed == "cold"))
            for feed in ("warm", "cold")
            for r in range(4)
        ),
        collectives=(
            Collective(
                scope="world", ranks=4, bytes=102_228_128, seconds=0.06, latency_seconds=0.001
            ),
        ),
        host={
            "cpu": "Xeon",
            "gpus": tuple(Gpu(index=j, name="Tesla V100-SXM2-16GB") for j in range(2)),
        },
    )
    blocks = tuple(
        replace(b, cpu=0.4 + 0.01 * b.round, started=10.0 * b.round) for b in profile.blocks
    )
    return profile.model_copy(update={"blocks": blocks, **changed})


def probed_whole():
    """The same, with the links of its first host."""
    profile, host = whole(), probe_builder.p3_8xlarge()
    hosts = (profile.hosts[0].model_copy(update={"links": host.links}), profile.hosts[1])
    return profile.model_copy(update={"hosts": hosts})


def hostile():
    """The same, where every name is a trap."""
    profile = whole()
    work = profile.workload
    gradients = tuple(
        gradient.model_copy(update={"name": HOSTILE + str(n)})
        for n, gradient in enumerate(work.gradients)
    )
    return profile.model_copy(
        update={
            "workload": work.model_copy(
                update={
                    "name": HOSTILE,
                    "command": ("train.py", HOSTILE),
                    "gradients": gradients,
                    "exchange_hook": HOSTILE,
                }
            ),
            "hosts": tuple(
                host.model_copy(update={"hostname": HOSTILE, "cpu": "x" * 2**20})
                for host in profile.hosts
            ),
            "notes": (HOSTILE * 200,),
            "software": {HOSTILE: HOSTILE},
        }
    )


def page_of(*profiles, folder):
    """The page of profiles, saved as ``run1.stash.json`` and so on."""
    names = []
    for number, profile in enumerate(profiles, 1):
        save(profile, folder / f"run{number}.stash.json")
        names.append(str(folder / f"run{number}.stash.json"))
    return read_page(names)
