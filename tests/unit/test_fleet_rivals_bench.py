"""How others choose a fleet, as the bench holds them against the exact search."""

from __future__ import annotations

import pytest
from fleet_pools import published

from bench.spot.rivals import anneal, baselines, cost_of, lower_bound, paper_upper
from stash.spot.choose.branching import cheapest
from stash.spot.choose.fleet_costs import FleetWish, all_fleets
from stash.spot.records.fleets import Contention

WISH = FleetWish(published(), "paper", 0.7, 3700)


def test_others_choose_no_better_and_are_weighed_alike() -> None:
    best, known = cheapest(WISH), all_fleets(WISH)
    named = {each.name: each for each in baselines(WISH, best.counts, known, lambda other: cheapest(other).counts)}
    for each in named.values():
        if each.feasible:
            assert each.fleet is not None
            assert each.fleet.dollars >= best.dollars * (1 - 1e-9)
    printed = named["spotdnn printed"].fleet
    assert printed is not None
    assert printed.workers == {"p3.2xlarge": 2, "g3.8xlarge": 4}
    assert named["homogeneous fast"].feasible is False


def test_the_black_box_gets_there_with_more_fleets_than_the_exact_search_weighs() -> None:
    found, course = anneal(WISH.quotas, cost_of(WISH, all_fleets(WISH)), 3000)
    assert found is not None
    assert course == sorted(course, reverse=True)
    assert course[-1] == pytest.approx(4.361, rel=0.02)


def test_the_papers_bounds_are_no_bounds() -> None:
    assert paper_upper(Contention(alpha=0.8, beta=-1.92)) == 13  # (2.92 / 0.8)^2 = 13.3
    assert paper_upper(Contention(alpha=0, beta=0)) is None
    # bmin 1024: (-204.8 + 2507.6) / 0.3 - 876.5 = 6799.5; 1024 * 6799.5 / (2115 * 2400) = 1.37
    assert lower_bound(FleetWish(published(), "paper", 0.8, 2400)) == 2
