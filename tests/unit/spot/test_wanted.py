"""A checkpoint is asked for when it can be whole in time, and is known by its request, not by any clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.spot.sync.checkpoint_request import CheckpointRequest, SavedNote, asked, last_saved, listen, saved


@pytest.fixture
def now() -> list[float]:
    return [0.0]


def _wanted(folder: Path, notice: float, now: list[float]) -> CheckpointRequest:
    return CheckpointRequest(folder, notice, lambda: now[0])


def test_nobody_is_asked_who_does_not_listen(tmp_path: Path, now: list[float]) -> None:
    asking = _wanted(tmp_path, 60, now)
    assert asking.settled()
    assert asking.why == "the script saves nothing there with stash.spot.checkpoint"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("notice", "why"),
    [(2.0, "the notice leaves no time for one"), (7.0, "the last one took 5 s, and the notice leaves 5 s")],
)
def test_what_does_not_fit_is_not_asked_for(notice: float, why: str, tmp_path: Path, now: list[float]) -> None:
    listen(tmp_path)
    saved(tmp_path, SavedNote(None, 5.0))
    asking = _wanted(tmp_path, notice, now)
    assert asking.settled()
    assert (asking.seconds, asking.why) == (None, why)
    assert asked(tmp_path) is None


def test_one_that_fits_is_waited_for_until_it_is_too_late(tmp_path: Path, now: list[float]) -> None:
    listen(tmp_path)
    saved(tmp_path, SavedNote(None, 5.0))
    asking = _wanted(tmp_path, 7.5, now)
    now[0] = 5.4
    assert not asking.settled()
    now[0] = 5.5
    assert asking.settled()
    assert asking.why == "none was whole within 5.5 s"


def test_a_checkpoint_that_was_begun_before_the_request_does_not_answer_it(tmp_path: Path, now: list[float]) -> None:
    listen(tmp_path)
    before = asked(tmp_path)
    asking = _wanted(tmp_path, 60, now)
    saved(tmp_path, SavedNote(before, 1.0))
    assert not asking.settled()
    saved(tmp_path, SavedNote(asked(tmp_path), 1.0))
    assert asking.settled()


def test_one_checkpoint_answers_all_who_asked_before_it(tmp_path: Path, now: list[float]) -> None:
    listen(tmp_path)
    first, second = _wanted(tmp_path, 60, now), _wanted(tmp_path, 60, now)
    saved(tmp_path, SavedNote(asked(tmp_path), 1.0))
    assert first.settled()
    assert second.settled()
    third = _wanted(tmp_path, 60, now)
    assert not third.settled()
    assert first.seconds == second.seconds == 0.0


def test_a_folder_that_is_gone_or_damaged_says_nothing(tmp_path: Path, now: list[float]) -> None:
    assert asked(tmp_path / "none") is None
    (tmp_path / "saved.json").write_text("{")
    assert last_saved(tmp_path) is None
    (tmp_path / "wanted").mkdir()
    assert "cannot be asked for" in _wanted(tmp_path, 60, now).why
