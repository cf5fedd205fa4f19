"""Checkpoints of a synchronous script: asked for, saved, agreed upon, and gone on from."""

import subprocess
import sys

import pytest
import torch

import stash.spot
from stash.core.errors import UserError
from stash.spot.sync.checkpoint_request import (
    CheckpointRequest,
    latest_request,
    record_answer,
    start_listening,
)
from stash.spot.train import saved_shards


@pytest.fixture
def now():
    return [0.0]


def _wanted(folder, notice, now):
    return CheckpointRequest(folder, notice, lambda: now[0])


def test_a_script_that_does_not_listen_is_not_asked(tmp_path, now):
    asking = _wanted(tmp_path, 60, now)
    assert asking.is_settled()
    assert asking.why == "the script saves nothing there with stash.spot.checkpoint"
    assert list(tmp_path.iterdir()) == []


def test_one_that_fits_is_waited_for_until_it_is_too_late(tmp_path, now):
    start_listening(tmp_path)
    record_answer(tmp_path, None)
    asking = _wanted(tmp_path, 7.5, now)
    now[0] = 5.4
    assert not asking.is_settled()
    now[0] = 5.5
    assert asking.is_settled()
    assert asking.why == "none was whole within 5.5 s"


def test_a_checkpoint_that_was_begun_before_the_request_does_not_answer_it(tmp_path, now):
    start_listening(tmp_path)
    before = latest_request(tmp_path)
    asking = _wanted(tmp_path, 60, now)
    record_answer(tmp_path, before)
    assert not asking.is_settled()
    record_answer(tmp_path, latest_request(tmp_path))
    assert asking.is_settled()


def test_one_checkpoint_answers_all_who_asked_before_it(tmp_path, now):
    start_listening(tmp_path)
    first = _wanted(tmp_path, 60, now)
    second = _wanted(tmp_path, 60, now)
    record_answer(tmp_path, latest_request(tmp_path))
    assert first.is_settled()
    assert second.is_settled()
    third = _wanted(tmp_path, 60, now)
    assert not third.is_settled()
    assert first.seconds == second.seconds == 0.0


def _parts():
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.Adam(model.parameters(), 0.1)


def _train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()


def test_what_was_saved_is_where_the_next_one_begins(tmp_path):
    now = [0.0]
    model, optimizer = _parts()
    kept = stash.spot.checkpoint(
        tmp_path, every=10, clock=lambda: now[0], model=model, optimizer=optimizer
    )
    assert kept.state == {}
    saved = []
    for step in range(5):
        _train(model, optimizer)
        now[0] += 4
        saved.append(kept.step(step=step + 1))
    assert saved == [False, False, True, False, False]
    other, others = _parts()
    again = stash.spot.checkpoint(tmp_path, model=other, optimizer=others)
    assert again.state == {"step": 3}
    for _ in range(2):
        _train(other, others)
    torch.testing.assert_close(other.state_dict(), model.state_dict())


def test_it_saves_at_once_when_a_notice_asks_for_it(tmp_path):
    now = [0.0]
    model, _ = _parts()
    kept = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    now[0] = 1.0
    assert not kept.step(step=1)
    asking = CheckpointRequest(tmp_path, 60.0, lambda: now[0])
    assert not asking.is_settled()
    now[0] = 1.2
    assert not kept.step(step=2)  # it looked a moment ago
    now[0] = 1.5
    assert kept.step(step=3)
    assert asking.is_settled()
    assert (asking.seconds, asking.why) == (0.5, "")
    now[0] = 9.0
    assert not kept.step(step=4)  # once is enough
    again = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    assert again.state == {"step": 3}
    now[0] = 10.0
    assert not again.step(step=5)  # also for who goes on from it


def test_a_request_whose_process_died_before_the_answer_is_answered_by_who_goes_on(
    tmp_path,
):
    now = [0.0]
    model, _ = _parts()
    stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    asking = CheckpointRequest(tmp_path, 60.0, lambda: now[0])
    kept = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    now[0] = 5.0
    assert kept.step(step=1)
    assert asking.is_settled()


def test_other_parts_are_refused(tmp_path):
    model, optimizer = _parts()
    stash.spot.checkpoint(tmp_path, model=model).save()
    with pytest.raises(UserError, match="holds model, and the script asks for model, optimizer"):
        stash.spot.checkpoint(tmp_path, model=model, optimizer=optimizer)
    with pytest.raises(UserError, match="more than 0"):
        stash.spot.checkpoint(tmp_path, every=0, model=model)


RANK = """
import sys, shutil
from pathlib import Path
import torch.distributed as dist
from stash.core.errors import UserError
from stash.spot.sync import resuming as agreed
rank, meeting, own, late, seconds = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4], float(sys.argv[5])
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
def sleep(seconds):
    if late:
        shutil.copy(late, own)
for _ in range(2):
    try:
        found = agreed.find_newest(own, 0, seconds, sleep)
        print(None if found is None else found.facts["state"]["step"])
    except UserError as error:
        print(error)
"""


def _ranks(folder, late, seconds):
    """What each of the two printed, rank 0 with ``folder/one/kept`` and rank 1 with ``folder/two/kept``."""
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANK,
                str(rank),
                str(folder / "meeting"),
                str(folder / of / "kept"),
                str(late or "") if rank else "",
                str(seconds),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, of in enumerate(("one", "two"))
    ]
    return [process.communicate(timeout=120)[0].splitlines() for process in started]


def _saved(folder, step):
    return saved_shards.save_shard(folder, 0, {"parts": [], "state": {"step": step}}, b"")


def _folders(folder):
    made = folder / "one/kept", folder / "two/kept"
    for each in made:
        each.mkdir(parents=True)
    return made


def test_who_does_not_see_the_newest_yet_waits_for_it(tmp_path):
    one, two = _folders(tmp_path)
    _saved(one, 10)
    _saved(two, 10)
    newest = _saved(one, 20)
    assert _ranks(tmp_path, newest, 60.0) == [["20", "20"], ["20", "20"]]


@pytest.mark.slow
def test_where_rank_0_begins_again_all_do(tmp_path):
    _, two = _folders(tmp_path)
    _saved(two, 10)
    assert _ranks(tmp_path, None, 60.0) == [["None", "None"], ["None", "None"]]


@pytest.mark.slow
def test_a_folder_that_is_not_shared_is_said_in_one_sentence(tmp_path):
    one, _ = _folders(tmp_path)
    _saved(one, 20)
    first, second = _ranks(tmp_path, None, 0.0)
    assert first == ["20", "20"]
    assert (
        "rank 0 goes on from shard0-00000000.ckpt, which rank 1 cannot use after 0 s" in second[0]
    )
    assert "in a folder that all nodes see, like a bucket or NFS" in second[0]


@pytest.mark.slow
def test_where_rank_0_cannot_use_what_there_is_the_others_do_not_wait(tmp_path):
    one, _ = _folders(tmp_path)
    _saved(one, 20).write_bytes(b"half")
    first, second = _ranks(tmp_path, None, 60.0)
    assert "is damaged" in first[0]
    assert second[0].startswith("rank 0 cannot use the checkpoints in ")
