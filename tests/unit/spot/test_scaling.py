"""A fleet played slower waits for the same things."""

from __future__ import annotations

import pytest

from stash.core.errors import UserError
from stash.spot.emulate.build_rehearsal import emulated, emulated_links, least_slower
from stash.spot.records.fleets import FleetPool

POOL = FleetPool.model_validate({
    "as_of": "2026-11-22", "source": "a test", "exchange_bytes": 10e6, "worker_bytes_per_second": 100e6,
    "pcie_bytes_per_second": 1e10,
    "server": {"count": 2, "bytes_per_second": 400e6, "dollars_per_hour": 0.1, "apply_seconds": 0.08, "cores": 4},
    "loss": {"gamma1": 1, "gamma2": 0, "gamma3": 1, "gamma5": 0},
    "types": [{"name": "a", "batch": 32, "samples_per_second": 64, "quota": 4, "dollars_per_hour": 1}],
})  # fmt: skip


def test_everything_takes_as_many_times_longer_as_is_asked() -> None:
    plain, slow = emulated(POOL, 10e6, 1), emulated(POOL, 10e6, 4)
    # 0.5 s for an iteration, of which 2 × 0.1 s on the worker's own link and 0.01 s of each server's work
    assert plain.pace == {"a": pytest.approx(0.29)}
    assert plain.apply_seconds == pytest.approx(0.01)
    assert (plain.worker_rate, plain.server_rate) == (100e6, 400e6)
    assert slow.pace == {"a": pytest.approx(4 * 0.29)}
    assert slow.apply_seconds == pytest.approx(0.04)
    assert (slow.worker_rate, slow.server_rate) == (25e6, 100e6)


def test_a_smaller_job_gets_slower_links_so_that_its_exchange_takes_as_long() -> None:
    found = emulated(POOL, 1e6, 1)
    assert 1e6 / found.worker_rate == pytest.approx(0.1)


def test_a_pool_that_contradicts_itself_is_told() -> None:
    wrong = POOL.model_copy(update={"worker_bytes_per_second": 10e6})
    with pytest.raises(UserError, match="less time for an iteration than for its exchange alone"):
        emulated(wrong, 10e6, 1)


def test_it_is_played_no_slower_than_this_machine_needs() -> None:
    assert least_slower(POOL, {"a": 1}, 2.0, 10e6, 1e-4, 2) == 1
    assert least_slower(POOL, {"a": 4}, 8.0, 10e6, 1e-4, 2) == 2  # 160 MB/s are too much to move
    assert least_slower(POOL, {"a": 1}, 2.0, 10e6, 0.02, 2) == 5  # 0.64 s of computing have to fit twice
    with pytest.raises(UserError, match="smaller model or batch"):
        least_slower(POOL, {"a": 1}, 2.0, 10e6, 100.0, 2)


def test_links_of_a_script_are_no_slower_than_this_machine_needs() -> None:
    assert emulated_links(POOL, 1, None).slower == 1
    found = emulated_links(POOL, 4, None)  # 400 MB/s are too much to move
    assert (found.slower, found.node_rate, found.head_rate) == (5, 20e6, 80e6)
    assert emulated_links(POOL, 4, 2.5).node_rate == 40e6
    with pytest.raises(UserError, match="give --time-scale 5e\\+03 at most"):
        emulated_links(POOL, 4, 6000)
