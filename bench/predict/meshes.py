"""Steps of a job in other meshes than the profiled one, forecast and then measured, on an emulated cluster.

    python -m bench.predict.meshes        root; 10 minutes of a quiet machine

FSDP2 and tensor parallelism of four ranks whose layers sleep (``tests/integration/scripts/mesh.py``): profiled as
2 x 2, forecast as `stash whatif --mesh` does for four shards and for four tensor ranks, and both profiled, too. Ranks
lie on four nodes, or on two nodes of two with a slower network between them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.machine import ROOT, arguments
from bench.table import report, show
from bench.truth.emulated import Cluster, profiled
from stash.analysis.attribution import attribute
from stash.core.records.profile import Profile
from stash.core.units import parse_rate
from stash.predict.changes import changes
from stash.predict.cluster import Network, NodeLinks
from stash.predict.draws import Quantity
from stash.predict.forecasting import base_of, what_if

SCRIPT = ROOT / "tests/integration/scripts/mesh.py"
SECONDS, WIDTH, SAMPLES, LAYERS, HIDDEN = 0.1, 1024, 512, 2, 256
"""Of a layer's forward pass, features, samples of a step, layers, and features between a layer's products."""
SLEEPS = SECONDS * (LAYERS + 2 * (LAYERS - 1))
"""Of a step and rank: forward passes, and backward ones of all layers but the first, whose input has no gradient."""
MESHES = {2: "shard=2,tensor=2", 1: "shard=4", 4: "tensor=4"}
"""By tensor ranks; the first is profiled, the others are forecast."""


CLUSTERS = (Cluster(4), Cluster(2))


def job(tensor: int) -> tuple[object, ...]:
    sizes = ("--seconds", SECONDS, "--width", WIDTH, "--samples", SAMPLES, "--hidden", HIDDEN)
    return (SCRIPT, "--tensor", tensor, *sizes)


def measure(cluster: Cluster, tensors: Sequence[int], budget: float, folder: Path) -> dict[int, Profile]:
    """Profiles by the number of tensor ranks; needs root. Raises RuntimeError with what was printed."""
    with cluster.made() as bed:
        return {tensor: profiled(bed, cluster, job(tensor), budget, folder / f"{tensor}") for tensor in tensors}


def payloads(tensor: int) -> dict[str, float]:
    """Bytes of a step as rank 0 hands them over: gathered parameters, scattered gradients, reduced activations."""
    parameters = LAYERS * (2 * WIDTH * HIDDEN + HIDDEN) // tensor + LAYERS * WIDTH
    activations = SAMPLES * tensor // 4 * WIDTH
    found = {} if tensor == 4 else {"all_gather": 4.0 * 2 * parameters, "reduce_scatter": 4.0 * parameters}
    # of every layer's output, and of the gradient of every input but the first, which needs none
    return found if tensor == 1 else found | {"all_reduce": 4.0 * activations * (2 * LAYERS - 1)}


def forecast(cluster: Cluster, profile: Profile, tensor: int) -> float:
    """Seconds of a step in that mesh, between machines of which links are known as they are shaped.

    Each of a node's two ranks has half of the medium that they share.
    """
    base = base_of(profile)
    inside, between = (_known(parse_rate(each)) for each in (cluster.interconnect, cluster.network))
    half = inside.model_copy(update={"value": inside.value / 2})
    links = {"inside": NodeLinks(bytes_per_second=half), "network": Network(bytes_per_second=between)}
    base = replace(base, target=base.target.model_copy(update=links))
    return what_if(base, changes({"mesh": MESHES[tensor]})).breakdown.step_seconds


def _known(rate: float) -> Quantity:
    return Quantity(value=rate, origin="given", source="the testbed")


def rows(budget: float) -> Iterator[list[object]]:
    for cluster in CLUSTERS:
        with tempfile.TemporaryDirectory() as name:
            found = measure(cluster, tuple(MESHES), budget, Path(name))
            steps = {tensor: attribute(profile).step_seconds for tensor, profile in found.items()}
            for tensor in (1, 4):
                expected = forecast(cluster, found[2], tensor)
                errors = [f"{each / steps[tensor] - 1:+.1%}" for each in (expected, steps[2])]
                took = [f"{each:.3f}" for each in (steps[2], expected, steps[tensor])]
                yield [cluster, MESHES[tensor], *took, *errors]


if __name__ == "__main__":
    taken = arguments(__doc__, budget=(40.0, "seconds of each profile"))
    report()
    heads = ("cluster", "mesh", "2 x 2", "forecast", "measured", "error", "error of 2 x 2 as it was")
    show(heads, rows(taken.budget))
