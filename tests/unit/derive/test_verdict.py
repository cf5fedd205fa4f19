"""What Stash says about a breakdown, and the steps that follow from its numbers."""

from __future__ import annotations

import pytest
from profile_builder import build

from stash.base.records import Collective, Gpu, Loader, Rate
from stash.derive.advise import verdict
from stash.derive.stalls import attribute


def flat(rounds: int = 3, **times: float) -> dict[str, list[float]]:
    return {name: [value] * rounds for name, value in times.items()}


def advice_for(profile):
    return verdict(attribute(profile), profile)


def steps_for(profile) -> str:
    return " ".join(advice_for(profile).next_steps)


def test_without_stalls_the_verdict_is_compute():
    advice = advice_for(build(flat(solo=0.1, crowd=0.101, node=0.102)))
    assert advice.stall == "compute"
    assert (
        advice.text == "Compute takes 100 ms of every 102 ms step (98%); no stall beyond the noise reaches 3% of it."
    )


def test_the_largest_stall_dominates_even_if_compute_is_larger():
    advice = advice_for(build(flat(solo=0.1, crowd=0.105, node=0.12)))
    assert advice.stall == "interconnect"
    assert advice.text.startswith("The interconnect stall takes 15.0 ms of every 120 ms step (12%)")


def test_a_stall_within_the_noise_does_not_dominate():
    times = {"solo": [0.10, 0.10, 0.10, 0.10], "crowd": [0.10, 0.14, 0.08, 0.12]}
    assert advice_for(build(times)).stall == "compute"


def test_a_single_round_is_told_as_such():
    assert "single round" in advice_for(build(flat(1, solo=0.1, crowd=0.2))).text


def test_at_most_three_steps_are_given_the_most_valuable_first():
    runs = (Collective(scope="world", ranks=4, bytes=100_000_000, seconds=0.12),)
    work = {"precision": "float32", "bucket_bytes": (10_000_000, 90_000_000)}
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    advice = advice_for(build(times, ranks=4, nodes=2, collectives=runs, workload=work))
    assert advice.stall == "network"
    assert len(advice.next_steps) == 3
    # accumulation saves 3/4 of the 100 ms stall, half the bytes half of the 120 ms exchange
    assert "no_sync" in advice.next_steps[0]
    assert "saves up to 75.0 ms a step (38%)" in advice.next_steps[0]
    assert "fp16_compress_hook" in advice.next_steps[1]
    assert "saves up to 60.0 ms a step (30%)" in advice.next_steps[1]


def test_half_precision_gradients_are_not_told_to_be_halved():
    times = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
    assert "fp16" not in steps_for(build(times, ranks=4, nodes=2, workload={"precision": "bfloat16"}))


def test_a_big_last_bucket_is_named():
    work = {"precision": "bfloat16", "bucket_bytes": (10_000_000, 70_000_000)}
    text = steps_for(build(flat(solo=0.1, crowd=0.1, node=0.2), workload=work))
    assert "bucket_cap_mb to 10: the last bucket (70.0 MB, 88% of the gradients)" in text


PREP = {"solo": 0.1, "crowd": 0.1, "node": 0.1, "warm": 0.2}


def _prep(work_per_step: float, workers: int, cores: int):
    return build(
        flat(**PREP),
        block_extra={"warm": {"fetch_seconds": work_per_step * 10}},
        workload={"loaders": (Loader(kind="map", workers=workers),)},
        host={"cores": cores},
    )


def test_prep_asks_for_the_workers_that_would_hide_it():
    # 360 ms of one worker, hidden behind 100 ms of training: 3.6 workers, 4 with headroom
    assert (
        "num_workers=4 instead of 2 (preparing a step takes 360 ms of one worker, training it 100 ms)"
        in steps_for(_prep(0.36, 2, 16))
    )


def test_prep_asks_for_cores_where_workers_have_none():
    advice = advice_for(_prep(0.36, 1, 6))  # 3 cores per rank: room for 2 workers, 180 ms of loading, 20 saved
    text = " ".join(advice.next_steps)
    assert "Rent 5 cores per device instead of 3, for num_workers=4" in text
    assert "Use num_workers=2 instead of 1, all that 3 cores per device allow; saves up to 20.0 ms" in text


def test_prep_with_workers_enough_asks_for_cores_of_their_own():
    assert "Keep num_workers=4, which would suffice" in steps_for(_prep(0.2, 4, 16))


def test_without_worker_times_the_loaders_rate_tells_the_workers():
    rates = tuple(Rate(feed="warm", rank=r, round=3, samples=80, seconds=2.0) for r in range(2))
    profile = build(flat(**PREP), rates=rates, workload={"loaders": (Loader(kind="map", workers=1),)})
    advice = advice_for(profile)  # 16 samples at 80/s: 200 ms of one worker behind 100 ms
    assert "the loaders prepare 80.0 samples/s, the devices could train 160 samples/s" in advice.text
    assert "num_workers=3 instead of 1" in " ".join(advice.next_steps)


def test_a_loader_of_unknown_kind_gets_no_number_of_workers():
    profile = build(flat(**PREP), workload={"loaders": (Loader(kind="watched"),)})
    assert "num_workers" not in steps_for(profile)


FETCH = {**PREP, "warm": 0.1, "cold": 0.2}


def _fetch(samples: int):
    return build(
        flat(**FETCH),
        workload={"loaders": (Loader(kind="map", workers=2, samples=samples),), "sample_disk_bytes": 1e5},
        rates=tuple(Rate(feed="cold", rank=r, round=3, samples=80, seconds=2.0) for r in range(2)),
        host={"memory_bytes": 32 * 10**9},
    )


def test_a_data_set_that_fits_into_memory_is_to_be_read_once():
    advice = advice_for(_fetch(100_000))
    assert advice.stall == "fetch"
    assert "its 10.0 GB fit into a node's memory (32.0 GB)" in advice.next_steps[0]
    assert "saves up to 100 ms a step (50%)" in advice.next_steps[0]


def test_a_data_set_that_does_not_fit_asks_for_memory_or_a_disk():
    text = steps_for(_fetch(1_000_000))
    assert "Choose nodes with 143 GB of memory" in text
    # 16 samples of 100 kB in 100 ms against 80 samples/s measured
    assert "a disk that delivers 16.0 MB/s to each node (8.00 MB/s measured)" in text


def test_small_files_are_to_be_packed():
    profile = build(flat(**FETCH), block_extra={"cold": {"files": 100, "file_bytes": 2_000_000}})
    assert "Pack the small files (20.0 kB on average)" in steps_for(profile)


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


def _hiding(loader_rate: float):
    """Interconnect 100 of 200 ms; 16 samples a step from loaders of the given rate per rank."""
    rates = tuple(Rate(feed="warm", rank=r, round=3, samples=80, seconds=80 / loader_rate) for r in range(2))
    return build(flat(solo=0.1, crowd=0.1, node=0.2, warm=0.2), rates=rates)


def test_what_surfaces_next_is_said_and_limits_what_is_saved():
    advice = advice_for(_hiding(16 / 2 / 0.14))  # loaders alone: 140 ms a step, so at most 60 of 100 ms are won
    assert "Removing it leaves a prep stall of 40.0 ms, hidden behind it now." in advice.text
    assert "saves up to 60.0 ms a step (30%)" in advice.next_steps[0]
    assert advice.next_steps[-1].startswith("Then, against prep: use num_workers=2 instead of 1")


def test_a_hidden_stall_that_eats_most_of_the_gain_comes_first():
    advice = advice_for(_hiding(16 / 2 / 0.19))
    assert advice.next_steps[0].startswith("First, against prep:")
    assert "saves up to 10.0 ms a step (5%)" in advice.next_steps[1]


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_step_is_a_sentence(rounds):
    for times in (PREP, FETCH, {"solo": 0.1, "crowd": 0.2}, {"solo": 0.1}):
        advice = advice_for(build(flat(rounds, **times)))
        assert advice.next_steps
        for text in (advice.text, *advice.next_steps):
            assert text[0].isupper()
            assert text.endswith(".")
            assert ".." not in text
