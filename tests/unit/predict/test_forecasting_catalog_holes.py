"""No machine of the catalog is forecast with a hole in its facts that the forecast does not name."""

import pytest
from forecast_profiles import gpu_job

from stash.core.errors import UserError
from stash.predict.changes import Alteration, named_gpu
from stash.predict.cluster import Target
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of, shipped_catalog, what_if

CATALOG = shipped_catalog()
TYPES = [each for each in CATALOG.instances if each.gpu_count]
WITH_TENSOR_CORES = {"Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"}


@pytest.fixture(scope="module")
def base():
    return base_of(gpu_job(), draws=Draws(16), catalog=lambda: CATALOG)


def holes(instance, target):
    """Words that a forecast of this machine has to say, one for each fact that it lacks."""
    gpu, found = named_gpu(target.device or "", CATALOG), []
    if gpu.architecture in WITH_TENSOR_CORES and gpu.tensor_fp16_flops_per_second is None:
        found.append(f"{gpu.name}'s tensor cores is in no table")
    if instance.remote_disk_bytes_per_second is None:
        burst = instance.remote_disk_burst_bytes_per_second is not None
        found.append(
            "what it sustains is not published"
            if burst
            else "what its storage does is not published"
        )
    if target.cores is None:
        found.append("how many cores a node has is unknown")
    if target.nodes > 1 and (target.network is None or target.network.bytes_per_second is None):
        found.append("the network between nodes")
    if target.devices > 1 and (target.inside is None or target.inside.bytes_per_second is None):
        found.append("the links between the")
    return found


def text(forecast):
    return "; ".join([*forecast.extrapolations, *(item.why for item in forecast.breakdown.skipped)])


def asked(base, wanted):
    """The forecast, or why there is none."""
    try:
        return what_if(base, wanted)
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_type_is_left_out_or_says_what_it_lacks(base, nodes):
    forecast = lacking = 0
    for instance in TYPES:
        answer = asked(base, Alteration(instance=f"{instance.cloud}/{instance.name}", nodes=nodes))
        if isinstance(answer, str):
            assert "how fast slices of GPUs train is not published" in answer
            continue
        forecast += 1
        missing = holes(instance, answer.target)
        lacking += bool(missing)
        for words in missing:
            assert words in text(answer), (instance.name, words)
        gpu = named_gpu(answer.target.device or "", CATALOG)
        assert gpu.fp32_flops_per_second, gpu.name
        assert gpu.memory_bytes_per_second, gpu.name
    assert forecast > 100
    assert lacking > 10


def test_cores_that_a_description_leaves_out_are_named():
    described = Target(name="ours", nodes=1, devices=2, backend="nccl", device="V100-SXM2-16GB")
    base = base_of(gpu_job(), draws=Draws(16), clusters=lambda name: described)
    forecast = what_if(base, Alteration(cluster="ours.yaml"))
    assert any("how many cores a node has is unknown" in each for each in forecast.extrapolations)
