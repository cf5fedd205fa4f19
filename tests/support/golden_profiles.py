"""The hand-worked profiles behind ``tests/golden``, and how to write the expected outputs again.

``PYTHONPATH=src python tests/support/golden_profiles.py`` rewrites the outputs (look at the diff before
keeping it); ``--profiles`` also the profiles, which only a new schema may need: old ones keep their names
(``one-node`` and ``two-nodes`` are of schema 1, ``schema-2`` is the first of them again, ``schema-3`` the same
with facts for predictions).
"""

import json
import sys
from pathlib import Path

from profile_builder import build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.cli.report_command import read_page
from stash.core.artefact import load, save
from stash.core.measured import Collective, Memory, Rate, WorkerTimes
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Bucket, Gradient, Loader, Operator
from stash.report.profile_contract import document
from stash.report.profile_page import page
from stash.ui.markdown import render as render_markdown
from stash.ui.terminal import render

GOLDEN = Path(__file__).parent.parent / "golden"

WIGGLE = (-0.001, 0.001, -0.001, 0.001, 0.0, 0.0)
SHIFTED = (0.001, 0.0, -0.001, 0.0, 0.001, -0.001)
CALM = (0.0002, -0.0002, 0.0, 0.0001, -0.0001, 0.0)


def _around(mean, offsets):
    return [round(mean + offset, 6) for offset in offsets]


def one_node():
    """Means 100, 104, 140, 170, 176 ms: compute 100, contention 4, interconnect 36, prep 30, fetch 6."""
    return build(
        {
            "solo": _around(0.100, WIGGLE),
            "crowd": _around(0.104, SHIFTED),
            "node": _around(0.140, WIGGLE),
            "warm": _around(0.170, SHIFTED),
            "cold": _around(0.176, WIGGLE),
        },
        batch=16,
        block_extra={"warm": {"wait_seconds": 0.28, "fetch_seconds": 3.0}},
        workload={
            "name": "resnet18",
            "precision": "float32",
            "parameters": 11_689_512,
            "parameter_bytes": 46_758_048,
            "bucket_bytes": (2_052_000, 26_000_000, 18_706_048),
            "sample_disk_bytes": 110_000.0,
        },
        rates=(
            Rate(feed="warm", rank=0, round=6, samples=160, seconds=1.6),
            Rate(feed="warm", rank=1, round=6, samples=160, seconds=1.6),
        ),
        collectives=(Collective(scope="node", ranks=2, bytes=46_758_048, seconds=0.048),),
    )


def two_nodes():
    """Two nodes of two GPUs, rank 3 slow, means 50, 52, 56, 60, 90, 90.2 ms; files could not be made cold."""
    return build(
        {
            "resident": _around(0.050, WIGGLE),
            "solo": _around(0.052, CALM),
            "crowd": _around(0.056, WIGGLE),
            "node": _around(0.060, CALM),
            "cluster": _around(0.090, WIGGLE),
            "warm": _around(0.0902, CALM),
        },
        ranks=4,
        nodes=2,
        device="cuda",
        batch=64,
        factors={0: 0.93, 1: 0.93, 2: 0.93},
        skipped={"cold": "97% of the files' pages stayed in the page cache after eviction"},
        workload={
            "name": "resnet50",
            "precision": "float32",
            "parameter_bytes": 102_228_128,
            "loaders": (
                Loader(
                    kind="map", workers=6, samples=1_281_167, pin_memory=True, startup_seconds=1.5
                ),
            ),
        },
        hosts=tuple(
            Host(
                hostname=f"gpu{i}",
                cores=16,
                memory_bytes=64 * 10**9,
                gpus=tuple(Gpu(index=j, name="Tesla V100-SXM2-16GB") for j in range(2)),
                steal_fraction=0.04,
            )
            for i in range(2)
        ),
        rates=tuple(Rate(feed="warm", rank=r, round=6, samples=640, seconds=0.8) for r in range(4)),
        collectives=(Collective(scope="world", ranks=4, bytes=102_228_128, seconds=0.06),),
        ended="budget",
    )


def one_node_facts():
    """One node, with a row of everything that schema 3 holds besides."""
    profile = one_node()
    weight, bias = (0.0, 0.0, 0.0), (0.041, 0.043, 0.042)
    facts = {
        "gradients": (
            Gradient(name="fc.weight", bytes=2_048_000, ready_seconds=0.0, ready_steps=weight),
            Gradient(name="conv1.weight", bytes=37_632, ready_seconds=0.041, ready_steps=bias),
        ),
        "operators": (
            Operator(
                operator="aten.mm",
                shapes="16x512 512x1000",
                dtype="float32",
                calls=1,
                flops=16_384_000,
                bytes=2_144_768,
            ),
            Operator(
                operator="others", shapes="", dtype="", calls=240, flops=None, bytes=9_000_000
            ),
        ),
        "buckets": (
            Bucket(bytes=2_085_632, gradients=("fc.weight", "conv1.weight"), ready_steps=bias),
        ),
        "optimizer_bytes": 46_758_048,
        "unrecorded": {"others": "not recorded: this file shows what a reason looks like"},
    }
    return profile.model_copy(
        update={
            "workload": profile.workload.model_copy(update=facts),
            "workers": (
                WorkerTimes(feed="warm", rank=0, round=0, batches=(10, 9), seconds=(1.5, 1.5)),
            ),
            "memory": (Memory(rank=0, resident_bytes=500_000_000, replayed_bytes=24_000_000),),
        }
    )


PROFILES = {"one-node": one_node, "two-nodes": two_nodes}


def outputs(profile):
    """What Stash says about a profile, by the ending of the golden file's name."""
    breakdown = attribute(profile)
    advice = verdict(breakdown, profile)
    return {
        "txt": render(page(breakdown, advice, profile), 80, False),
        "json": json.dumps(document(breakdown, advice, profile), indent=1, ensure_ascii=False)
        + "\n",
    }


if __name__ == "__main__":
    if "--profiles" in sys.argv:
        save(one_node_facts(), GOLDEN / "schema-3.stash.json")
    for name, make in PROFILES.items():
        if "--profiles" in sys.argv:
            save(make(), GOLDEN / f"{name}.stash.json")
        summary = render_markdown(read_page([str(GOLDEN / f"{name}.stash.json")]))
        (GOLDEN / f"{name}.expected.md").write_text(summary, encoding="utf-8")
        for ending, text in outputs(load(GOLDEN / f"{name}.stash.json")).items():
            (GOLDEN / f"{name}.expected.{ending}").write_text(text, encoding="utf-8")
