"""Bills against pencil arithmetic, item by item; and what must hold of every bill."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.catalog.reference import Tariff, TariffFact, tariffs
from stash.core.intervals import Interval
from stash.plan.bill import BillFacts, make_bill, not_counted
from stash.plan.records import HourlyPrice, Rental
from stash.predict.cluster import Network, Target
from stash.predict.draws import Draws, Quantity
from stash.predict.forecast import PredictedStall, StallDraws

DRAWS = Draws()
MINUTE, HOUR, DAY, MONTH = 60.0, 3600.0, 86_400.0, 730 * 3600.0
COMPUTE, WAITING = 0.3, 0.1


def exact(value):
    return Interval(value=value, low=value, high=value)


def rental(dollars=7.2, nodes=1, cloud="aws", **changes):
    price = {
        "dollars_per_hour": exact(dollars),
        "paid_as": "on-demand",
        "source": "a price list",
        **changes,
    }
    return Rental(
        instance="p3.8xlarge",
        cloud=cloud,
        nodes=nodes,
        devices=4,
        device="V100",
        price=HourlyPrice(**price),
    )


def stalls(seconds=None, network=None):
    """Of a step: 0.3 s of compute and 0.1 s of network, exactly, unless said otherwise."""
    parts = tuple(
        PredictedStall(
            name,
            DRAWS.draw_mean(name, value if isinstance(value, Interval) else exact(value)),
            "measured",
        )
        for name, value in (seconds or {"compute": COMPUTE, "network": WAITING}).items()
    )
    target = Target(name="somewhere", nodes=2, devices=4, backend="nccl", network=network)
    return StallDraws(target, parts, (), 256.0)


def tariff(cloud="aws", **facts):
    known = {
        name: TariffFact(value=value, as_of="2026-11-22", source="a page")
        for name, value in facts.items()
    }
    return {cloud: Tariff(cloud=cloud, **known)}


def made(facts=None, first=None, steps=9000, **rented):
    extra = None if first is None else np.full(DRAWS.count, first)
    return make_bill(stalls(), steps, rental(**rented), facts or BillFacts(), extra, DRAWS)


def dollars(found, name):
    """Of one item, which has to be there."""
    (item,) = (item for item in found.items if item.name == name)
    return item.dollars.value


def test_each_stall_has_its_share_of_the_training():
    found = made(nodes=2)
    compute, network = found.stalls
    assert (compute.name, network.name) == ("compute", "network")
    assert (compute.share, network.share) == (pytest.approx(0.75), pytest.approx(0.25))
    assert compute.dollars.value == pytest.approx(10.8)  # three quarters of $14.40
    assert network.dollars.value == pytest.approx(3.6)


def test_a_negative_stall_takes_dollars_off():
    found = make_bill(
        stalls({"compute": 0.5, "prep": -0.1}), 9000, rental(), BillFacts(), None, DRAWS
    )
    assert [stall.dollars.value for stall in found.stalls] == [
        pytest.approx(9.0),
        pytest.approx(-1.8),
    ]
    assert dollars(found, "training") == pytest.approx(7.2)


def test_start_up_is_booting_then_the_image_then_the_data_on_every_node():
    # 5 min, then 20 GB and 100 GB at 500 MB/s: 40 s and 200 s. 540 s of two nodes at $7.20/h are $2.16.
    facts = BillFacts(
        start_seconds=exact(300),
        image_bytes=20e9,
        dataset_bytes=100e9,
        download_bytes_per_second=500e6,
    )
    found = made(facts, nodes=2)
    assert dollars(found, "start-up") == pytest.approx(2.16)
    assert found.items[0].seconds.value == pytest.approx(540)
    assert (
        found.items[0].text
        == "5 min until machines are up, 20 GB of image at 500 MB/s, 100 GB of data at 500 MB/s"
    )
    assert found.seconds_interval.value == pytest.approx(HOUR + 540)


def test_a_node_downloads_no_faster_than_its_own_network():
    # Two interfaces of 125 MB/s: 100 GB take 400 s instead of 200 s.
    network = Network(bytes_per_second=Quantity(value=250e6, origin="data sheet", source="a page"))
    facts = BillFacts(dataset_bytes=100e9, download_bytes_per_second=500e6)
    found = make_bill(stalls(network=network), 9000, rental(), facts, None, DRAWS)
    assert found.items[0].seconds.value == pytest.approx(400)


@pytest.mark.parametrize(
    ("steps", "by", "least", "paid_hours"),
    [
        (9000, HOUR, 0, 1),  # an hour exactly is one hour
        (9025, HOUR, 0, 2),  # ten seconds more are two
        (9025, MINUTE, 0, 61 / 60),
        (9025, 1, 60, 3610 / 3600),  # by the second nothing is added
        (75, 1, 60, 1 / 60),  # 30 s are less than the least charge
        (75, HOUR, 60, 1),
    ],
)
def test_idle_time_that_is_paid_for(steps, by, least, paid_hours):
    found = made(BillFacts(tariffs=tariff(billed_by_seconds=by, least_seconds=least)), steps=steps)
    assert found.dollars_interval.value == pytest.approx(7.2 * paid_hours)
    assert dollars(found, "rounding") == pytest.approx(
        7.2 * (paid_hours - steps * 0.4 / HOUR), abs=1e-9
    )
    assert found.seconds_interval.value == pytest.approx(steps * 0.4)  # it takes no time


def test_start_up_counts_towards_the_hour_that_is_rounded_up():
    facts = BillFacts(start_seconds=exact(60), tariffs=tariff(billed_by_seconds=HOUR))
    assert made(facts).dollars_interval.value == pytest.approx(14.4)


def test_disks_cost_by_the_month_on_every_node():
    # 73 GB at $0.10 for an hour of 730 are one cent; two nodes.
    facts = BillFacts(
        dataset_bytes=70e9, image_bytes=3e9, tariffs=tariff(disk_dollars_per_gb_month=0.10)
    )
    found = made(facts, nodes=2)
    assert dollars(found, "disk") == pytest.approx(0.02)
    assert found.items[-1].text == "2 × 73 GB at $0.1 per GB and month"


def test_data_leave_a_cloud_once_a_node_and_only_for_another_one():
    facts = BillFacts(
        dataset_bytes=100e9, data_in="gcp", tariffs=tariff("gcp", egress_dollars_per_gb=0.12)
    )
    assert dollars(made(facts, nodes=2), "egress") == pytest.approx(24)
    assert [item.name for item in made(facts, cloud="gcp").items] == ["training"]
    assert made(facts).seconds_interval.value == pytest.approx(HOUR)  # it takes no time


def test_uncertain_steps_and_prices_make_an_uncertain_bill():
    spread = {"compute": Interval(value=0.3, low=0.27, high=0.33), "network": 0.1}
    found = make_bill(stalls(spread), 9000, rental(), BillFacts(), None, DRAWS)
    seconds, dollars = found.seconds_interval, found.dollars_interval
    assert seconds.value == pytest.approx(HOUR)
    assert (seconds.low, seconds.high) == (
        pytest.approx(3330, rel=0.01),
        pytest.approx(3870, rel=0.01),
    )
    assert dollars == seconds.scale(7.2 / HOUR)  # draws stay paired


def test_a_price_holds_or_has_changed():
    price = Interval(value=7.2, low=3.6, high=7.2)
    found = make_bill(stalls(), 9000, rental(dollars_per_hour=price), BillFacts(), None, DRAWS)
    assert set(found.dollars.round(6)) == {3.6, 7.2}
    assert found.dollars_interval.low == pytest.approx(3.6)
    assert found.dollars_interval.high == pytest.approx(7.2)
    assert found.dollars_interval.value == pytest.approx(7.2, rel=0.02)


def test_an_unknown_spread_leaves_no_ends():
    facts = BillFacts(start_seconds=Interval(value=60))
    unknown_price = make_bill(
        stalls(), 9000, rental(dollars_per_hour=Interval(value=7.2)), BillFacts(), None, DRAWS
    )
    assert unknown_price.seconds_interval == exact(HOUR)
    # at the listed price: how it moves is said apart
    assert unknown_price.dollars_interval.low == pytest.approx(7.2)
    unknown_start = made(facts)
    assert unknown_start.seconds_interval.low is None
    assert unknown_start.dollars_interval.low is None
    # the training's is known all the same
    assert unknown_start.items[1].dollars.low == pytest.approx(7.2)


def test_what_is_not_counted_is_said():
    sentences = " ".join(not_counted(BillFacts(), [rental(paid_as="spot")], first_epoch=False))
    for word in (
        "--start",
        "--image-size",
        "their size was not given",
        "first epoch",
        "aws may round",
        "disks of aws",
    ):
        assert word in sentences
    assert "--data-in" in sentences
    assert "interruptions" in sentences


def test_of_own_machines_with_every_fact_nothing_is_left_out():
    facts = BillFacts(
        start_seconds=exact(0),
        image_bytes=0,
        dataset_bytes=1,
        download_bytes_per_second=1,
        data_in="on-premise",
    )
    assert not_counted(facts, [rental(cloud="on-premise", paid_as="own")], first_epoch=True) == ()
    (sentence,) = not_counted(
        facts, [rental(cloud="lambda", paid_as="reserved")], first_epoch=True
    )[2:]
    assert sentence == "data that leave on-premise are not counted: their price is in no source"


def test_what_clouds_say_of_themselves_is_counted():
    facts = BillFacts(dataset_bytes=1e9, tariffs=dict(tariffs()), data_in="aws")
    known, unknown = (
        [rental(), rental(cloud="gcp")],
        [rental(cloud="azure"), rental(cloud="lambda")],
    )
    assert not any("disks" in sentence for sentence in not_counted(facts, known, first_epoch=True))
    assert any(
        "disks of azure and lambda" in sentence
        for sentence in not_counted(facts, unknown, first_epoch=True)
    )


POSITIVE = st.floats(min_value=1e-3, max_value=1e4)
UNSURE = st.builds(
    lambda value, down, up: Interval(value=value, low=value * (1 - down), high=value * (1 + up)),
    *(POSITIVE, st.floats(0, 0.5), st.floats(0, 0.5)),
)
GRANULARITIES = st.sampled_from([1.0, 60.0, 3600.0])
FACTS = st.builds(
    lambda start, size, rate, by, least: BillFacts(
        start_seconds=start,
        image_bytes=size,
        dataset_bytes=10 * size,
        download_bytes_per_second=rate,
        tariffs=tariff(billed_by_seconds=by, least_seconds=least, disk_dollars_per_gb_month=0.08),
    ),
    *(UNSURE, st.floats(0, 1e12), st.floats(1e6, 1e10), GRANULARITIES, st.floats(0, 3600)),
)
FIRST = st.none() | st.floats(0, 1e5)
STEPS = st.floats(1, 1e6)
PARTS = st.builds(
    lambda compute, wait: {
        "compute": compute,
        "network": Interval(value=wait, low=wait - 1, high=wait + 1),
    },
    *(UNSURE, st.floats(-0.5, 5)),
)


CASES = st.tuples(PARTS, STEPS, UNSURE, st.integers(1, 64), FACTS, FIRST)


def any_bill(parts, steps, price, nodes, facts, first):
    extra = None if first is None else np.full(DRAWS.count, first)
    return make_bill(
        stalls(parts), steps, rental(nodes=nodes, dollars_per_hour=price), facts, extra, DRAWS
    )


@given(CASES)
def test_the_parts_add_up_to_the_whole_in_every_draw(case):
    found = any_bill(*case)
    by_name = {part.name: part for part in found.parts}
    assert np.allclose(sum(part.dollars for part in found.parts), found.dollars)
    assert np.allclose(sum(part.seconds for part in found.parts), found.seconds)
    assert np.allclose(sum(found.stall_dollars), by_name["training"].dollars)
    total = sum(item.dollars.value for item in found.items)
    assert total == pytest.approx(found.dollars_interval.value, rel=1e-9, abs=1e-9)
    assert all(item.dollars.holds_itself and item.seconds.holds_itself for item in found.items)
