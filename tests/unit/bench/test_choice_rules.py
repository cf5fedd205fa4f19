"""The rules that choices are held against: each on a few offers by pencil."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.plan.rules import Offered, Picked, RuleFacts, linear, skypilot, stash_table
from stash.catalog.facts import Instance
from stash.core.intervals import Interval
from stash.plan.records import HourlyPrice

HOUR = 3600.0


def offer(name: str, gpu: str | None, devices: int, dollars: float, most: int = 4) -> Offered:
    price = HourlyPrice(dollars_per_hour=Interval(value=dollars), paid_as="on-demand", source="made up")
    instance = Instance(
        cloud="here", name=name, gpu_model=gpu, gpu_count=devices, as_of="2026-11-20", source="made up"
    )
    return Offered(instance, price, devices, most)


SMALL = offer("small", "old", 1, 1.0)
BOX = offer("box", "old", 4, 3.6)
FAST = offer("fast", "new", 4, 12.0)
HUGE = offer("huge", "new", 8, 25.0)
ODD = offer("odd", None, 2, 0.5)
OFFERS = [SMALL, BOX, FAST, HUGE, ODD]
FACTS = RuleFacts(samples=3.6e6, nodes=2, devices=4, rates={"old": 100.0, "new": 250.0})


def test_skypilot_takes_the_cheapest_hour_of_what_the_job_ran_on() -> None:
    """Two nodes of four devices: 2 · $3.6 beats 2 · $12; what has another number of devices was not asked for."""
    assert skypilot(OFFERS, FACTS) == Picked(BOX, 2)
    assert "nothing that is offered has 18 devices in all" in str(skypilot(OFFERS, replace(FACTS, devices=9)))


def test_skypilot_asks_for_as_many_devices_in_all_where_no_node_has_as_many() -> None:
    """Two nodes of two, and nothing of two but odd: 2 · $0.5. Without it four of small at $4, or one box at $3.6."""
    two = replace(FACTS, devices=2)
    assert skypilot(OFFERS, two) == Picked(ODD, 2)
    assert skypilot([SMALL, BOX, FAST], two) == Picked(BOX, 1)


def test_linear_rents_the_cheapest_sample_and_one_node_of_it() -> None:
    """Samples a dollar and hour: small 100/1, box 400/3.6 = 111, fast 1000/12 = 83, huge 2000/25 = 80."""
    assert linear(OFFERS, FACTS) == Picked(BOX, 1)


def test_linear_rents_as_many_nodes_as_a_deadline_takes_on_a_line() -> None:
    """3.6 M samples at 400/s are 2.5 h: 1 h takes 3 boxes; half an hour 5, of which there are 4, so 2 of fast."""
    assert linear(OFFERS, replace(FACTS, deadline_seconds=HOUR)) == Picked(BOX, 3)
    assert linear(OFFERS, replace(FACTS, deadline_seconds=HOUR / 2)) == Picked(FAST, 2)


MEASURED = replace(FACTS, measured={("box", 1): 300.0, ("box", 2): 500.0, ("fast", 1): 900.0})


@pytest.mark.parametrize(
    ("deadline", "budget", "picked"),
    [  # box 3.33 h $12.0; 2 boxes 2 h $14.4; fast 1.11 h $13.3
        (None, None, Picked(BOX, 1)),
        (3 * HOUR, None, Picked(FAST, 1)),
        (None, 12.5, Picked(BOX, 1)),
        (None, 20.0, Picked(FAST, 1)),
        (HOUR, None, Picked(FAST, 1)),
    ],
)
def test_the_original_stash_knows_only_what_it_measured(
    deadline: float | None, budget: float | None, picked: Picked
) -> None:
    assert stash_table(OFFERS, replace(MEASURED, deadline_seconds=deadline, budget_dollars=budget)) == picked


def test_the_original_stash_recommends_nothing_that_was_not_measured() -> None:
    assert "was profiled on none of the machines that are offered" in str(stash_table(OFFERS, FACTS))
    assert "none of the machines" in str(stash_table([HUGE], MEASURED))
