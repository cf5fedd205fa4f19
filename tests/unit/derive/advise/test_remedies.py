"""What would make each stall smaller, from its numbers."""

from __future__ import annotations

from breakdowns import advice_for, flat, steps_for
from profile_builder import build

from stash.base.records import Gpu, Loader


def test_half_precision_gradients_are_not_told_to_be_halved():
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    assert "fp16" not in steps_for(build(times, ranks=4, nodes=2, workload={"precision": "bfloat16"}))


def test_a_big_last_bucket_is_named():
    work = {"precision": "bfloat16", "bucket_bytes": (10_000_000, 70_000_000)}
    text = steps_for(build(flat(solo=0.1, crowd=0.1, node=0.2), workload=work))
    assert "bucket_cap_mb to 10: the last bucket (70.0 MB, 88% of the gradients)" in text


def test_contention_names_the_slow_rank_and_what_it_costs():
    profile = build(flat(solo=0.1, crowd=0.15), ranks=4, factors={0: 0.8, 1: 0.8, 3: 0.8})
    advice = advice_for(profile)
    assert "all wait for rank 2, which takes 150 ms where the others take 120 ms" in advice.text
    assert advice.next_steps[0].startswith("Look at rank 2 (cpu on node 0)")
    assert "saves up to 30.0 ms a step (20%)" in advice.next_steps[0]


def test_transfer_from_pageable_memory_asks_for_pinning():
    work = {"loaders": (Loader(kind="map", workers=2, pin_memory=False),), "sample_bytes": 602112.0}
    advice = advice_for(build(flat(resident=0.1, solo=0.12, crowd=0.12), device="cuda", batch=64, workload=work))
    assert advice.stall == "transfer"
    assert "pin_memory=True" in advice.next_steps[0]
    assert "38.5 MB a step at 1.93 GB/s now" in advice.next_steps[1]


def test_a_gpu_computing_in_float32_is_told_of_mixed_precision():
    gpus = (Gpu(index=0, name="Tesla T4"),)
    text = steps_for(build(flat(resident=0.1, solo=0.1), ranks=1, device="cuda", host={"gpus": gpus}))
    assert "torch.autocast" in text
