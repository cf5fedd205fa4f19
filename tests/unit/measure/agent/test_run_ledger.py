"""The table of the ledger by pencil: each second of a training thread in one row, and all of them the wall."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stash.core.ledger_rows import (
    BACKWARD,
    CHECKPOINT,
    COLLECTIVE,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    INPUT,
    LOOP,
    OPTIMIZER,
    OTHER,
)
from stash.measure.agent.runner.ledger_keeper import (
    LedgerKeeper,
    ModelCalls,
    SavingClock,
    _take_out_looks,
)
from stash.measure.agent.runner.run_ledger import RunLedger
from stash.measure.agent.thread_events import ThreadEvent

TRAIN, TEST = object(), object()


class Thread:
    """A training thread that takes as long as a test says."""

    def __init__(self) -> None:
        self.now, self.ledger = 100.0, RunLedger(90.0)  # the process is 10 s old

    def tell(self, event: ThreadEvent, after: float = 0.0, loader: object = TRAIN) -> None:
        self.now += after
        self.ledger.handle(event, self.now, loader)

    def step(self, wait: float = 0.5) -> None:
        """On the next batch: forward 1, backward 2, optimizer 0.25."""
        self.tell(ThreadEvent.BATCH_ASKED)
        self.tell(ThreadEvent.BATCH_GIVEN, wait)
        self.pass_and_step()

    def pass_and_step(self) -> None:
        self.tell(ThreadEvent.BACKWARD_BEGINS, 1.0)
        self.tell(ThreadEvent.BACKWARD_ENDED, 2.0)
        self.tell(ThreadEvent.STEPPED, 0.25)
        self.tell(ThreadEvent.SCRIPT_GOES_ON, 0.125)

    def rows(self) -> dict[str, float]:
        return {row: seconds for row, seconds in self.ledger.settle(self.now).items() if seconds}


@pytest.fixture
def thread() -> Thread:
    """One that has taken its first step: 10 s to import, 3 until its first batch, a step of 3.25."""
    found = Thread()
    found.tell(ThreadEvent.ITERATOR_ASKED)
    found.tell(ThreadEvent.BATCH_ASKED)
    found.tell(ThreadEvent.BATCH_GIVEN, 3.0)
    found.pass_and_step()
    return found


def test_a_process_starts_up_until_its_first_step_and_its_first_epoch_is_known_by_itself(
    thread: Thread,
) -> None:
    assert thread.rows() == {"start-up": 16.25, "other": 0.125}
    assert thread.ledger.occurrences[EPOCH_START] == [(0, 3.0)]


def test_the_rows_of_steps_are_the_wall(thread: Thread) -> None:
    for _ in range(2):
        thread.now += 0.75  # logging
        thread.step()
    rows = thread.rows()
    assert rows == {
        "start-up": 16.25,
        "other": 0.375,
        LOOP: 1.5,
        INPUT: 1.0,
        "forward": 2.0,
        "backward": 4.0,
        "optimizer": 0.5,
    }
    assert sum(rows.values()) == thread.now - 90.0


def test_an_epoch_starts_from_its_iterator_to_its_first_batch(thread: Thread) -> None:
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.5)
    thread.tell(ThreadEvent.ITERATOR_ASKED, 0.25)
    thread.tell(ThreadEvent.BATCH_ASKED, 1.0)
    thread.tell(ThreadEvent.BATCH_GIVEN, 1.0)
    thread.pass_and_step()
    assert thread.ledger.occurrences[EPOCH_START] == [(0, 3.0), (1, 2.0)]
    assert (thread.rows()[EPOCH_END], thread.rows()[INPUT]) == (0.25, 0.5)
    assert thread.ledger.occurrences[EPOCH_END] == [(1, 0.25)]


def test_the_scripts_own_code_between_epochs_goes_on_after_an_evaluation(thread: Thread) -> None:
    """0.25 s of metrics, 2 of validation, 0.5 of logging, and the next epoch."""
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.LOOP_ENDED)
    thread.tell(ThreadEvent.EVALUATION_ASKED, 0.25, TEST)
    thread.tell(ThreadEvent.LOOP_ENDED, 2.0, TEST)
    thread.tell(ThreadEvent.ITERATOR_ASKED, 0.5)
    thread.tell(ThreadEvent.BATCH_GIVEN, 1.0)
    thread.pass_and_step()
    thread.now += 0.125
    thread.step()
    rows = thread.rows()
    assert (rows[EPOCH_END], rows[EVALUATION], rows[EPOCH_START], rows[LOOP]) == (
        0.75,
        2.0,
        1.0,
        0.125,
    )
    assert thread.ledger.occurrences[EPOCH_END] == [(1, 0.25), (1, 0.5)]


@pytest.mark.parametrize("is_known", [True, False])
def test_what_follows_an_evaluation_is_no_steps_where_the_loader_ended_ahead_of_its_last_step(
    thread: Thread, is_known: bool
) -> None:
    """As Accelerate's loaders, which hold the last batch by then: 2 s of validation, 0.5 of scores."""
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.5)
    thread.pass_and_step()
    if is_known:
        thread.tell(ThreadEvent.EVALUATION_ASKED, 0.0, TEST)
    else:
        thread.tell(ThreadEvent.ITERATOR_ASKED, 0.0, TEST)
        for event in (ThreadEvent.BATCH_ASKED, ThreadEvent.BATCH_GIVEN) * 2:
            thread.tell(event, 0.0, TEST)
        thread.tell(ThreadEvent.BATCH_ASKED, 0.0, TEST)
    thread.tell(ThreadEvent.LOOP_ENDED, 2.0, TEST)
    thread.tell(ThreadEvent.ITERATOR_ASKED, 0.5)
    thread.step()
    thread.now += 0.125
    rows = thread.rows()
    assert (rows[EPOCH_END], rows[EVALUATION], rows.get(LOOP, 0.0)) == (0.5, 2.0, 0.125)


def test_the_end_of_another_loader_in_an_epoch_is_no_epochs_end(thread: Thread) -> None:
    thread.tell(ThreadEvent.BATCH_ASKED, 0.0, TEST)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.0, TEST)
    thread.tell(ThreadEvent.BATCH_ASKED, 0.5)
    thread.tell(ThreadEvent.BATCH_GIVEN, 0.25)
    thread.pass_and_step()
    assert (thread.rows()[LOOP], thread.rows()[INPUT]) == (0.5, 0.25)
    assert not thread.rows().get(EPOCH_END)
    assert not thread.ledger.occurrences[EPOCH_END]


@pytest.mark.parametrize("gradients", [False, True])
def test_a_loop_without_a_backward_pass_is_an_evaluation(thread: Thread, gradients: bool) -> None:
    asks = (
        (ThreadEvent.ITERATOR_ASKED, ThreadEvent.BATCH_ASKED)
        if gradients
        else (ThreadEvent.EVALUATION_ASKED,) * 2
    )
    thread.tell(asks[0], 0.5, TEST)
    for _ in range(3):
        thread.tell(asks[1], 1.0, TEST)
        thread.tell(ThreadEvent.BATCH_GIVEN, 0.25, TEST)
    thread.tell(asks[1], 1.0, TEST)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.0, TEST)
    thread.step()
    assert thread.rows()[EVALUATION] == 4.75
    assert thread.ledger.occurrences[EVALUATION] == [(1, 4.75)]
    assert len(thread.ledger.occurrences[EPOCH_START]) == 1
    assert (thread.rows()[LOOP], thread.rows()[INPUT], thread.rows()["forward"]) == (0.5, 0.5, 1.0)


def test_an_iterator_taken_with_gradients_and_read_without_is_an_evaluation(thread: Thread) -> None:
    thread.tell(ThreadEvent.ITERATOR_ASKED, 0.0, TEST)
    thread.tell(ThreadEvent.EVALUATION_ASKED, 2.0, TEST)
    thread.tell(ThreadEvent.BATCH_GIVEN, 1.0, TEST)
    thread.step()
    assert thread.rows()[EVALUATION] == 3.0
    assert len(thread.ledger.occurrences[EPOCH_START]) == 1


def test_two_loaders_of_one_step_are_no_evaluation(thread: Thread) -> None:
    for loader in (TRAIN, TEST):
        thread.tell(ThreadEvent.ITERATOR_ASKED, 0.0, loader)
    for loader in (TRAIN, TEST):
        thread.tell(ThreadEvent.BATCH_ASKED, 0.0, loader)
        thread.tell(ThreadEvent.BATCH_GIVEN, 1.0, loader)
    thread.pass_and_step()
    assert EVALUATION not in thread.rows()


def test_passes_that_accumulate_are_followed_by_the_scripts_own_lines(thread: Thread) -> None:
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.BATCH_GIVEN)
    thread.tell(ThreadEvent.BACKWARD_BEGINS, 1.0)
    thread.tell(ThreadEvent.BACKWARD_BEGINS, 0.5)  # recomputing what was not kept
    thread.tell(ThreadEvent.BACKWARD_ENDED, 0.5)
    thread.tell(ThreadEvent.BACKWARD_ENDED, 1.0)
    thread.tell(ThreadEvent.BATCH_ASKED, 0.75)
    rows = thread.rows()
    assert (rows["backward"], rows[LOOP]) == (2.0, 0.75)
    assert "optimizer" not in rows


def test_between_two_passes_without_an_update_is_a_forward_pass(thread: Thread) -> None:
    """Of another loss of the same batch, or of the next part of a batch that no loader hands out."""
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.BATCH_GIVEN)
    for _ in range(2):
        thread.tell(ThreadEvent.BACKWARD_BEGINS, 1.5)
        thread.tell(ThreadEvent.BACKWARD_ENDED, 2.0)
    thread.tell(ThreadEvent.UPDATE_BEGINS, 0.25)
    thread.tell(ThreadEvent.STEPPED, 0.5)
    rows = thread.rows()
    assert (rows["forward"], rows["backward"], rows["optimizer"]) == (3.0, 4.0, 0.75)
    assert thread.ledger.before_updates == 0.25


def test_a_second_optimizers_pass_over_the_same_batch_is_no_loop(thread: Thread) -> None:
    thread.step()
    thread.pass_and_step()  # what it trains, by its own pass
    thread.now += 0.75  # logging
    thread.step()
    assert (thread.rows()["forward"], thread.rows()[LOOP]) == (3.0, 0.75)
    assert thread.ledger.second_passes == 1.0


def test_saving_collecting_and_compiling_interrupt_what_goes_on_and_begin_nothing_new(
    thread: Thread,
) -> None:
    thread.tell(ThreadEvent.EVALUATION_ASKED, 0.0, TEST)
    for begins, ends in (
        (ThreadEvent.SAVE_BEGINS, ThreadEvent.SAVE_ENDED),
        (ThreadEvent.COLLECTION_BEGINS, ThreadEvent.COLLECTION_ENDED),
        (ThreadEvent.COMPILATION_BEGINS, ThreadEvent.COMPILATION_ENDED),
    ):
        thread.tell(begins, 1.0)
        thread.tell(ends, 2.0)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.5, TEST)
    rows = thread.rows()
    assert rows[EVALUATION] == 3.5
    assert rows[CHECKPOINT] == rows[COLLECTOR] == rows[COMPILATION] == 2.0
    assert {row: len(seen) for row, seen in thread.ledger.occurrences.items()} == {
        EPOCH_START: 1,
        EPOCH_END: 0,
        EVALUATION: 1,
        CHECKPOINT: 1,
        COLLECTOR: 1,
        COMPILATION: 1,
    }


def test_clearing_gradients_is_the_updates_and_not_the_loops(thread: Thread) -> None:
    before = thread.rows()
    thread.tell(ThreadEvent.CLEARING_BEGINS, 0.5)
    thread.tell(ThreadEvent.CLEARING_ENDED, 2.0)
    thread.now += 0.25
    assert thread.rows() == {**before, LOOP: 0.75, OPTIMIZER: 2.0}


def test_a_second_pass_begins_before_gradients_are_cleared(thread: Thread) -> None:
    thread.step()
    before = thread.rows()
    thread.tell(ThreadEvent.CLEARING_BEGINS, 0.5)  # the generator has made its pictures
    thread.tell(ThreadEvent.CLEARING_ENDED, 2.0)
    thread.pass_and_step()
    rows = thread.rows()
    assert (rows["forward"] - before["forward"], LOOP in rows) == (1.5, False)
    assert rows[OPTIMIZER] - before[OPTIMIZER] == 2.25


def test_what_stash_itself_did_is_no_row_of_the_scripts(thread: Thread) -> None:
    before = thread.rows()
    thread.now += 0.5
    thread.ledger.discount(0.125)
    thread.tell(ThreadEvent.ITERATOR_ASKED)
    thread.now += 1.0
    thread.ledger.discount(0.25)
    assert thread.rows() == {
        **before,
        LOOP: 0.375,
        EPOCH_START: 0.75,
        "other": before["other"] + 0.375,
    }
    assert thread.ledger.occurrences[EPOCH_START][-1] == (1, 0.75)


def test_gradients_that_are_averaged_by_hand_are_a_collective_and_an_optimizers_own_are_not(
    thread: Thread,
) -> None:
    thread.tell(ThreadEvent.BACKWARD_BEGINS)
    thread.tell(ThreadEvent.BACKWARD_ENDED, 1.0)
    for begins, took in ((None, 3.0), (ThreadEvent.UPDATE_BEGINS, 2.0)):
        if begins:
            thread.tell(begins)
        thread.tell(ThreadEvent.COLLECTIVE_BEGINS)
        thread.tell(ThreadEvent.COLLECTIVE_ENDED, took)
    thread.tell(ThreadEvent.STEPPED, 0.25)
    assert (thread.rows()[COLLECTIVE], thread.rows()[OPTIMIZER]) == (3.0, 2.25)


def test_without_a_loader_a_step_begins_to_compute_where_it_calls_its_model() -> None:
    thread = Thread()
    thread.pass_and_step()
    thread.tell(ThreadEvent.MODEL_CALLED, 3.0)  # after as long in the script's own lines
    thread.pass_and_step()
    rows = thread.rows()
    assert (rows[LOOP], rows["forward"], thread.ledger.model_calls) == (3.0, 1.0, 1)


def test_what_comes_between_a_pass_and_its_update_is_known(thread: Thread) -> None:
    assert thread.ledger.before_updates is None
    for _ in range(2):
        thread.tell(ThreadEvent.BACKWARD_BEGINS)
        thread.tell(ThreadEvent.BACKWARD_ENDED, 1.0)
        thread.tell(ThreadEvent.UPDATE_BEGINS, 0.5)
        thread.tell(ThreadEvent.UPDATE_BEGINS, 2.0)  # another optimizer's
        thread.tell(ThreadEvent.STEPPED, 0.25)
    assert thread.ledger.before_updates == 1.0


def test_what_a_batch_waits_for_its_model_is_the_scripts_own(thread: Thread) -> None:
    thread.step()
    before = thread.rows()
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.BATCH_GIVEN, 0.5)
    thread.tell(ThreadEvent.MODEL_CALLED, 3.0)
    thread.tell(ThreadEvent.MODEL_CALLED, 0.25)  # another part of it
    thread.pass_and_step()
    rows = thread.rows()
    assert rows["forward"] - before["forward"] == 1.25
    assert rows[LOOP] == 3.0
    assert (thread.ledger.prepared, thread.ledger.model_calls) == (3.0, 1)


def test_a_model_that_is_called_in_an_evaluation_begins_no_step(thread: Thread) -> None:
    thread.step()
    thread.tell(ThreadEvent.ITERATOR_ASKED, 0.0, TEST)
    thread.tell(ThreadEvent.BATCH_GIVEN, 1.0, TEST)
    thread.tell(ThreadEvent.MODEL_CALLED, 0.5)
    thread.tell(ThreadEvent.BATCH_ASKED, 2.0, TEST)
    thread.tell(ThreadEvent.BATCH_GIVEN, 0.0, TEST)
    thread.tell(ThreadEvent.MODEL_CALLED, 0.5)
    thread.tell(ThreadEvent.LOOP_ENDED, 0.25, TEST)
    assert thread.rows()[EVALUATION] == 4.25
    assert LOOP not in thread.rows()


def test_only_the_first_call_of_a_model_is_told_and_transforms_are_none() -> None:
    calls_at: list[float] = []
    calls = ModelCalls(calls_at.append, lambda: 7.0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))
    batch = torch.ones(1, 2)
    for _ in range(2):
        calls.await_next()
        calls.await_next()
        torch.nn.Flatten()(batch)
        assert not calls_at
        model(batch)
        model(batch)
        assert calls_at == [7.0]
        calls_at.clear()
    assert calls.awaited == 2
    calls.await_next()
    calls.stop()
    model(batch)
    assert not calls_at
    assert not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize(("without", "are_seldom"), [(0, False), (1, True), (3, False)])
def test_passes_without_gradients_before_few_steps_are_no_part_of_each(
    without: int, are_seldom: bool
) -> None:
    """As evaluations that slice tensors; those before each step are a generator's samples, or an older copy's aims."""
    calls, model, batch = (
        ModelCalls(lambda at: None, lambda: 7.0),
        torch.nn.Linear(2, 2),
        torch.ones(1, 2),
    )
    for step in range(4):
        calls.await_next(with_gradients=True)
        with torch.no_grad():
            for _ in range(2 * (step < without)):
                model(batch)
        model(batch)
    assert calls.are_seldom_unused is are_seldom


def test_an_optimizer_that_steps_in_a_backward_pass_ends_none(thread: Thread) -> None:
    """As those of single parameters, in hooks of their gradients."""
    before = thread.rows()
    thread.tell(ThreadEvent.BATCH_ASKED)
    thread.tell(ThreadEvent.BATCH_GIVEN)
    thread.tell(ThreadEvent.BACKWARD_BEGINS, 1.0)
    for _ in range(2):
        thread.tell(ThreadEvent.UPDATE_BEGINS, 0.5)
        thread.tell(ThreadEvent.STEPPED, 0.25)
        thread.tell(ThreadEvent.SCRIPT_GOES_ON, 0.125)
    thread.tell(ThreadEvent.BACKWARD_ENDED, 1.0)
    found = {row: seconds - before.get(row, 0.0) for row, seconds in thread.rows().items()}
    assert {row: seconds for row, seconds in found.items() if seconds} == {
        FORWARD: 1.0,
        BACKWARD: 2.5,
        OTHER: 0.25,
    }


def test_looks_before_a_first_batch_that_never_comes_here_are_no_epochs_start() -> None:
    """A thread of the script's own reads the loader."""
    ledger = RunLedger(0.0)
    ledger.handle(ThreadEvent.ITERATOR_ASKED, 1.0)
    assert ledger.row_of_look == EPOCH_START
    ledger.handle(ThreadEvent.STEPPED, 2.0)
    ledger.handle(ThreadEvent.SCRIPT_GOES_ON, 2.0)
    assert ledger.row_of_look == LOOP


def test_a_collective_between_steps_is_not_the_loops(thread: Thread) -> None:
    before = thread.rows()
    thread.tell(ThreadEvent.COLLECTIVE_BEGINS, 0.5)
    thread.tell(ThreadEvent.COLLECTIVE_ENDED, 2.0)
    thread.now += 0.25
    assert thread.rows() == {**before, LOOP: 0.75, COLLECTIVE: 2.0}


def test_while_blocks_are_measured_saves_are_timed_by_themselves() -> None:
    """One of 2 s with another in it, and one that goes on."""
    clock = SavingClock()
    for event, now in (
        (ThreadEvent.SAVE_BEGINS, 1.0),
        (ThreadEvent.SAVE_BEGINS, 1.5),
        (ThreadEvent.SAVE_ENDED, 2.0),
        (ThreadEvent.SAVE_ENDED, 3.0),
        (ThreadEvent.SAVE_BEGINS, 4.0),
    ):
        clock.handle(event, now)
    assert (clock.take_saving_seconds(), clock.take_saving_seconds()) == (2.0, 0.0)


def test_what_looks_held_the_interpreter_for_is_stashs_own_work() -> None:
    """Of 4 s of evaluations looks held 1, half of that before the steps that count; other rows were not looked at."""
    rows = {
        name: {"row": name, "seconds": seconds, "timed_seconds": seconds / 2, "each": each}
        for name, seconds, each in (
            (EVALUATION, 4.0, [3.0, 1.0]),
            (LOOP, 2.0, []),
            (OTHER, 1.0, []),
        )
    }
    _take_out_looks(rows, {EVALUATION: 1.0, LOOP: 0.0, FORWARD: 1.0}, {EVALUATION: 0.5})
    assert {name: row["timed_seconds"] for name, row in rows.items()} == {
        EVALUATION: 1.5,
        LOOP: 1.0,
        OTHER: 1.0,
    }
    assert rows[EVALUATION]["each"] == [2.25, 0.75]


def test_a_batch_is_asked_for_no_earlier_than_what_came_last(thread: Thread) -> None:
    before = thread.rows()
    thread.tell(ThreadEvent.COLLECTION_BEGINS, 1.0)
    thread.tell(ThreadEvent.COLLECTION_ENDED, 2.0)
    thread.ledger.handle(ThreadEvent.BATCH_ASKED, thread.now - 1.5, TRAIN)
    thread.tell(ThreadEvent.BATCH_GIVEN, 0.5)
    assert thread.rows() == {**before, LOOP: 1.0, COLLECTOR: 2.0, INPUT: 0.5}


def test_a_flush_is_a_checkpoints_only_where_its_step_saved_something(tmp_path: Path) -> None:
    clock = iter(range(100))
    keeper = LedgerKeeper(
        SimpleNamespace(now=lambda: float(next(clock)), is_this_thread=True), 30.0
    )
    try:
        with (tmp_path / "log.csv").open("w") as log:
            keeper._tell(ThreadEvent.STEPPED)
            os.fsync(log.fileno())
            assert keeper.take_saving_seconds() == 0
            keeper._tell(ThreadEvent.SAVE_BEGINS)
            keeper._tell(ThreadEvent.SAVE_ENDED)
            os.fsync(log.fileno())
            assert keeper.take_saving_seconds() == 2
            keeper._tell(ThreadEvent.STEPPED)
            os.fsync(log.fileno())
            assert keeper.take_saving_seconds() == 0
    finally:
        keeper.stop()


def test_what_imports_left_behind_is_collected_and_is_no_row_of_the_scripts() -> None:
    class Garbage:
        """One that only the collector frees: it leads to itself."""

        def __init__(self) -> None:
            self.itself = self

    left, clock = weakref.ref(Garbage()), iter(range(100))
    keeper = LedgerKeeper(
        SimpleNamespace(now=lambda: float(next(clock)), is_this_thread=True), 30.0
    )
    try:
        keeper._tell(ThreadEvent.STEPPED)  # from now on collections are noticed
        keeper.collect_garbage_of_start()
        assert left() is None
        assert COLLECTOR not in keeper._ledger.seconds
    finally:
        keeper.stop()
