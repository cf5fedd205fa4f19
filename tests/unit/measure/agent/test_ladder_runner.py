"""The ladder's runner without a process: whole ladders on set clocks, and everything a loop can do in between."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ranks_in_memory import BATCHES, Job, end_reason, epoch, job, orders, reading, seconds_of, train
from waiting import until

from stash.core.measured import Rate, Skipped
from stash.measure.agent.data import feeds
from stash.measure.agent.data.feeds import WatchedFeed
from stash.measure.agent.runner import judge, loops
from stash.measure.protocol.messages import (
    JobFacts,
    LadderChosen,
    LadderEnded,
    Noted,
    PhaseBegun,
    RoundDone,
    RoundGivenUp,
    RoundsPlanned,
)

pytestmark = pytest.mark.usefixtures("one_process_after_the_other")


def test_a_ladder_measures_every_rung_of_every_round_and_leaves(tmp_path: Path) -> None:
    one = job(orders(tmp_path))
    train(one)
    assert one.left == ["left"]
    assert end_reason(one) == "rounds done"
    assert [(block.round, block.rung) for block in one.blocks()] == [
        *[
            (0, "cold"),
            (0, "warm"),
            (0, "solo"),
        ],  # the cold block proves that there is nothing to make cold
        *[(1, "warm"), (1, "solo")],
    ]
    # The exchange of a single rank is not there to be measured, so only the loader's time lies between the rungs.
    for block in one.blocks():
        each = 1.0 if block.rung == "solo" else 3.5
        assert block.step_seconds == (each,) * block.steps
    assert [m.number for m in one.messages() if isinstance(m, RoundDone)] == [0, 1]


def test_steps_under_the_top_rung_are_traced_after_all_blocks(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    one = job(orders(tmp_path, traces=str(folder)))
    train(one)
    assert end_reason(one) == "rounds done"
    assert len(one.blocks()) == 5
    (trace,) = folder.iterdir()
    assert trace.name == "rank0.json.gz"
    assert b"ProfilerStep#0" in gzip.decompress(trace.read_bytes())


def test_what_handing_out_a_batch_takes_is_no_part_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, count = job(orders(tmp_path)), feeds.count_samples

    def slowly(batch: object) -> int | None:
        one.clock.seconds += 0.25
        return count(batch)

    monkeypatch.setattr(feeds, "count_samples", slowly)
    train(one)
    assert one.blocks()
    for block in one.blocks():
        assert block.step_seconds == (1.0 if block.rung == "solo" else 3.5,) * block.steps
        assert block.wait_seconds == 0.0


def test_what_cannot_be_measured_is_skipped_with_its_reason(tmp_path: Path) -> None:
    one = job(orders(tmp_path))
    train(one)
    chosen = next(m for m in one.messages() if isinstance(m, LadderChosen))
    assert chosen.rungs == ("solo", "warm", "cold")
    assert chosen.skipped == {
        "resident": "the job runs on CPUs: there is no host-to-device copy",
        "crowd": "one device",
        "node": "one device",
        "cluster": "one device",
    }
    cold = next(m for m in one.messages() if isinstance(m, Skipped))
    assert cold.rung == "cold"
    assert "no file was seen being read" in cold.why


def test_cold_blocks_are_measured_after_what_storage_lends_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN storage that lends the first five steps of every cold block half of their time
    monkeypatch.setattr(judge, "why_not_cold", lambda ranks: None)
    one = job(orders(tmp_path, budget=90.0))
    begun = lent = 0
    for _, feed in reading(one, BATCHES):
        blocks = sum(
            isinstance(message, PhaseBegun) and message.name == "cold" for message in one.messages()
        )
        begun, lent = blocks, 5 if blocks > begun else lent - 1
        one.step(0.1 if feed != "cold" else 0.3 if lent > 0 else 0.6)
    # THEN the first round's block is tried until it tells of the rest only, and no other was written down
    cold = [block for block in one.blocks() if block.rung == "cold"]
    assert [block.round for block in cold] == [0, 1]
    for block in cold:
        assert block.step_seconds == pytest.approx([0.6] * block.steps)
    notes = [message.text for message in one.messages() if isinstance(message, Noted)]
    assert any("storage lends credit" in text for text in notes)


def test_what_storage_owes_after_loaders_were_timed_by_themselves_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN storage that is steady from block to block, but owes three steps once loaders were read by themselves
    monkeypatch.setattr(judge, "why_not_cold", lambda ranks: None)
    one = job(orders(tmp_path, budget=1000.0, rounds=4))
    begun = alone = owed = 0
    for _, feed in reading(one, BATCHES):
        messages = one.messages()
        blocks = sum(
            isinstance(message, PhaseBegun) and message.name == "cold" for message in messages
        )
        timed = sum(isinstance(message, Rate) for message in messages)
        owed = 3 if blocks > begun and timed > alone else 0 if blocks > begun else owed - 1
        begun, alone = blocks, timed if blocks > begun else alone
        one.step(0.1 if feed != "cold" or owed > 0 else 0.6)
    # THEN it is not measured in the rounds after those second opinions, nor settled for in the others
    assert alone > 0
    cold = {block.round: block for block in one.blocks() if block.rung == "cold"}
    assert set(cold) == {0, 1, 2, 3}
    for block in cold.values():
        assert block.step_seconds == pytest.approx([0.6] * block.steps)


def test_the_stop_file_ends_the_ladder_after_the_block_under_way(tmp_path: Path) -> None:
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    train(one, most=30)
    assert one.runner.listens
    rounds = sum(isinstance(m, RoundDone) for m in one.messages())
    one.folder.stop.touch()
    train(one)
    assert end_reason(one) == "stopped"
    assert sum(isinstance(m, RoundDone) for m in one.messages()) <= rounds + 1


def test_without_a_word_from_the_launcher_the_ladder_ends_by_itself_past_the_budget(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path, rounds=None, budget=1000.0))
    train(one, most=30)
    assert one.runner.listens
    one.clock.seconds += 1700.0  # suspended, or its launcher hangs
    train(one)
    assert end_reason(one) == "stopped"
    assert one.left == ["left"]


def rounds_of(one: Job) -> int:
    return sum(isinstance(message, RoundDone) for message in one.messages())


def test_a_round_that_would_end_well_after_the_budget_is_not_begun(tmp_path: Path) -> None:
    # GIVEN rounds of solo (1 s a step), warm and cold (3.5 s a step)
    one = job(orders(tmp_path, rounds=None, budget=30.0))
    train(one)
    # THEN the ladder ends by itself, and the next round would have passed the budget by more than a tenth
    assert end_reason(one) == "stopped"
    blocks = one.blocks()
    spent = blocks[-1].started + blocks[-1].seconds
    assert spent <= 1.1 * 30.0 < spent + spent / rounds_of(one)


def test_where_no_round_fits_there_is_one_of_single_steps_without_second_opinions(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path, rounds=None, budget=1.0))
    train(one)
    assert end_reason(one) == "stopped"
    assert rounds_of(one) == 1
    assert {block.steps for block in one.blocks()} == {1}
    assert not any(isinstance(message, Rate) for message in one.messages())


def test_a_first_round_that_becomes_far_slower_than_was_expected_is_given_up(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path, rounds=None, budget=1.0))
    for _, _feed in reading(one, BATCHES):
        begun = any(isinstance(message, RoundsPlanned) for message in one.messages())
        one.step(1000.0 if begun else 1.0)
    assert end_reason(one) == "stopped"
    assert rounds_of(one) == 0
    given_up = next(message for message in one.messages() if isinstance(message, RoundGivenUp))
    assert given_up.seconds >= 1000.0 > 5 * given_up.expected_seconds


def test_a_script_that_exits_by_itself_is_let_go_with_its_own_exit_code(tmp_path: Path) -> None:
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    train(one, most=20)
    one.runner.exits(last=False)  # it destroys its process group under SystemExit
    assert (end_reason(one), one.left) == ("script ended", [])
    one.runner.exits(last=True)
    assert one.left == ["exited"]


def test_a_script_that_exits_before_anything_was_measured_is_not_held(tmp_path: Path) -> None:
    one = job(orders(tmp_path))
    one.runner.exits(last=True)
    assert one.left == []


def test_epochs_stay_as_long_as_the_scripts_own_and_what_lies_between_them_is_not_measured(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path))
    feed, lengths = WatchedFeed(BATCHES), []
    while one.runner.listens:
        steps = one.steps
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
        lengths.append(one.steps - steps)
        one.clock.seconds += 100.0
    assert set(lengths[:-1]) == {len(BATCHES)}
    assert end_reason(one) == "rounds done"
    assert {t for block in one.blocks() for t in block.step_seconds} == {1.0, 3.5}
    assert any(block.interrupted_seconds >= 100.0 for block in one.blocks())


def test_without_an_epochs_end_a_script_may_be_asked_to_train_on(tmp_path: Path) -> None:
    one = job(orders(tmp_path, endless=True))
    feed = WatchedFeed(BATCHES)
    for _, mode in epoch(one, feed):
        one.step(seconds_of(mode))
    assert end_reason(one) == "rounds done"
    assert one.steps > len(BATCHES)


def test_when_nothing_comes_after_an_epoch_training_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    feed = WatchedFeed(BATCHES)
    for _ in range(3):
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
    monkeypatch.setattr(loops, "PATIENCE", 0.05)
    one.runner.loops.acted()
    until(lambda: not one.runner.listens)
    assert end_reason(one) == "script ended"
    assert one.left == ["left"]


def test_a_step_in_which_others_are_waited_for_may_take_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops, "PATIENCE", 0.05)
    over: list[str] = []
    of_rank = loops.Loops(SimpleNamespace(feeds=[]), lambda: over.append("over"))
    # GIVEN a step that ends after an epoch's last batch, and begins with a block that this rank sits out
    of_rank.leave_alone()
    of_rank.stepped()
    time.sleep(0.2)
    assert over == []
    # WHEN the script's own code goes on, and nothing comes of it
    of_rank.acted()
    until(lambda: over == ["over"])


def test_a_save_shortens_the_wait_for_another_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "PATIENCE_AFTER_SAVING", 0.05)
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    feed = WatchedFeed(BATCHES)
    for _ in range(3):
        for _, mode in epoch(one, feed):
            one.step(seconds_of(mode))
    one.runner.loops.acted(saved=True)
    until(lambda: not one.runner.listens)
    assert end_reason(one) == "script ended"


def test_a_loader_made_again_for_every_epoch_goes_on_where_the_last_one_stopped(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path))
    made = []
    while one.runner.listens:
        made.append(WatchedFeed(BATCHES))
        steps = one.steps
        for _, mode in epoch(one, made[-1]):
            one.step(seconds_of(mode))
        if one.runner.listens:
            assert one.steps - steps == len(BATCHES)
    assert end_reason(one) == "rounds done"
    assert one.runner.rank.feeds[0] in made[:3]
    assert one.runner.rank.feeds[0].learned.is_remade


def test_a_validation_loader_ends_after_one_batch_and_its_time_is_not_the_steps(
    tmp_path: Path,
) -> None:
    one = job(orders(tmp_path, rounds=1))
    for _, feed in reading(one, BATCHES):
        if one.runner.rank.feeds and not one.runner.rank.ledger.may_evaluate:
            batches = 0
            for _ in epoch(one, WatchedFeed(BATCHES)):
                batches += 1
                one.clock.seconds += 10.0
            assert batches == 1
        one.step(seconds_of(feed))
    assert one.blocks()
    for block in one.blocks():
        assert block.interrupted_seconds == pytest.approx(10.0 * block.steps)
        assert block.seconds == pytest.approx(block.steps * (1.0 if block.rung == "solo" else 3.5))


def test_steps_are_counted_at_the_optimizer_that_steps_least_often(tmp_path: Path) -> None:
    one = job(orders(tmp_path, rounds=1))
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    for _, feed in reading(one, BATCHES):
        one.step(seconds_of(feed))
        if one.steps % 2 == 0 and one.runner.listens:
            one.runner.stepped(other)
    assert one.runner.rank.optimizer is other
    assert {block.step_seconds[0] for block in one.blocks() if block.rung == "solo"} == {2.0}


def test_an_exception_of_the_script_ends_the_ladder_without_a_word(tmp_path: Path) -> None:
    one = job(orders(tmp_path, rounds=None, budget=float("inf")))
    train(one, most=20)
    one.runner.abandoned()
    one.step(1.0)
    assert not one.runner.listens
    assert one.left == []
    assert not any(isinstance(m, LadderEnded) for m in one.messages())


def test_facts_of_the_loader_and_the_model_are_published(tmp_path: Path) -> None:
    one = job(orders(tmp_path))
    train(one)
    facts: dict[str, object] = {}
    for message in one.messages():
        if isinstance(message, JobFacts):
            facts |= message.facts
    assert facts["batch"] == 4
    assert facts["parameters"] == 2
    assert facts["replayed_batches"] == 2  # of a measured step, and one that is read ahead
    assert facts["loaders"] == [
        {
            "kind": "watched",
            "batches_per_step": 1,
            "startup_seconds": None,
            "remade": False,
            "on_device": False,
            "tensors_per_batch": 1.0,
            "array_bytes_per_batch": 0.0,
            "batch_spread": None,
        }
    ]


@pytest.mark.parametrize(
    ("number", "may_start_again", "published", "left"),
    [
        ("0", True, ["no process group"], ["left"]),  # the launcher starts it as one process
        ("1", True, [], ["left"]),
        ("0", False, ["rounds done"], ["left"]),  # it cannot: the first is measured
        ("1", False, [], ["left"]),
    ],
)
def test_copies_that_form_no_group_are_no_job_of_several(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: str,
    may_start_again: bool,
    published: list[str],
    left: list[str],
) -> None:
    for name, value in {"RANK": number, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    one = job(orders(tmp_path, rungs=("solo",), may_start_again=may_start_again))
    train(one)
    assert [m.reason for m in one.messages() if isinstance(m, LadderEnded)] == published
    assert one.left == left
    assert bool(one.blocks()) is (published == ["rounds done"])


def test_a_number_left_from_somewhere_else_makes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "x")
    one = job(orders(tmp_path, rungs=("solo",)))
    train(one)
    assert one.blocks()
