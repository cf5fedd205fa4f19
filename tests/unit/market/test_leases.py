"""What leases cost, to the cent, and where each dollar goes: worked by hand."""

from __future__ import annotations

import pytest

from stash.catalog.reference import Tariff, TariffFact
from stash.market.fees import Fees, LeaseRule
from stash.market.jobs import InstanceRate, MarketJob
from stash.market.market_rules import daily, look_ahead, stay
from stash.market.replaying import ReplayedRun, UncoveredError, check_parts, play
from tests.support.small_markets import START, job, offer, small, trace

HOUR = 3600.0
A, B = offer("p3@us-east-1a"), offer("p3@us-east-1b")


def fact(value: float) -> TariffFact:
    return TariffFact(value=value, as_of="2026-11-25", source="by hand")


AWS = Fees({"aws": Tariff(
    cloud="aws", billed_by_seconds=fact(1), least_seconds=fact(60), revoked_free_seconds=fact(HOUR),
    zone_dollars_per_gb=fact(0.02), region_dollars_per_gb=fact(0.04), egress_dollars_per_gb=fact(0.09),
)})  # fmt: skip


def parts(found: ReplayedRun) -> dict[str, float]:
    check_parts(found)
    return {name: round(value, 6) for name, value in found.parts.items() if value}


def test_a_lease_of_59_seconds_pays_for_a_minute() -> None:
    market = small(trace({A: [(0, 36.0, 1)]}, 1e5), job(59), AWS)
    found = play(market, stay("p3"), START)
    assert found.dollars == pytest.approx(0.60)  # a cent a second
    assert parts(found) == {"compute": 0.59, "rounding": 0.01}
    assert found.leases[0].seconds_paid == 60


@pytest.mark.parametrize(
    ("seconds", "revoked", "paid"),
    [(59, False, 60), (60.2, False, 61), (61, False, 61), (3599, True, 0), (3601, True, 3601)],
)
def test_seconds_that_are_paid(seconds: float, revoked: bool, paid: float) -> None:
    assert LeaseRule(1, 60, HOUR).billed(seconds, revoked) == paid


def test_a_price_that_changes_within_boot_is_paid_from_that_second_on() -> None:
    # Boot takes 100 s: 40 s at 1 cent a second, 60 s at 2 cents; then 50 s of work at 2 cents.
    market = small(trace({A: [(0, 36.0, 1), (40, 72.0, 1)]}, 1e5), job(50, boot=100.0))
    found = play(market, stay("p3"), START)
    assert parts(found) == {"boot": 1.60, "compute": 1.00}
    assert found.seconds == 150


def test_every_checkpoint_but_the_last_stretch_s_costs_a_save() -> None:
    # 250 s of work, saved every 100 s for 10 s: 100 + 10 + 100 + 10 + 50, a cent a second.
    market = small(trace({A: [(0, 36.0, 1)]}, 1e5), job(250, checkpoint_every=100.0, save=10.0))
    found = play(market, stay("p3"), START)
    assert found.seconds == 270
    assert parts(found) == {"compute": 2.50, "checkpoints": 0.20}


def test_work_that_divides_evenly_needs_no_checkpoint_at_its_end() -> None:
    market = small(trace({A: [(0, 36.0, 1)]}, 1e5), job(200, checkpoint_every=100.0, save=10.0))
    assert play(market, stay("p3"), START).seconds == 210


def test_a_revocation_during_a_save_loses_the_stretch_and_what_was_written_of_it() -> None:
    # Revoked 105 s on: 100 s of work are lost, 5 s of a checkpoint were in vain. Later all 150 s are worked at b.
    pieces = {A: [(0, 36.0, 1), (105, 36.0, 0)], B: [(0, 36.0, 0), (105, 36.0, 1)]}
    market = small(trace(pieces, 1e5), job(150, checkpoint_every=100.0, save=10.0))
    found = play(market, stay("p3"), START)
    assert [lease.end for lease in found.leases] == ["revoked", "finished"]
    assert parts(found) == {"lost work": 1.00, "checkpoints": 0.15, "compute": 1.50}
    assert found.seconds == 105 + 160


def test_what_was_saved_before_a_revocation_stays() -> None:
    # 100 s saved after 110 s, 40 s lost at 150 s; 50 s are left, on b.
    pieces = {A: [(0, 36.0, 1), (150, 36.0, 0)], B: [(0, 36.0, 0), (150, 36.0, 1)]}
    market = small(trace(pieces, 1e5), job(150, checkpoint_every=100.0, save=10.0))
    found = play(market, stay("p3"), START)
    assert parts(found) == {"compute": 1.50, "checkpoints": 0.10, "lost work": 0.40}
    assert found.seconds == 150 + 50


def test_a_first_hour_that_is_revoked_is_free_and_no_later_one() -> None:
    pieces = {A: [(0, 36.0, 1), (3599, 36.0, 0), (3700, 36.0, 1)]}
    free = play(small(trace(pieces, 1e6), job(4000, checkpoint_every=1000.0, save=0.0), AWS), stay("p3"), START)
    assert [lease.dollars for lease in free.leases] == [
        0.0,
        pytest.approx(10.0),
    ]  # 3,000 s were saved: 1,000 are left
    check_parts(free)
    pieces = {A: [(0, 36.0, 1), (3601, 36.0, 0), (3700, 36.0, 1)]}
    paid = play(small(trace(pieces, 1e6), job(4000, checkpoint_every=1000.0, save=0.0), AWS), stay("p3"), START)
    assert paid.leases[0].dollars == pytest.approx(36.01)


def test_a_move_pays_the_save_where_it_was_and_boot_fetch_and_egress_where_it_goes() -> None:
    # 1 GB of checkpoint at 100 MB/s: 10 s. At 1,000 s b falls from 2 to half a cent a second.
    pieces = {A: [(0, 36.0, 1)], B: [(0, 72.0, 1), (1000, 18.0, 1)]}
    work = job(10_000, boot=100.0, save=20.0, checkpoint=1e9, fetch=100e6, checkpoint_every=None)
    found = play(small(trace(pieces, 1e6), work, AWS), daily(0.0), START)
    assert [lease.end for lease in found.leases] == ["moved", "finished"]
    # a: 100 s boot, 900 s work, 20 s save; b: 100 s boot, 10 s fetch, 9,100 s work.
    assert parts(found) == {
        "boot": 1.0 + 0.5, "checkpoints": 0.20, "download": 0.05, "compute": 9.0 + 45.5, "egress": 0.02,
    }  # fmt: skip
    assert found.moves == 1


def test_data_are_brought_to_a_region_once() -> None:
    far = offer("p3@us-west-2a")
    pieces = {A: [(0, 36.0, 1), (100, 360.0, 1)], far: [(0, 72.0, 1)]}
    work = job(1000, data=50e9, fetch=1e12, data_in="us-east-1")
    found = play(small(trace(pieces, 1e6), work, AWS), daily(0.0), START)
    # 50 GB to the other region at 4 cents.
    assert parts(found)["egress"] == pytest.approx(2.0)


def test_gpus_that_are_not_used_and_stalls_have_their_own_dollars() -> None:
    rate = InstanceRate(samples_per_second=1.0, gpus=8, used=2, stalls={"interconnect": 0.25, "prep": -0.05})
    work = MarketJob(samples=1000, rates={"p3": rate}, boot=0, save=0, checkpoint_every=None)
    found = play(small(trace({A: [(0, 36.0, 1)]}, 1e5), work), stay("p3"), START)
    # Of $10 a quarter is used: 80 % of it computes.
    assert parts(found) == {"idle GPUs": 7.5, "compute": 2.0, "interconnect": 0.625, "prep": -0.125}


def test_nothing_is_billed_where_nobody_watched() -> None:
    hole = {A: [(0, 36.0, 1), (100, None, None), (5000, 36.0, 1)]}
    with pytest.raises(UncoveredError, match="p3@us-east-1a is not watched from 2020-09-13T12:28:20Z on"):
        play(small(trace(hole, 1e5), job(200)), stay("p3"), START)


def test_several_machines_cost_as_many_times_and_go_together() -> None:
    work = MarketJob(samples=1000, rates={"p3": InstanceRate(samples_per_second=1.0)}, boot=0, save=0, machines=4)
    found = play(small(trace({A: [(0, 36.0, 4)]}, 1e5), work), stay("p3"), START)
    assert found.dollars == pytest.approx(40.0)
    few = trace({A: [(0, 36.0, 4), (500, 36.0, 3), (600, 36.0, 4)]}, 1e5)
    assert play(small(few, work), stay("p3"), START).revocations == 1


@pytest.mark.parametrize(("horizon", "moves"), [(119, 0), (121, 1)])
def test_look_ahead_moves_if_its_horizon_saves_more(horizon: float, moves: int) -> None:
    pieces = {A: [(0, 36.0, 1)], B: [(0, 72.0, 1), (1000, 18.0, 1)]}
    work = job(10_000, boot=100.0, save=10.0, checkpoint_every=None)
    assert play(small(trace(pieces, 1e6), work), look_ahead(horizon), START).moves == moves
