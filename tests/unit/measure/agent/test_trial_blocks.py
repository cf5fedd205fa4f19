"""How many steps a block of a trial holds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stash.measure.agent.runner import trial


@pytest.mark.parametrize(
    ("workers", "per_step", "steps", "whole"),
    [(0, 1, 19, 19), (1, 1, 19, 19), (8, 1, 19, 24), (6, 1, 12, 12), (32, 1, 11, 32), (8, 4, 19, 20), (6, 4, 19, 21)],
)
def test_a_block_holds_as_many_batches_of_every_worker(workers: int, per_step: int, steps: int, whole: int):
    cycle = trial._cycle(SimpleNamespace(workers=workers, per_step=per_step))
    found = trial._whole(steps, cycle)
    assert found == whole
    assert not workers or found * per_step % workers == 0


def test_of_very_many_workers_a_block_is_as_long_as_any():
    assert trial._whole(19, 128) == trial._whole(1_000, 1) == 100


def test_blocks_of_whole_cycles_see_the_same_step_in_every_phase_of_a_burst():
    # GIVEN a loader of eight workers that holds up training: eight batches come at once, every 400 ms
    came = [0.4 * (number // 8) + 0.001 * (number % 8) for number in range(200)]

    def spread(size: int) -> float:
        blocks = [(came[start + size] - came[start]) / size for start in range(40, 80)]
        return max(blocks) - min(blocks)

    # THEN blocks of 19 steps differ by a fifth of the step and more, those of whole cycles do not
    assert spread(19) > 0.2 * 0.05
    assert spread(trial._whole(19, 8)) < 1e-9
