"""Tokens a second and shares of a GPU's peak, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.model_flops import ModelFlops, model_flops
from stash.catalog.facts import GpuFacts
from stash.core.records.host import Gpu
from stash.core.records.profile import Operator, Profile

A100 = GpuFacts(
    name="A100-SXM4-80GB",
    model="A100",
    architecture="Ampere",
    fp32_flops_per_second=19.5e12,
    tensor_tf32_flops_per_second=156e12,
    tensor_fp16_flops_per_second=312e12,
    as_of="2020",
    source="data sheet",
)
V100 = A100.model_copy(update={"name": "V100-SXM2-16GB", "model": "V100", "architecture": "Volta"})


def trained(
    gpu: str = "NVIDIA A100-SXM4-80GB", dtype: str = "bfloat16", **workload: Any
) -> Profile:
    """Two GPUs, steps of 100 ms, 4 samples each; a device counts 7.8 TFLOP a step."""
    product = Operator(operator="aten.mm", shapes="8x8 8x8", dtype=dtype, calls=1, flops=7.8e12)
    facts = {
        "operators": (product,),
        "flops_per_step": 7.8e12,
        "float32_products": "highest",
        **workload,
    }
    profile = build({"solo": [0.08] * 4, "node": [0.1] * 4}, batch=4, workload=facts)
    ranks = tuple(replace(rank, device=f"cuda:{rank.rank}") for rank in profile.ranks)
    hosts = tuple(
        host.model_copy(update={"gpus": (Gpu(index=0, name=gpu),)}) for host in profile.hosts
    )
    return profile.model_copy(update={"ranks": ranks, "hosts": hosts})


def found(profile: Profile) -> ModelFlops:
    return model_flops(attribute(profile), profile, [A100, V100])


def test_tokens_are_those_of_all_samples():
    seen = found(trained(tokens_per_sample=512.0, padding=0.25))
    assert seen.tokens_per_step == 2 * 4 * 512
    assert seen.tokens_per_second == pytest.approx(40_960)
    assert seen.padding == 0.25


def test_counted_flops_are_a_share_of_the_peak_of_their_type():
    seen = found(trained())
    assert seen.counted_per_second == pytest.approx(78e12)
    assert (seen.gpu, seen.precision, seen.peak_per_second) == (
        "A100-SXM4-80GB",
        "bfloat16",
        312e12,
    )
    assert seen.counted_share == pytest.approx(78 / 312)
    assert found(trained(dtype="float32")).counted_share == pytest.approx(78 / 19.5)
    assert found(trained(dtype="float32", float32_products="high")).counted_share == pytest.approx(
        78 / 156
    )


def test_the_models_share_counts_six_flops_a_parameter_and_token():
    # 6 x 1e9 x 4,096 tokens in 0.1 s on two devices of 312 TFLOP/s
    seen = found(trained(tokens_per_sample=512.0, whole_parameters=1_000_000_000))
    assert seen.model_share == pytest.approx(6e9 * 4096 / 0.1 / 2 / 312e12)
    assert found(trained(tokens_per_sample=512.0)).model_share is None


def test_what_no_table_knows_is_unknown():
    assert found(trained(gpu="NVIDIA Z1")).counted_share is None
    assert found(trained(gpu="Tesla V100-SXM2-16GB")).peak_per_second is None  # it has no bfloat16
    assert found(trained(dtype="float8_e4m3fn")).counted_share is None
    assert found(trained(dtype="float32", float32_products=None)).counted_share is None
    silent = found(trained(operators=(), flops_per_step=None))
    assert (silent.counted, silent.counted_share, silent.tokens_per_step) == (None, None, None)
