"""A script that goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import stash.spot
from stash.core.errors import UserError
from stash.spot.sync.checkpoint_request import CheckpointRequest


def _parts() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.Adam(model.parameters(), 0.1)


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()


def test_what_was_saved_is_where_the_next_one_begins(tmp_path: Path) -> None:
    now = [0.0]
    model, optimizer = _parts()
    kept = stash.spot.checkpoint(tmp_path, every=10, clock=lambda: now[0], model=model, optimizer=optimizer)
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


def test_who_starts_the_script_may_say_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STASH_SPOT_CHECKPOINT_SECONDS", "7.5")
    now = [0.0]
    model, _ = _parts()
    kept = stash.spot.checkpoint(tmp_path, clock=lambda: now[0], model=model)
    now[0] = 7.4
    assert not kept.step()
    now[0] = 7.6
    assert kept.step()


def test_it_saves_at_once_when_a_notice_asks_for_it(tmp_path: Path) -> None:
    now = [0.0]
    model, _ = _parts()
    kept = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    now[0] = 1.0
    assert not kept.step(step=1)
    asking = CheckpointRequest(tmp_path, 60.0, lambda: now[0])
    assert not asking.settled()
    now[0] = 1.2
    assert not kept.step(step=2)  # it looked a moment ago
    now[0] = 1.5
    assert kept.step(step=3)
    assert asking.settled()
    assert (asking.seconds, asking.why) == (0.5, "")
    now[0] = 9.0
    assert not kept.step(step=4)  # once is enough
    again = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    assert again.state == {"step": 3}
    now[0] = 10.0
    assert not again.step(step=5)  # also for who goes on from it


def test_a_request_that_nobody_lived_to_answer_is_answered_by_who_goes_on(tmp_path: Path) -> None:
    now = [0.0]
    model, _ = _parts()
    stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    asking = CheckpointRequest(tmp_path, 60.0, lambda: now[0])
    kept = stash.spot.checkpoint(tmp_path, every=1000, clock=lambda: now[0], model=model)
    now[0] = 5.0
    assert kept.step(step=1)
    assert asking.settled()


def test_only_rank_0_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("STASH_SPOT_CHECKPOINTS", str(tmp_path / "kept"))
    model, _ = _parts()
    kept = stash.spot.checkpoint(model=model)
    kept.save(step=1)
    assert not kept.step(step=1)
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_truncated_one_is_left_for_the_one_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = _parts()
    kept = stash.spot.checkpoint(tmp_path, model=model)
    kept.save(step=1)
    kept.save(step=2)
    newest = max(tmp_path.glob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-5])
    assert stash.spot.checkpoint(tmp_path, model=model).state == {"step": 1}
    assert "is truncated or damaged" in capsys.readouterr().out


def test_other_parts_are_refused(tmp_path: Path) -> None:
    model, optimizer = _parts()
    stash.spot.checkpoint(tmp_path, model=model).save()
    with pytest.raises(UserError, match="holds model, and the script asks for model, optimizer"):
        stash.spot.checkpoint(tmp_path, model=model, optimizer=optimizer)
    with pytest.raises(UserError, match="more than 0"):
        stash.spot.checkpoint(tmp_path, every=0, model=model)
