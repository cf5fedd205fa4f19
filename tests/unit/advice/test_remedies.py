"""What would make each stall smaller, from its numbers."""

from __future__ import annotations

import pytest
from breakdowns import advice_for, flat, steps_for
from profile_builder import build

from stash.advice.case import Case
from stash.advice.remedies import REMEDIES
from stash.analysis.attribution import attribute
from stash.core.records.host import Gpu
from stash.core.records.profile import Collective, Loader, Profile


def test_half_precision_gradients_are_not_told_to_be_halved():
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    assert "fp16" not in steps_for(
        build(times, ranks=4, nodes=2, workload={"precision": "bfloat16"})
    )


def test_gradients_of_gpus_may_be_halved_by_two_complete_lines_and_of_cpus_not():
    times = flat(solo=0.1, crowd=0.1, node=0.2)
    text = steps_for(build(times, device="cuda", workload={"precision": "float32"}))
    assert "`from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`" in text
    assert "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`" in text
    assert "rounded to 16 bits" in text
    # slower there
    assert "compress" not in steps_for(build(times, workload={"precision": "float32"}))


def test_a_larger_batch_saves_for_as_many_samples_and_says_what_it_costs():
    times = flat(solo=0.1, crowd=0.1, node=0.2)
    text = steps_for(build(times, collectives=exchanges(0.1), workload=WORK))
    assert (
        "Double the batch per device (8 to 16), if its memory allows: the same bytes for twice the samples; "
        "saves about 50.1 ms for every 16 samples (25%). The effective batch grows, so tune the learning rate again."
    ) in text
    assert (
        "the first 3 backward passes; saves about 75.0 ms for every 16 samples (37%). The effective batch"
        in text
    )
    unknown = steps_for(build(times, batch=None, collectives=exchanges(0.1), workload=WORK))
    # the number of samples is unknown
    assert "twice the samples. The effective batch grows" in unknown


WORK = {"parameter_bytes": 4_000_000}
"""As many as ``exchanges`` carry."""


def exchanges(
    seconds: float, latency: float | None = None, scope: str = "node"
) -> tuple[Collective, ...]:
    return (
        Collective(scope=scope, ranks=2, bytes=4_000_000, seconds=seconds, latency_seconds=latency),
    )


def saved(profile: Profile, stall: str = "interconnect") -> dict[str, float | None]:
    """What each remedy that has a name saves, in ms."""
    remedies = REMEDIES[stall](Case(attribute(profile), profile))
    return {
        each.name: None if each.saves is None else round(each.saves * 1e3, 6)
        for each in remedies
        if each.name
    }


def test_without_the_whole_exchange_by_itself_what_twice_the_batch_hides_is_unknown():
    found = saved(build(flat(solo=0.1, crowd=0.1, node=0.2), workload=WORK))
    # of four batches' exchanges one is left, as it was
    assert found == {
        "accumulate": 75,
        "larger-batch": None,
    }


def test_twice_the_batch_hides_as_much_of_the_exchange_where_readiness_is_unknown():
    # 36 ms exposed of 48: the pass twice as long hides 12 as before, and 36 for two steps' samples are 18 for one's
    profile = build(
        flat(solo=0.1, crowd=0.1, node=0.136), collectives=exchanges(0.048), workload=WORK
    )
    # a CPU is a little slower or faster
    assert saved(profile)["larger-batch"] == pytest.approx(36 - 18, abs=0.3)
    mostly_hidden = build(
        flat(solo=0.1, crowd=0.1, node=0.12), collectives=exchanges(0.048), workload=WORK
    )
    assert saved(mostly_hidden)["larger-batch"] == pytest.approx(20 - 10, abs=0.3)


def test_fewer_bytes_or_faster_links_do_not_shorten_the_latency():
    times = flat(solo=0.1, crowd=0.1, cluster=0.15)
    found = exchanges(0.05, 0.04, "world")
    latent = build(times, ranks=2, nodes=2, collectives=found, workload=WORK)
    assert saved(latent, "network")["faster-network"] == pytest.approx(5, abs=0.05)


def test_an_exchange_that_is_pure_latency_is_said_to_be_and_its_bytes_are_left_alone():
    times, work = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.15), {"parameter_bytes": 288}
    found = exchanges(0.05, 0.0499, "world")
    profile = build(times, ranks=4, nodes=2, device="cuda", collectives=found, workload=work)
    advice = advice_for(profile)
    assert "288 B of gradients, of whose 50.0 ms 49.9 ms pass whatever their size" in advice.text
    assert not any("Halve" in step or "Rent a network" in step for step in advice.next_steps)
    assert any("Accumulate" in step for step in advice.next_steps)


def test_what_the_job_does_already_is_not_advised():
    times, accumulating = (
        flat(solo=0.1, crowd=0.1, node=0.2),
        {"loaders": (Loader(kind="map", batches_per_step=4),)},
    )
    assert "accumulate" in saved(build(times, workload={"skips_exchanges": False}))
    assert "accumulate" not in saved(build(times, workload={"skips_exchanges": True}))
    # how it exchanges is unknown
    assert "accumulate" not in saved(build(times, workload=accumulating))
    own_hook = {"precision": "float32", "exchange_hook": "fp16_compress_hook"}
    assert "half-precision" in saved(
        build(times, device="cuda", workload={**own_hook, "exchange_hook": ""})
    )
    assert "half-precision" not in saved(build(times, device="cuda", workload=own_hook))


def test_a_job_that_exchanges_after_every_batch_of_a_step_is_told_to_do_it_once():
    times = flat(solo=0.1, crowd=0.1, node=0.2)
    work = {"loaders": (Loader(kind="map", batches_per_step=4),), "skips_exchanges": False, **WORK}
    text = steps_for(build(times, workload=work, collectives=exchanges(0.025)))
    assert "once for the 4 batches of a step: `with ddp.no_sync():`" in text
    # three exchanges of 25
    assert "all its backward passes but the last; saves about 74.2 ms a step (37%)" in text


def test_a_link_has_one_unit():
    runs = (Collective(scope="world", ranks=2, bytes=4_930_000, seconds=0.1),)
    times, work = flat(solo=0.1, crowd=0.1, cluster=0.2), {"parameter_bytes": 5_000_000}
    advice = advice_for(build(times, nodes=2, collectives=runs, workload=work))
    assert "5.00 MB of gradients at 394 Mbit/s" in advice.text
    assert "twice as much (789 Mbit/s as all-reduce sees it)" in " ".join(advice.next_steps)


def test_a_big_last_bucket_is_named():
    work = {"precision": "bfloat16", "bucket_bytes": (10_000_000, 70_000_000)}
    text = steps_for(build(flat(solo=0.1, crowd=0.1, node=0.2), workload=work))
    assert (
        "bucket_cap_mb=10 to DistributedDataParallel: the last bucket (70.0 MB, 88% of the gradients)"
        in text
    )


def test_contention_names_the_slow_rank_and_what_it_costs():
    profile = build(flat(solo=0.1, crowd=0.15), ranks=4, factors={0: 0.8, 1: 0.8, 3: 0.8})
    advice = advice_for(profile)
    assert (
        "all wait for rank 2, which is 30.0 ms slower than the others (150 ms against 120 ms)"
        in advice.text
    )
    assert advice.next_steps[0].startswith("Look at rank 2 (cpu on node 0)")
    assert "saves about 30.0 ms a step (20%)" in advice.next_steps[0]


def test_transfer_from_pageable_memory_asks_for_pinning():
    work = {"loaders": (Loader(kind="map", workers=2, pin_memory=False),), "sample_bytes": 602112.0}
    advice = advice_for(
        build(flat(resident=0.1, solo=0.12, crowd=0.12), device="cuda", batch=64, workload=work)
    )
    assert advice.stall == "transfer"
    assert "pin_memory=True" in advice.next_steps[0]
    assert "38.5 MB a step at 1.93 GB/s now" in advice.next_steps[1]


def test_a_gpu_computing_in_float32_is_told_of_mixed_precision():
    gpus = (Gpu(index=0, name="Tesla T4"),)
    text = steps_for(
        build(flat(resident=0.1, solo=0.1), ranks=1, device="cuda", host={"gpus": gpus})
    )
    assert "torch.autocast" in text
    # as this one: it has no bfloat16
    assert "(of GPUs before Ampere torch.float16, with a GradScaler)" in text


def test_more_threads_than_cores_are_told_to_be_fewer_where_the_training_thread_waits_for_a_core():
    def steps(delayed: float, others: int = 15) -> str:
        extra = {"step_delays": (delayed / 10,) * 10, "loop_delays": (0.2,) * others}
        return steps_for(
            build(flat(solo=0.1), ranks=1, block_extra={"solo": extra}, host={"cores": 4})
        )

    assert (
        "Use 4 threads per rank, by `torch.set_num_threads` or OMP_NUM_THREADS: 16 share 4 cores now"
        in steps(0.5)
    )
    assert "16 share" not in steps(0.1)
    assert "share 4 cores" not in steps(0.5, others=5)  # threads of Python's own have the same name
