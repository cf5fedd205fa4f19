"""What would make each stall smaller, from its numbers."""

from __future__ import annotations

from breakdowns import advice_for, flat, steps_for
from profile_builder import build

from stash.base.records import Collective, Gpu, Loader


def test_half_precision_gradients_are_not_told_to_be_halved():
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    assert "fp16" not in steps_for(build(times, ranks=4, nodes=2, workload={"precision": "bfloat16"}))


def test_gradients_of_gpus_may_be_halved_by_two_complete_lines_and_of_cpus_not():
    times = flat(solo=0.1, crowd=0.1, node=0.2)
    text = steps_for(build(times, device="cuda", workload={"precision": "float32"}))
    assert "`from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`" in text
    assert "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`" in text
    assert "rounded to 16 bits" in text
    assert "compress" not in steps_for(build(times, workload={"precision": "float32"}))  # slower there


def test_a_larger_batch_saves_for_as_many_samples_and_says_what_it_costs():
    times = flat(solo=0.1, crowd=0.1, node=0.2)
    text = steps_for(build(times))
    assert (
        "Double the batch per device (8 to 16), if its memory allows: the same bytes for twice the samples; "
        "saves up to 50.0 ms for every 16 samples (25%). The effective batch grows, so tune the learning rate again."
    ) in text
    assert "the first 3 backward passes; saves up to 75.0 ms for every 16 samples (38%). The effective batch" in text
    assert "saves up to 50.0 ms for as many samples" in steps_for(build(times, batch=None))


def test_a_link_has_one_unit():
    runs = (Collective(scope="world", ranks=2, bytes=4_930_000, seconds=0.1),)
    times, work = flat(solo=0.1, crowd=0.1, cluster=0.2), {"parameter_bytes": 5_000_000}
    advice = advice_for(build(times, nodes=2, collectives=runs, workload=work))
    assert "5.00 MB of gradients at 394 Mbit/s" in advice.text
    assert "twice as much (789 Mbit/s as all-reduce sees it)" in " ".join(advice.next_steps)


def test_a_big_last_bucket_is_named():
    work = {"precision": "bfloat16", "bucket_bytes": (10_000_000, 70_000_000)}
    text = steps_for(build(flat(solo=0.1, crowd=0.1, node=0.2), workload=work))
    assert "bucket_cap_mb=10 to DistributedDataParallel: the last bucket (70.0 MB, 88% of the gradients)" in text


def test_contention_names_the_slow_rank_and_what_it_costs():
    profile = build(flat(solo=0.1, crowd=0.15), ranks=4, factors={0: 0.8, 1: 0.8, 3: 0.8})
    advice = advice_for(profile)
    assert "all wait for rank 2, which is 30.0 ms slower than the others (150 ms against 120 ms)" in advice.text
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
