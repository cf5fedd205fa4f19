"""What a round's blocks are supplied with: the same batches step for step, in whatever order the blocks come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stash.core.ladder import Visit, round_of_visits
from stash.measure.agent import private
from stash.measure.agent.data.feeds import ReadingPattern
from stash.measure.agent.runner.block_plan import BlockSize, Plan
from stash.measure.agent.runner.blocks import Supply
from stash.measure.agent.wraps.loader import LoaderFeed

pytestmark = pytest.mark.usefixtures("tapped_loaders")


class Numbers(Dataset):
    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read.append(index)
        return torch.tensor(float(index))


class RoundsOfOneRank:
    """One rank's blocks, without clocks: which batches each measured step trained on."""

    def __init__(
        self,
        replay: BlockSize,
        data: BlockSize,
        cold: BlockSize | None = None,
        workers: int = 0,
        per_step: int = 1,
        shuffle: bool = True,
    ) -> None:
        self.data = Numbers()
        self.loader = DataLoader(self.data, batch_size=1, shuffle=shuffle, num_workers=workers)
        self.feed = LoaderFeed(self.loader)
        self.feed.adopt(iter(self.loader))
        self.feed.learned = ReadingPattern(steps=1, batches=per_step)
        self.feed.take_next()[0]
        self.plan = Plan(replay, data, cold or data, 1.0, 0)
        self.met = 0
        self.others = 1
        """How many times as large the batches of another rank are."""
        self.notes: list[str] = []
        rank = SimpleNamespace(
            feeds=[self.feed],
            device=torch.device("cpu"),
            orders=SimpleNamespace(first_round=0),
            agree=self._agree,
            note=self.notes.append,
        )
        self.supply = Supply(rank, on_device=False)

    def _agree(self, report: Any, decide: Any) -> None:
        self.met += 1
        decide([report, [self.others * size for size in report]])

    def block(self, visit: Visit, number: int) -> list[float]:
        """What the measured steps of a block train on."""
        self.supply.gather_batches(visit, number, self.plan)
        self.data.read.clear()
        self.feed.drain()
        self.supply.serve_block(visit)
        size = self.plan.block_size(visit)
        settle, per_step = visit.lead_in + size.settle, self.feed.per_step
        served = [float(self.feed.take_next()[0]) for _ in range((settle + size.steps) * per_step)]
        self.feed.drain()
        return served[settle * per_step :]


ORDERS = {
    "upwards": round_of_visits(("solo", "crowd", "warm", "cold"), 0, 2),
    "downwards": round_of_visits(("solo", "crowd", "warm", "cold"), 1, 2),
    "replays first": round_of_visits(("solo", "crowd", "warm"), 0, 2),
    "warm first": round_of_visits(("solo", "warm"), 1, 1),
    "without data": round_of_visits(("solo", "crowd"), 0, 2),
}
EVEN = (BlockSize(1, 4), BlockSize(1, 4))
SHORT_REPLAYS = (BlockSize(1, 2), BlockSize(4, 8))
LONG_SETTLE = (BlockSize(2, 4), BlockSize(1, 4))
LONG_COLD = (BlockSize(0, 2), BlockSize(1, 2), BlockSize(4, 6))
SIZES = {
    "even": EVEN,
    "short replays": SHORT_REPLAYS,
    "long settle": LONG_SETTLE,
    "long cold": LONG_COLD,
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("per_step", [1, 2])
def test_every_block_of_a_round_trains_on_the_same_batches_and_no_two_rounds_do(
    order: tuple[Visit, ...], sizes: tuple[BlockSize, ...], per_step: int
) -> None:
    one, seen = RoundsOfOneRank(*sizes, per_step=per_step), set[float]()
    for number in range(3):
        trained = [one.block(visit, number) for visit in order]
        shortest = min(map(len, trained))
        assert len({tuple(steps[:shortest]) for steps in trained}) == 1
        assert not seen & set(trained[0])
        seen |= set(trained[0])
    assert one.met == 3


def test_rounds_of_batches_that_take_turns_begin_anywhere_in_a_turn() -> None:
    (visit,) = round_of_visits(("solo",), 0, 1)
    one = RoundsOfOneRank(*EVEN, shuffle=False)
    firsts = [int(one.block(visit, number)[0]) for number in range(40)]
    for turn in (2, 3, 6):  # a round without gaps takes six of the sampler's lists
        assert {first % turn for first in firsts} == set(range(turn))


def test_ranks_that_wait_for_the_largest_batch_of_a_step_are_told_apart_from_a_slow_exchange() -> (
    None
):
    (visit,) = round_of_visits(("solo",), 0, 1)
    even, uneven = RoundsOfOneRank(*EVEN), RoundsOfOneRank(*EVEN)
    uneven.others = 3
    for number in range(2):
        even.block(visit, number)
        uneven.block(visit, number)
    assert even.notes == []
    assert len(uneven.notes) == 1
    assert "the largest of a step has 1.50 times their mean size" in uneven.notes[0]


@pytest.mark.timeout(120)
def test_batches_of_workers_are_the_same_too() -> None:
    one, visits = (
        RoundsOfOneRank(BlockSize(1, 3), BlockSize(2, 4), workers=2),
        round_of_visits(("solo", "cold", "warm"), 0, 1),
    )
    try:
        for number in range(2):
            trained = {visit.rung: one.block(visit, number) for visit in visits}
            assert trained["cold"] == trained["warm"]
            assert trained["solo"] == trained["warm"][:3]
    finally:
        private.shut_down(one.feed.source)


def test_what_a_warm_block_reads_was_read_before_though_there_is_no_cold_one() -> None:
    one = RoundsOfOneRank(BlockSize(1, 2), BlockSize(3, 4))
    (visit,) = round_of_visits(("warm",), 0, 1)
    for number in range(2):
        one.supply.gather_batches(visit, number, one.plan)
        before = set(one.data.read)
        one.block(visit, number)
        assert set(one.data.read) <= before
