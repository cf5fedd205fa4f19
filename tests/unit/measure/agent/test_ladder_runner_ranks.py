"""Ladders of several ranks in threads, on clocks of their own: they leave together, and take the same steps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from ranks_in_memory import PATIENCE, Job, Seat, Table, end_reason, job, orders, train

from stash.measure.protocol.messages import PhaseBegun

pytestmark = pytest.mark.usefixtures("one_process_after_the_other")


def run_together(tmp_path: Path, loops: list[int], **changes: object) -> list[Job]:
    """Ranks in threads, each with a loop of so many steps; the first one's folder has the journal."""
    table = Table(len(loops))
    given = orders(tmp_path, **changes)
    ranks = [job(given, Seat(table, rank)) for rank in range(len(loops))]

    def loop(one: Job, most: int) -> None:
        train(one, most)
        if one.runner.listens:
            one.runner.loop_ended()

    threads = [
        threading.Thread(target=loop, args=pair, daemon=True)
        for pair in zip(ranks, loops, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return ranks


def test_ranks_take_the_same_steps_although_some_sit_blocks_out(tmp_path: Path) -> None:
    leader, follower = run_together(tmp_path, [500, 500], rungs=("solo", "crowd", "node"))
    assert leader.left == follower.left == ["left"]
    assert leader.steps == follower.steps
    solo = [block.rank for block in leader.blocks() if block.rung == "solo"]
    crowd = [block.rank for block in leader.blocks() if block.rung == "crowd"]
    assert solo == [0, 0]
    assert sorted(crowd) == [0, 0, 1, 1]
    assert "catch-up" not in {block.rung for block in leader.blocks()}
    assert any(m.name == "catch-up" for m in leader.messages() if isinstance(m, PhaseBegun))


def test_a_rank_whose_loop_ends_takes_all_others_with_it(tmp_path: Path) -> None:
    leader, follower = run_together(
        tmp_path, [500, 24], rungs=("crowd", "node"), rounds=None, budget=float("inf")
    )
    assert leader.left == follower.left == ["left"]
    assert end_reason(leader) == "script ended"
    assert leader.steps < 100


def test_a_trainer_that_comes_second_and_knows_nothing_of_the_first_trains_on_unmeasured(
    tmp_path: Path,
) -> None:
    given = orders(tmp_path)
    first, second = job(given), job(given)
    for one in (first, second):
        torch.set_flush_denormal(False)
        one.step(1.0)
        one.step(1.0)
    assert torch.full((2,), 1e-40).mul(0.5).all()  # with its own numbers
    assert first.runner.listens
    assert not second.runner.listens
    assert not second.runner.has_drifted()
    assert second.left == []
    assert len(given.files.list_marked("extra")) == 1
