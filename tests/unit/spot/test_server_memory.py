"""What memory a parameter server needs, by hand; machines that have less are no part of a plan, and that is said."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from forecast_profiles import gpu_job
from loss_courses import learned_curve
from typer.testing import CliRunner

import stash.spot.train.server as elastic
from stash.catalog.offers import OfferFilter
from stash.cli.main import app
from stash.core.errors import UserError
from stash.predict.forecasting import shipped_catalog
from stash.spot.model import pool as pools
from stash.spot.model.pool import BASE_BYTES, HEAD_BYTES, server_bytes
from stash.spot.pages.fleet_plan import document, view
from stash.spot.planning import plan
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.runs import LearnedCurve

MB = 10**6


def curve(parameters: int = 100 * MB, optimizer: int | None = 200 * MB, largest: int = 10 * MB) -> LearnedCurve:
    found: LearnedCurve = learned_curve()
    return found.model_copy(
        update={
            "parameter_bytes": parameters, "optimizer_bytes": optimizer, "largest_bytes": largest,
            "buffer_bytes": 1 * MB,
        }
    )  # fmt: skip


def planned(**changes: Any) -> FleetPlan:
    offers = shipped_catalog().query(OfferFilter(cloud="aws", kinds=("spot", "on-demand")))
    asked = {"deadline": 36_000.0, "loss": 0.8, "quotas": {"p3.2xlarge": 2}, "today": date(2026, 11, 22), **changes}
    return plan(gpu_job(), asked.pop("curve"), offers, **asked)


@pytest.mark.parametrize(
    ("of", "servers", "millions"),
    [
        (curve(), 1, 301 + 3 * 101 + 101 + 4 * 101),  # at the end: kept, exchanged, packed, and the head's
        (curve(optimizer=0), 1, 101 + 3 * 101 + 101 + 4 * 101),
        (curve(optimizer=900 * MB), 1, 1001 + 3 * 101 + 1001 + 10),  # while it saves: all that is kept twice
        (curve(largest=60 * MB), 4, 181 + 3 * 61 + 61 + 4 * 101),  # no share is smaller than a tensor
    ],
)
def test_it_is_the_worst_of_starting_saving_and_ending(of: LearnedCurve, servers: int, millions: int) -> None:
    assert server_bytes(of, servers) == pytest.approx(BASE_BYTES + HEAD_BYTES + millions * MB)


def test_it_counts_the_buffers_that_a_server_has() -> None:
    assert elastic.trays_of(1) == pools._TRAYS


def test_machines_that_cannot_hold_it_are_left_out_with_the_reason() -> None:
    small, large = planned(curve=curve()), planned(curve=curve(2_000 * MB, 4_000 * MB))
    assert small.pool.server.memory_bytes is not None
    assert large.pool.server.memory_bytes is not None
    needs = server_bytes(curve(2_000 * MB, 4_000 * MB), 1)
    assert large.pool.server.needs_bytes == needs
    assert needs is not None
    assert small.pool.server.memory_bytes < needs <= large.pool.server.memory_bytes
    (note,) = [each for each in large.pool.notes if "cannot be the server" in each]
    assert "each of 1 server needs 23.6 GB for parameters, optimizer, exchange and checkpoint" in note
    assert document(large)["server_needs_bytes"] == needs
    assert dict(view(large, "x").facts)["memory"].startswith("a server needs 23.6 GB of ")


def test_more_servers_share_it() -> None:
    one, four = (server_bytes(curve(2_000 * MB, 4_000 * MB), servers) for servers in (1, 4))
    assert one is not None
    assert four is not None
    assert four < one / 1.5


def test_a_server_that_is_named_and_too_small_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"m5\.large \(.*\) cannot be the server: .*; name a larger one with --server"
    ):
        planned(curve=curve(2_000 * MB, 4_000 * MB), server="m5.large")


def test_a_curve_that_does_not_say_leaves_it_unknown() -> None:
    found = planned(curve=curve(optimizer=None))
    assert found.pool.server.needs_bytes is None
    assert any(each.startswith("what memory a server needs is not known") for each in found.pool.notes)
    assert any(text.startswith("of a server: unknown") for label, text in view(found, "x").facts if label == "memory")


def test_a_pool_whose_server_is_too_small_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(
        "as_of: 2026-11-22\nsource: a test\nexchange_bytes: 1MB\nworker_bytes_per_second: 25MB/s\n"
        "pcie_bytes_per_second: 10GB/s\n"
        "server: {count: 1, bytes_per_second: 25MB/s, memory_bytes: 4GB, needs_bytes: 5GB}\n"
        "loss: {gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}\n"
        "types: [{name: a, batch: 16, samples_per_second: 64, quota: 2, dollars_per_hour: 1}]\n"
    )
    words = ["spot", "plan", "--pool", str(tmp_path / "pool.yaml"), "--deadline", "1h", "--loss", "0.1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert isinstance(done.exception, UserError)
    assert "a server has 4.00 GB, and each of 1 server needs 5.00 GB" in str(done.exception)
