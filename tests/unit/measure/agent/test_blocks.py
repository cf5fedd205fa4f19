"""Blocks on a fake clock: what lies between ticks, and what was not training."""

from __future__ import annotations

import torch
from ranks_in_memory import SetClock

from stash.measure.agent.runner.stamps import BlockClock


def test_what_stash_itself_took_in_a_step_is_not_training_time():
    block = BlockClock(0.0)
    block.step(1.5, own=0.5)
    block.step(2.5)
    assert block.steps == [1.0, 1.0]


def test_a_validation_loop_inside_a_step_is_not_training_time():
    block = BlockClock(0.0)
    block.step(1.0)
    block.pause(1.5)
    block.pause(1.7)  # a second loader of the same validation
    block.resume(4.5)
    block.step(5.0)
    assert block.steps == [1.0, 1.0]
    assert block.interrupted == 3.0


def test_what_follows_a_pause_is_training_if_a_step_ends_before_the_loop_goes_on():
    block = BlockClock(0.0)
    block.pause(0.5)  # the loader has ended, of a framework that reads a batch ahead
    block.step(1.0, over=True)
    block.resume(4.0)  # the next epoch
    block.step(5.0)
    assert block.steps == [1.0, 1.0]
    assert block.interrupted == 3.0


def test_what_stash_does_between_two_steps_belongs_to_none():
    block = BlockClock(0.0)
    block.step(1.0)
    block.step_begins(1.25)
    block.step(2.25, over=True)
    block.step_begins(2.5)
    block.resume(4.5)  # the next epoch
    block.step(5.0)
    assert block.steps == [1.0, 1.0, 0.5]
    assert block.interrupted == 2.0


def test_a_step_ends_where_the_script_ends_it_unless_devices_run_ahead():
    clock = SetClock()
    clock.seconds = 3.0
    clock.step_ends()
    clock.seconds = 4.0  # what Stash does about it
    assert clock.end_of_step(settled=False) == clock.end_of_step(settled=True) == 3.0
    clock.watch([torch.device("meta")])
    assert clock.runs_ahead
    assert clock.end_of_step(settled=False) == clock.end_of_step(settled=True) == 4.0
