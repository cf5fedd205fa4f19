"""Feeds of real loaders: passed on, drained, primed with the same samples, replayed."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stash.measure.agent import private
from stash.measure.agent.data.feeds import FeedAccount, WatchedFeed
from stash.measure.agent.wraps import loader
from stash.measure.agent.wraps.loader import LoaderFeed

pytestmark = pytest.mark.usefixtures("tapped_loaders")


class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index) -> torch.Tensor:
        return torch.tensor(float(index))


class Gated(Numbers):
    """Nothing of it is made but the last half until the gate opens."""

    def __init__(self):
        self.gate = torch.multiprocessing.Event()

    def __getitem__(self, index) -> torch.Tensor:
        assert index >= 6 or self.gate.wait(60)
        return super().__getitem__(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))


def feed_of(loader: DataLoader) -> LoaderFeed:
    """The feed of a loader that trains."""
    feed = LoaderFeed(loader)
    feed.kept = loader  # the feed itself holds it weakly
    feed.adopt(iter(loader))
    return feed


def values(feed: LoaderFeed, count):
    return [feed.take_next()[0].tolist() for _ in range(count)]


def test_a_real_feed_passes_batches_on_keeps_some_and_ends_with_the_epoch():
    feed = feed_of(DataLoader(Numbers(), batch_size=4))
    assert values(feed, 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(StopIteration):
        feed.take_next()[0]
    assert len(feed.ring) == 3


def test_a_feed_that_is_to_go_on_passes_the_end():
    feed = feed_of(DataLoader(Numbers(), batch_size=4))
    feed.open_account(FeedAccount(goes_on=True))
    assert values(feed, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert len(feed.ring) == 4
    assert feed.step_ended() == 16


@pytest.mark.parametrize("workers", [0, 1])
def test_a_feed_reads_on_where_another_loaders_loop_is(workers):
    feed = feed_of(DataLoader(Numbers(), batch_size=4, num_workers=workers))
    values(feed, 3)
    made_again = feed_of(DataLoader(Numbers(), batch_size=4, num_workers=workers))
    values(made_again, 1)
    feed.read_on(made_again)
    assert loader._feed_behind(made_again.source) is feed
    assert values(feed, 1) == [[4, 5, 6, 7]]
    feed.drain()  # no batch that was asked for is waited for twice
    feed.begin_round()
    feed.begin("warm", 3)
    assert len(values(feed, 3)) == 3


def test_what_cannot_be_started_over_goes_on_and_ends_without_an_error():
    feed = WatchedFeed(iter(torch.arange(5.0)))
    feed.begin_round()
    feed.refill(range(3), range(3))
    feed.begin("replay", 3)
    assert [float(feed.take_next()[0]) for _ in range(3)] == [0, 1, 2]
    feed.refill(range(3), range(3))
    feed.refill(range(3), range(3))  # nothing is left: the last ones stay
    feed.begin("replay", 3)
    assert [float(feed.take_next()[0]) for _ in range(3)] == [3, 4, 3]


@pytest.mark.timeout(120)
def test_batches_that_came_before_their_turn_have_a_place_in_the_queue():
    data, order = Gated(), [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]
    feed = feed_of(DataLoader(data, batch_size=1, sampler=order, num_workers=2, prefetch_factor=2))
    get, came = feed.source._get_data, []

    def gotten():
        came.append(get())
        if len(came) == 2:
            data.gate.set()
        return came[-1]

    feed.source._get_data = gotten
    try:
        # GIVEN two batches of the second worker, here before the first worker makes any
        feed.mode = "warm"
        feed._used.tap.ask_only_for([])
        first = values(feed, 1)
        assert [number for number, _ in came] == [1, 3, 0]
        # WHEN more are asked for THEN they come in order, and no more at once than the loader allows
        feed.ask_for(8)
        assert first + values(feed, 7) == [[float(index)] for index in order[:8]]
    finally:
        data.gate.set()
        came.clear()
        private.shut_down(feed.source)


def test_a_stream_starts_over_for_every_block_and_at_its_end():
    feed = feed_of(DataLoader(Stream(), batch_size=2))
    assert feed.kind == "iterable"
    feed.begin("cold", 4)
    assert values(feed, 4) == [[0, 1], [2, 3], [4, 5], [0, 1]]
    feed.refill(range(1, 3), range(1, 3))
    feed.begin("replay", 2)
    assert values(feed, 2) == [[2, 3], [4, 5]]


def test_any_iterable_can_be_restarted_unless_it_is_its_own_iterator():
    assert WatchedFeed([1]).start_over()
    assert not WatchedFeed(iter([1])).start_over()
    feed = WatchedFeed([torch.zeros(2), torch.ones(2)])
    assert feed.consume(5) == 10
