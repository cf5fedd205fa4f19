"""The log of a rehearsal: what it was to reach, and when its plan expected that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spot_fleets import plan

from stash.spot.emulate.build_rehearsal import Cast, EmulatedFleet
from stash.spot.emulate.run_rehearsal import Account, retold
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.runs import SpotLog
from stash.spot.train.run_orders import TrainingOrders


def _told(of: FleetPlan, slower: float | None, loss: float | None) -> SpotLog:
    fleet = None if slower is None else EmulatedFleet(slower, 1e6, 1e6, 0.0, {})
    chosen = Cast(servers=("server1",), workers=(), emulated=fleet, exchange_bytes=1e6, at_once=1)
    orders = TrainingOrders(job="job.py:job", checkpoints="kept", servers=("server1",), workers=(), loss=loss)
    rehearsal: Any = SimpleNamespace(account=Account(loss=float("nan")), types={})
    on = "local" if slower is None else "testbed"
    return retold(rehearsal, (Path("job.plan.json"), "job.py:job", on), of, chosen, orders)


def test_the_plans_loss_is_expected_when_its_fleet_would_have_made_its_updates_as_slowly_as_it_is_played() -> None:
    of = plan()
    assert of.chosen is not None
    undisturbed = of.chosen.updates / of.chosen.updates_per_second
    for loss in (None, of.loss):
        log = _told(of, 5.0, loss)
        assert (log.goal_loss, log.goal_seconds) == (of.loss, pytest.approx(5 * undisturbed))


def test_of_another_loss_or_without_emulation_nothing_is_expected() -> None:
    of = plan()
    assert _told(of, 5.0, 0.123).goal_loss == 0.123
    assert _told(of, 5.0, 0.123).goal_seconds is None
    assert _told(of, None, None).goal_seconds is None


def test_a_loss_that_is_no_number_does_not_end_the_saving_of_a_log() -> None:
    assert _told(plan(), 5.0, None).loss is None
