"""Which batches are a step's: loops over the training loader that train, and every form of those that do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks_in_memory import BATCHES, Job, end_reason, epoch, job, orders, seconds_of
from torch.utils.data import DataLoader, TensorDataset

from stash.measure.agent import private, script
from stash.measure.agent.data.feeds import WatchedFeed
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import trial_changes
from stash.measure.agent.wraps.loader import LoaderFeed, Tap
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol.messages import Noted

pytestmark = pytest.mark.usefixtures("one_process_after_the_other")

Evaluation = Callable[[Job, WatchedFeed], None]


def evaluate(one: Job, feed: WatchedFeed) -> int:
    """A loop over the loader that takes 10 s a batch and has no backward pass; how many batches it got."""
    batches = 0
    for _ in epoch(one, feed):
        batches += 1
        one.clock.seconds += 10.0
    return batches


def without_gradients(one: Job, feed: WatchedFeed) -> None:
    is_whole = one.runner.rank.ledger.may_evaluate
    with torch.no_grad():
        got = evaluate(one, feed)
    if one.runner.rank.feeds and one.runner.listens and not is_whole:
        assert got == 1  # as of a validation's loader


def in_inference_mode(one: Job, feed: WatchedFeed) -> None:
    with torch.inference_mode():
        evaluate(one, feed)


def with_gradients(one: Job, feed: WatchedFeed) -> None:
    evaluate(one, feed)


def a_few_batches(one: Job, feed: WatchedFeed) -> None:
    for got, _ in enumerate(epoch(one, feed), 1):
        one.clock.seconds += 10.0
        if got == 3:
            break


FORMS = [without_gradients, in_inference_mode, with_gradients, a_few_batches]


def alike(one: Job, samples: int = 4) -> None:
    """Every step of every block is a step, and nothing else."""
    assert end_reason(one) == "rounds done"
    assert one.blocks()
    for block in one.blocks():
        assert block.step_seconds == pytest.approx(
            (1.0 if block.rung == "solo" else 3.5,) * block.steps
        )
        assert block.step_samples == (samples,) * block.steps
    (feed,) = one.runner.rank.feeds
    assert feed.per_step == samples / 4


@pytest.mark.parametrize("evaluation", FORMS)
def test_an_evaluation_over_the_training_loader_between_epochs_is_no_steps(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    one, feed = job(orders(tmp_path, rounds=6)), WatchedFeed(BATCHES[:5])
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
        evaluation(one, feed)
    alike(one)
    # AND it is shown as time that was not training
    assert sum(block.interrupted_seconds for block in one.blocks()) >= 10.0


@pytest.mark.parametrize("evaluation", [without_gradients, in_inference_mode])
def test_an_evaluation_within_an_epoch_is_no_steps_and_leaves_the_epoch_as_long_as_it_is(
    tmp_path: Path, evaluation: Evaluation
) -> None:
    one, feed = job(orders(tmp_path, rounds=6)), Shared(BATCHES)
    while one.runner.listens:
        begun = one.steps
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
            if one.steps % 3 == 0 and one.runner.listens:
                evaluation(one, feed)
        assert one.steps - begun == len(BATCHES) or not one.runner.listens
    alike(one)


class Shared(WatchedFeed):
    """Loops over it have iterators of their own, as those of a ``DataLoader`` have."""

    def real(self) -> Any:
        if not torch.is_grad_enabled() and not self.is_measured:
            self._beside = getattr(self, "_beside", None) or iter(BATCHES)
            try:
                return next(self._beside)
            except StopIteration:
                self._beside = None
                raise
        return super().real()


def test_a_loop_that_skips_its_first_batches_trains_all_the_same(tmp_path: Path) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    while one.runner.listens:
        for number, (_, mode) in enumerate(epoch(one, feed)):
            if number >= 2:
                one.step(seconds_of(mode))
    assert end_reason(one) == "rounds done"


def test_accumulated_batches_are_all_a_steps(tmp_path: Path) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    while one.runner.listens:
        for number, (_, mode) in enumerate(epoch(one, feed)):
            script.backward_begins()
            if number % 2:
                one.step(seconds_of(mode))
        with_gradients(one, feed)
    alike(one, samples=8)


def test_batches_of_a_loop_that_reads_one_ahead_are_its_steps(tmp_path: Path) -> None:
    one, feed = job(orders(tmp_path, rounds=4)), WatchedFeed(BATCHES)
    while one.runner.listens:
        modes: list[str] = []
        for _, mode in epoch(one, feed):
            if modes:
                one.step(seconds_of(modes[-1]))
            modes.append(mode)
        one.step(seconds_of(modes[-1]))
        if one.runner.listens:
            without_gradients(one, feed)
    assert end_reason(one) == "rounds done"
    assert {round(t, 6) for block in one.blocks() for t in block.step_seconds} == {1.0, 3.5}


def test_a_new_iterator_for_every_step_is_no_evaluation(tmp_path: Path) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    while one.runner.listens:
        loop = epoch(one, feed)
        _, mode = next(loop)
        loop.close()
        one.step(seconds_of(mode))
    alike(one)


def test_a_job_that_reads_what_it_trains_on_without_gradients_has_a_loader_all_the_same(
    tmp_path: Path,
) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    with torch.no_grad():
        while one.runner.listens:
            for _, mode in epoch(one, feed):
                one.step(seconds_of(mode))
    alike(one)


def test_batches_that_another_thread_reads_ahead_are_not_given_by_blocks(tmp_path: Path) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    got: list[str] = []
    one.step(1.0)  # from now on it is known which thread trains
    while one.runner.listens:
        reader = threading.Thread(target=lambda: got.extend(mode for _, mode in epoch(one, feed)))
        reader.start()
        reader.join()
        for _ in BATCHES:
            if one.runner.listens:
                one.step(3.5)
    assert set(got) == {"real"}
    assert {block.rung for block in one.blocks()} == {"solo"}
    assert {t for block in one.blocks() for t in block.step_seconds} == {3.5}
    assert any(
        "a thread of the script's own reads its loader" in m.text
        for m in one.messages()
        if isinstance(m, Noted)
    )


def test_a_job_whose_gradients_come_from_elsewhere_is_not_judged_by_backward_passes(
    tmp_path: Path,
) -> None:
    one, feed = job(orders(tmp_path)), WatchedFeed(BATCHES)
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.clock.seconds += seconds_of(mode)
            one.steps += 1
            if one.runner.listens:
                one.runner.stepped(one.optimizer)
    alike(one)


def test_a_batch_that_is_read_ahead_counts_for_the_step_that_trains_on_it(tmp_path: Path) -> None:
    # GIVEN blocks of single steps, whose first step of an epoch reads two batches and whose last one none
    one, feed = job(orders(tmp_path, rounds=8, most_steps=1)), WatchedFeed(BATCHES[:5])
    while one.runner.listens:
        modes: list[str] = []
        for _, mode in epoch(one, feed):
            if modes:
                one.step(seconds_of(modes[-1]))
            modes.append(mode)
        one.step(seconds_of(modes[-1]))
    alike_in_samples = {block.step_samples for block in one.blocks()}
    assert alike_in_samples == {(4,)}


def test_the_first_batch_of_a_loader_that_is_made_for_every_epoch_is_its_steps(
    tmp_path: Path,
) -> None:
    # GIVEN an epoch that ends while blocks are measured: the next one's loader is not known by its first batch
    one = job(orders(tmp_path, rounds=30, most_steps=2))
    while one.runner.listens:
        for _, mode in epoch(one, WatchedFeed(BATCHES * 5)):
            one.step(seconds_of(mode))
    served = [count for block in one.blocks() for count in block.step_samples]
    assert one.steps > 5 * len(BATCHES)
    assert set(served) == {4}


def test_the_loop_around_an_evaluation_with_gradients_goes_on_where_it_was() -> None:
    # GIVEN a loop over a loader that took two batches, and one within it that took three
    loader = DataLoader(TensorDataset(torch.arange(20.0)), batch_size=4)
    feed = LoaderFeed(loader)
    feed.adopt(tapped(loader))
    feed.open_loop()
    first = [feed.take_next()[0] for _ in range(2)]
    feed.adopt(tapped(loader))
    before = feed.handed
    assert [feed.take_next()[0] for _ in range(3)]
    # WHEN that turns out not to train
    feed.restore(before, 3)
    # THEN the next batch is the first loop's third, and nothing is left over that was asked for
    assert [float(batch[0][0]) for batch in (*first, feed.take_next()[0])] == [0.0, 4.0, 8.0]
    assert (feed.handed.turn, feed.handed.since_step) == (3, 3)
    feed.drain()
    assert feed._used.is_drained


def tapped(loader: Any) -> Any:
    iterator = iter(loader)
    private.set_indices(iterator, Tap(private.index_sampler(iterator), private.indices(iterator)))
    return iterator


def test_in_a_trial_what_an_epochs_first_batch_is_waited_for_is_counted_by_itself(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path, rungs=("warm",), trial={}, trial_seconds=200.0, trial_steps=1_000))

    class Slow:
        """Its workers start again in every epoch."""

        def __iter__(self) -> Iterator[torch.Tensor]:
            one.clock.seconds += 10.0  # only when the first batch is asked for
            yield from BATCHES

    feed = WatchedFeed(Slow())
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
    assert one.blocks()
    assert {second for block in one.blocks() for second in block.step_seconds} == {3.5}


def test_what_stands_in_for_collectives_is_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, feed = job(orders(tmp_path, rungs=("warm",), rounds=1)), WatchedFeed(BATCHES)
    monkeypatch.setattr(scope, "standing_in", 0.0)
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.clock.seconds += 0.25
            scope.standing_in += 0.25
            one.step(seconds_of(mode))
    assert {second for block in one.blocks() for second in block.step_seconds} == {3.5}


def test_what_recording_takes_in_a_trial_is_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(orders(tmp_path, rungs=("warm",), trial={}, trial_seconds=100.0, trial_steps=1_000))
    feed, recorded = WatchedFeed(BATCHES), [0.0]
    monkeypatch.setattr(trial_changes, "own_seconds", lambda: recorded[0])
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.clock.seconds += 0.25
            recorded[0] += 0.25
            one.step(seconds_of(mode))
    assert {second for block in one.blocks() for second in block.step_seconds} == {3.5}


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_what_stash_does_between_the_batches_of_an_evaluation_is_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_ahead: bool
) -> None:
    """Unless there are devices, for which it may have waited."""
    one, pass_by = job(orders(tmp_path)), WatchedFeed.pass_by
    one.clock.runs_ahead = runs_ahead
    seen = list[float]()
    monkeypatch.setattr(one.runner.rank.ledger, "discount", seen.append)

    def pass_slowly(feed: WatchedFeed) -> None:
        one.clock.seconds += 0.25
        pass_by(feed)

    monkeypatch.setattr(WatchedFeed, "pass_by", pass_slowly)
    without_gradients(one, WatchedFeed(BATCHES))
    assert seen.count(0.25) == (0 if runs_ahead else len(BATCHES))


def test_what_telling_of_the_scripts_calls_takes_is_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, handle = job(orders(tmp_path, rungs=("warm",), rounds=1)), Stamps.handle

    def handle_slowly(self: Stamps, event: ThreadEvent, now: float, about: object = None) -> None:
        one.clock.seconds += 0.25 * (event is ThreadEvent.BACKWARD_BEGINS)
        handle(self, event, now, about)

    monkeypatch.setattr(Stamps, "handle", handle_slowly)
    feed = WatchedFeed(BATCHES)
    while one.runner.listens:
        for _, mode in epoch(one, feed):
            one.runner.handle(ThreadEvent.BACKWARD_BEGINS)
            one.step(seconds_of(mode))
    assert {second for block in one.blocks() for second in block.step_seconds} == {3.5}
