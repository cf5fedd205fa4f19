"""What leases cost, to the cent, and where each dollar goes: worked by hand."""

import pytest

from stash.catalog.reference import Tariff, TariffFact
from stash.market.job_market import Policy, PolicyDecision
from stash.market.jobs import InstanceRate, MarketJob
from stash.market.policies import policy
from stash.market.replaying import UncoveredError, check_parts, play
from tests.support.small_markets import START, job, offer, small, trace

A = offer("p3@us-east-1a")
B = offer("p3@us-east-1b")
ALWAYS = Policy("always", lambda state: PolicyDecision(state.best()))
FLAT = {A: [(0, 36.0, 1)]}
"""A cent a second."""


def fact(value):
    return TariffFact(value=value, as_of="2026-11-25", source="by hand")


AWS = {
    "aws": Tariff(
        cloud="aws",
        zone_dollars_per_gb=fact(0.02),
        region_dollars_per_gb=fact(0.04),
        egress_dollars_per_gb=fact(0.09),
    )
}


def stay(market):
    return play(market, policy("stay:p3", market), START)


def parts(found):
    check_parts(found)
    return {name: round(value, 6) for name, value in found.parts.items() if value}


def test_a_price_that_changes_within_boot_is_paid_from_that_second_on():
    # Boot takes 100 s: 40 s at 1 cent a second, 60 s at 2 cents; then 50 s of work at 2 cents.
    found = stay(small(trace({A: [(0, 36.0, 1), (40, 72.0, 1)]}, 1e5), job(50, boot=100.0)))
    assert parts(found) == {"boot": 1.60, "compute": 1.00}
    assert found.seconds == 150


@pytest.mark.parametrize(
    ("work", "seconds", "saves"), [(250, 270, 0.2), (200, 210, 0.1), (100, 100, 0.0)]
)
def test_every_checkpoint_but_the_last_stretch_s_costs_a_save(work, seconds, saves):
    found = stay(small(trace(FLAT, 1e5), job(work, checkpoint_every=100.0, save=10.0)))
    assert (found.seconds, found.parts.get("checkpoints", 0.0)) == (seconds, pytest.approx(saves))


@pytest.mark.parametrize(
    ("gone", "bill", "seconds"),
    [
        # 100 s of work are lost, 5 s of a checkpoint were in vain; later all 150 s are worked at b.
        (105, {"lost work": 1.00, "checkpoints": 0.15, "compute": 1.50}, 105 + 160),
        # 100 s are saved after 110 s, 40 s are lost at 150 s; 50 s are left, on b.
        (150, {"compute": 1.50, "checkpoints": 0.10, "lost work": 0.40}, 150 + 50),
    ],
)
def test_a_revocation_loses_what_no_finished_checkpoint_has(gone, bill, seconds):
    pieces = {A: [(0, 36.0, 1), (gone, 36.0, 0)], B: [(0, 36.0, 0), (gone, 36.0, 1)]}
    found = stay(small(trace(pieces, 1e5), job(150, checkpoint_every=100.0, save=10.0)))
    assert [lease.end for lease in found.leases] == ["revoked", "finished"]
    assert parts(found) == bill
    assert found.seconds == seconds


def test_a_move_pays_the_save_where_it_was_and_boot_fetch_and_egress_where_it_goes():
    # 1 GB of checkpoint at 100 MB/s: 10 s. At 1,000 s b falls from 2 to half a cent a second.
    pieces = {**FLAT, B: [(0, 72.0, 1), (1000, 18.0, 1)]}
    work = job(10_000, boot=100.0, save=20.0, checkpoint=1e9, fetch=100e6, checkpoint_every=None)
    found = play(small(trace(pieces, 1e6), work, AWS), ALWAYS, START)
    assert [lease.end for lease in found.leases] == ["moved", "finished"]
    # a: 100 s boot, 900 s work, 20 s save; b: 100 s boot, 10 s fetch, 9,100 s work.
    expected = {
        "boot": 1.0 + 0.5,
        "checkpoints": 0.20,
        "download": 0.05,
        "compute": 9.0 + 45.5,
        "egress": 0.02,
    }
    assert parts(found) == expected


def test_data_are_brought_to_a_region_once():
    far = offer("p3@us-west-2a")
    pieces = {
        A: [(0, 36.0, 1), (100, 360.0, 1), (500, 36.0, 1), (900, 360.0, 1)],
        far: [(0, 72.0, 1)],
    }
    work = job(2000, data=50e9, fetch=1e12, data_in="us-east-1")
    found = play(small(trace(pieces, 1e6), work, AWS), ALWAYS, START)
    assert found.count("moved") == 3
    assert parts(found)["egress"] == pytest.approx(2.0)  # 50 GB to the other region at 4 cents


def test_stalls_have_their_own_dollars_and_several_machines_cost_as_many_times_and_go_together():
    rate = InstanceRate(samples_per_second=1.0, stalls={"interconnect": 0.25, "prep": -0.05})
    work = MarketJob(
        samples=1000, rates={"p3": rate}, boot=0, save=0, checkpoint_every=None, machines=4
    )
    found = stay(small(trace({A: [(0, 36.0, 4)]}, 1e5), work))
    assert parts(found) == {"compute": 32.0, "interconnect": 10.0, "prep": -2.0}
    few = trace({A: [(0, 36.0, 4), (500, 36.0, 3), (600, 36.0, 4)]}, 1e5)
    assert stay(small(few, work)).count("revoked") == 1


def test_nothing_is_billed_where_nobody_watched():
    hole = {A: [(0, 36.0, 1), (100, None, None), (5000, 36.0, 1)]}
    with pytest.raises(UncoveredError, match="p3@us-east-1a was not watched all the time"):
        stay(small(trace(hole, 1e5), job(200)))
