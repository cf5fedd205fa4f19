"""What other work cost steps: worked out by hand for one rank and two, with loaders, limits and sleeping samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stash.analysis.attribution import attribute
from stash.analysis.disturbance import Calming, Disturbance, drop_delays, remove_disturbance
from stash.core.intervals import Interval
from stash.core.measured import Block
from stash.core.records.profile import Loader, Profile
from tests.support.breakdowns import drop_blocks
from tests.support.profile_builder import build

STEPS = 4


def profile(
    *blocks: Block, ranks: int = 1, workers: int = 0, device: str = "cpu", **changes: Any
) -> Profile:
    rungs = tuple(dict.fromkeys(block.rung for block in blocks))
    made = build(
        {name: [1.0] for name in rungs},
        ranks=ranks,
        device=device,
        host={"cores": 2},
        block_extra={},
        workload={"loaders": (Loader(kind="map", workers=workers),)},
        **changes,
    )
    return made.model_copy(update={"blocks": blocks})


def block(
    rung: str = "solo", rank: int = 0, step: float = 0.1, delay: float = 0.0, **fields: Any
) -> Block:
    """Of four steps; its thread runs whenever it is neither delayed nor said to do something else."""
    known = {
        "cpu_seconds": STEPS * (step - delay),
        "thread_cpu_seconds": STEPS * (step - delay),
        "machine_cpu_seconds": STEPS * (step - delay),
        **fields,
    }
    return Block(
        round=0,
        rung=rung,
        rank=rank,
        steps=STEPS,
        seconds=STEPS * step,
        step_seconds=(step,) * STEPS,
        step_delays=(delay,) * STEPS,
        **known,
    )


def seconds(found: Profile, rung: str = "solo", rank: int = 0) -> float:
    """Of a step, without what strangers cost."""
    return next(
        b.seconds / b.steps
        for b in remove_disturbance(found).profile.blocks
        if (b.rung, b.rank) == (rung, rank)
    )


def test_what_strangers_alone_can_have_caused_is_subtracted_whole():
    busy = block(step=0.1, delay=0.04, machine_cpu_seconds=STEPS * 0.2)
    assert seconds(profile(busy)) == pytest.approx(0.06)


def test_without_delays_or_other_programs_nothing_is_subtracted():
    unknown = replace(block(step=0.1, delay=0.04, machine_cpu_seconds=STEPS * 0.2), step_delays=())
    assert seconds(profile(unknown)) == pytest.approx(0.1)
    assert seconds(profile(block(step=0.1, delay=0.04))) == pytest.approx(0.1)


def test_the_jobs_own_loaders_keep_their_share():
    """Strangers used as much of the cores as the workers did: half of the delay is the job's."""
    own = {
        "worker_cpu_seconds": STEPS * 0.05,
        "worker_delay_seconds": 0.0,
        "fetch_seconds": STEPS * 0.05,
    }
    busy = block(
        "warm", step=0.2, delay=0.1, machine_cpu_seconds=STEPS * (0.1 + 0.05 + 0.05), **own
    )
    assert seconds(profile(busy, workers=1), "warm") == pytest.approx(0.15)


def test_more_ranks_than_cores_are_the_jobs_own_contention():
    """Three ranks on two cores that no other program uses but for a tenth of one."""
    crowd = [
        block("crowd", rank, step=0.15, delay=0.05, machine_cpu_seconds=STEPS * (0.3 + 0.015))
        for rank in range(3)
    ]
    assert seconds(profile(*crowd, ranks=3), "crowd") > 0.14


def test_what_the_jobs_own_limit_caused_is_never_subtracted():
    busy = {"machine_cpu_seconds": STEPS * 0.2}
    throttled = block(step=0.1, delay=0.04, throttled_seconds=STEPS * 0.04, **busy)
    assert seconds(profile(throttled)) == pytest.approx(0.1)
    half = block(step=0.1, delay=0.04, throttled_seconds=STEPS * 0.02, **busy)
    assert seconds(profile(half)) == pytest.approx(0.08)


def exchanging(rank: int, window: float, delay: float, ran: float) -> Block:
    """Steps of 100 ms beside a machine full of strangers; ``window`` is spent waiting for the exchange."""
    return block(
        "node",
        rank,
        step=0.1,
        delay=delay,
        step_exchanges=(window,) * STEPS,
        step_exchange_delays=(0.0,) * STEPS,
        thread_cpu_seconds=STEPS * ran,
        cpu_seconds=STEPS * ran,
        machine_cpu_seconds=STEPS * 0.2,
    )


def test_of_ranks_in_step_the_last_one_counts():
    """Rank 1 is delayed by 40 ms and rank 0 waits for it: both steps get 40 ms shorter, not rank 1's alone."""
    found = profile(exchanging(0, 0.05, 0.0, 0.05), exchanging(1, 0.01, 0.04, 0.05), ranks=2)
    assert seconds(found, "node", 0) == pytest.approx(0.06)
    assert seconds(found, "node", 1) == pytest.approx(0.06)


def test_a_rank_that_would_have_waited_gains_nothing():
    """Rank 0 is delayed, and yet earlier than rank 1, which is slow by itself."""
    found = profile(exchanging(0, 0.04, 0.02, 0.04), exchanging(1, 0.01, 0.0, 0.09), ranks=2)
    assert seconds(found, "node", 0) == pytest.approx(0.1)


def test_what_ranks_wait_for_one_that_is_delayed_is_no_part_of_their_exchange():
    """Rank 0 waits 50 ms in collectives, 40 of them for rank 1: without strangers both wait 10 of a step of 60."""
    waits = [{"tp/all_reduce": STEPS * 0.05}, {"tp/all_reduce": STEPS * 0.01}]
    pair = exchanging(0, 0.05, 0.0, 0.05), exchanging(1, 0.01, 0.04, 0.05)
    blocks = [
        replace(b, group_waits=w, group_under_way=w) for b, w in zip(pair, waits, strict=True)
    ]
    for calm in remove_disturbance(profile(*blocks, ranks=2)).profile.blocks:
        assert calm.seconds / STEPS == pytest.approx(0.06)
        assert calm.group_waits["tp/all_reduce"] / STEPS == pytest.approx(0.01)
        assert calm.group_under_way == pytest.approx(calm.group_waits)


def test_samples_that_sleep_come_no_earlier():
    """A worker sleeps 95 ms for every batch: of a step of 100 ms no more than 5 can be lost to others."""
    sleeping = block(
        "warm",
        step=0.1,
        delay=0.04,
        machine_cpu_seconds=STEPS * 0.2,
        wait_seconds=STEPS * 0.05,
        step_waits=(0.05,) * STEPS,
        step_wait_delays=(0.0,) * STEPS,
        worker_cpu_seconds=0.0,
        worker_delay_seconds=0.0,
        fetch_seconds=STEPS * 0.095,
    )
    assert seconds(profile(sleeping, workers=1), "warm") == pytest.approx(0.095)


def test_a_loader_that_stalls_every_fourth_step_is_a_stall():
    """No step is an outlier by its own length: three of 60 ms and one of 140 are steps of 80."""
    quick = block("solo", step=0.06)
    steps = (0.06, 0.06, 0.06, 0.14)
    waits = replace(
        block("warm", step=0.08),
        step_seconds=steps,
        wait_seconds=0.08,
        step_waits=(0.0, 0.0, 0.0, 0.08),
    )
    breakdown = attribute(profile(quick, waits, workers=1))
    prep = breakdown.stall("prep")
    assert prep.seconds == pytest.approx(0.02)


def test_of_delays_of_threads_that_share_parallel_loops_half_is_taken_off_and_is_doubt():
    """Of 100 ms the training thread lost 40 to others, and the thread beside it 30 more, or at the same time."""
    busy = {"machine_cpu_seconds": STEPS * 0.2, "loop_delays": (STEPS * 0.01, STEPS * 0.03)}
    late = profile(block(step=0.1, delay=0.04, **busy))
    assert seconds(late) == pytest.approx(0.06 - 0.015)
    lost = remove_disturbance(late).lost
    assert next(iter(lost.values()))[0].doubt >= 0.015


def test_what_two_rungs_have_in_common_of_parallel_loops_is_no_doubt_of_a_stall():
    """3 and 4 s of doubt are each rung's own, 4 and 3 of loops."""
    found = Disturbance(
        time=Interval(value=1.0),
        doubts={"solo": 3.0, "warm": 4.0},
        loop_doubts={"solo": 4.0, "warm": 3.0},
    )
    assert found.doubt == 5.0
    assert found.corrections() == {"compute": pytest.approx(5.0), "prep": pytest.approx(26**0.5)}


def test_an_accelerators_host_may_be_delayed_at_no_cost():
    """Nor do its threads."""
    busy = {"machine_cpu_seconds": STEPS * 0.2, "loop_delays": (STEPS * 0.05,)}
    assert seconds(profile(block(step=0.1, delay=0.04, **busy), device="cuda")) == pytest.approx(
        0.1
    )


@pytest.mark.parametrize(
    ("input_seconds", "expected"), [(STEPS * 0.04, 0.06), (STEPS * 0.01, 0.09), (0.0, 0.1)]
)
def test_of_a_delayed_wait_an_accelerator_loses_what_its_queue_ran_dry_for(input_seconds, expected):
    late = block(
        step=0.1, delay=0.04, step_wait_delays=(0.04,) * STEPS, machine_cpu_seconds=STEPS * 0.2
    )
    seen = replace(late, stage_seconds={"input": input_seconds, "forward": STEPS * 0.06})
    assert seconds(profile(seen, device="cuda")) == pytest.approx(expected)


def test_what_was_subtracted_once_is_not_subtracted_again():
    found = profile(block(step=0.1, delay=0.04, machine_cpu_seconds=STEPS * 0.2))
    calm = remove_disturbance(found)
    again = remove_disturbance(calm.profile)
    assert again.profile.blocks == calm.profile.blocks
    assert not again.lost


def test_while_it_is_measured_earlier_rounds_are_kept_and_nothing_else_differs():
    rounds = [
        replace(
            block(name, step=0.1 + at / 100, delay=0.04, machine_cpu_seconds=STEPS * 0.2), round=at
        )
        for at in range(4)
        for name in ("solo", "warm")
    ]
    calming = Calming()
    whole = profile(*rounds)
    for count in (1, 2, 5, 8, 8):
        so_far = whole.model_copy(update={"blocks": tuple(rounds[:count])})
        assert calming.calm_profile(so_far) == remove_disturbance(so_far)
    left_out = drop_blocks(whole, lambda block: block.rung != "solo")
    assert calming.calm_profile(left_out) == remove_disturbance(left_out)


def test_a_breakdown_tells_what_was_lost_beside_its_stalls():
    found = profile(block(step=0.1, delay=0.04, machine_cpu_seconds=STEPS * 0.2))
    breakdown = attribute(found)
    assert breakdown.step_seconds == pytest.approx(0.06)
    assert breakdown.disturbed.time.value == pytest.approx(0.04)
    seen = attribute(drop_delays(found))
    assert seen.disturbed is None
    assert seen.step_seconds == pytest.approx(0.1)


def test_what_was_seen_is_in_doubt_by_what_was_subtracted_from_it():
    waits = [{"tp/all_reduce": STEPS * 0.05}, {"tp/all_reduce": STEPS * 0.01}]
    pair = exchanging(0, 0.05, 0.0, 0.05), exchanging(1, 0.01, 0.04, 0.05)
    blocks = [replace(b, group_waits=w) for b, w in zip(pair, waits, strict=True)]
    job = profile(
        *blocks,
        ranks=2,
        skipped=dict.fromkeys(("solo", "crowd"), "the model is divided among ranks"),
    )
    found = attribute(job)
    interconnect = found.stall("interconnect")
    disturbed = found.disturbed
    assert interconnect.parts.correction == disturbed.doubts["node"] > 0
