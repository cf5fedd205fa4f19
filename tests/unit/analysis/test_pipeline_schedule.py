"""What schedules must leave idle: textbook formulas, orders worked out by hand, and those of PyTorch itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stash.analysis.pipeline_schedule import idle_share, parse_order, simulate_idle_share
from stash.core.records.profile import PipelineSchedule


def schedule(
    name: str, stages: int, ranks: int, microbatches: int, *orders: str
) -> PipelineSchedule:
    return PipelineSchedule(
        name=name, stages=stages, ranks=ranks, microbatches=microbatches, orders=orders
    )


@pytest.mark.parametrize("name", ["ScheduleGPipe", "Schedule1F1B"])
def test_even_schedules_have_the_formula_of_the_textbook(name):
    assert idle_share(schedule(name, 4, 4, 16)) == pytest.approx(3 / 19)
    assert idle_share(schedule(name, 4, 4, 1)) == pytest.approx(3 / 4)


def test_two_ranks_with_one_microbatch_wait_for_each_other():
    # rank 0: F until 1, waits for rank 1's F and B until 4, B until 6; rank 1 is busy from 1 to 4: 6 of 12 are idle
    assert simulate_idle_share([parse_order("0F0 0B0"), parse_order("1F0 1B0")]) == pytest.approx(
        0.5
    )


def test_halves_of_a_backward_pass_fill_what_would_be_idle():
    # rank 0: F 1, I from 3 to 4, W 5; rank 1: F from 1, I 3, W 4: 6 of 10 are busy
    assert simulate_idle_share(
        [parse_order("0F0 0I0 0W0"), parse_order("1F0 1I0 1W0")]
    ) == pytest.approx(0.4)


def test_sends_and_shards_are_no_passes():
    assert parse_order("0UNSHARD 0RECV_F0 0F0 0SEND_F0 (0F1;1B2)OVERLAP_F_B") == [
        (0, "F", 0),
        (0, "F", 1),
        (1, "B", 2),
    ]


def test_orders_that_wait_for_ever_and_unknown_ones_tell_nothing():
    assert simulate_idle_share([parse_order("0B0 0F0"), parse_order("1F0 1B0")]) is None
    assert idle_share(schedule("Theirs", 4, 4, 8)) is None
    assert simulate_idle_share([[], []]) is None


@pytest.mark.parametrize("microbatches", [4, 8, 16])
def test_pytorchs_interleaved_schedule_has_megatrons_share(microbatches):
    """(p - 1) / (v m + p - 1): Narayanan et al., Efficient Large-Scale Language Model Training, 2021, section 2.2."""

    def stage(index: int) -> SimpleNamespace:
        return SimpleNamespace(
            stage_index=index,
            num_stages=8,
            group_size=4,
            group_rank=0,
            is_first=index == 0,
            is_last=False,
            has_backward=True,
            stage_index_to_group_rank={},
            submod=None,
            group=None,
            device="cpu",
        )

    from torch.distributed.pipelining import schedules  # takes a second

    made = schedules.ScheduleInterleaved1F1B(
        [stage(0), stage(4)], microbatches, loss_fn=lambda found, wanted: found
    )
    rows = [
        " ".join(str(each) for each in made.pipeline_order[rank] if each is not None)
        for rank in made.pipeline_order
    ]
    found = idle_share(schedule("ScheduleInterleaved1F1B", 8, 4, microbatches, *rows))
    assert found == pytest.approx(3 / (2 * microbatches + 3))
