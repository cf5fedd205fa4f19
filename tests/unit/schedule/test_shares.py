"""Shares of time: programs solved by hand, against another formulation, and what has to hold of all of them."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import demand

from stash.core.errors import StashError
from stash.schedule import shares
from stash.schedule.records import JobDemand, ShareAllocation
from stash.schedule.shares import Groups, merge_jobs

RECORDED = Path(__file__).parents[2] / "recorded"
Rule = Callable[[JobDemand], ShareAllocation]
RULES = [shares.max_min, shares.makespan, shares.cheapest]


def levels_of(here, found):
    """What each job reaches, in multiples of its equal share."""
    rates = (here.rates * found.x).sum(axis=1)
    reached = (here.gpus * rates / (here.weight * shares.equal_rates(here))).tolist()
    return reached


def test_max_min_gives_what_is_left_where_it_does_most_work():
    # Equal shares are 1.5 and 1 steps/s. B is at most at 1 step/s, so at level 1; A then still has all of type 0.
    here = demand([[2, 1], [1, 1]], [1, 1])
    found = shares.max_min(here)
    assert found.objective == pytest.approx(1.0)
    assert levels_of(here, found) == pytest.approx([2 / 1.5, 1.0])
    assert found.x == pytest.approx(np.eye(2), abs=1e-8)


def test_max_min_counts_gpus_and_weights():
    # On one type of three GPUs: 2·x_A / w_A = 1·x_B / w_B, and 2·x_A + x_B ≤ 3 leaves room, so both are capped at 1.
    found = shares.max_min(demand([[1], [1], [1]], [2], gpus=[1, 1, 2], weight=[1, 3, 1]))
    # z = s·x/w: x = z, 3z and z/2; Σ s·x = z + min(3z, 1) + z ≤ 2. B is full at z = 1/3; a third of a GPU is left,
    # which does twice as much for A as for the gang.
    assert found.objective == pytest.approx(1 / 3)
    assert found.x.ravel() == pytest.approx([2 / 3, 1.0, 1 / 6])


def test_makespan_by_hand():
    assert shares.makespan(demand([[1], [1]], [1], left=[3, 5])).objective == pytest.approx(8)
    found = shares.makespan(demand([[2, 1], [1, 1]], [1, 1], left=[4, 2]))
    assert found.objective == pytest.approx(2)
    assert found.x == pytest.approx(np.eye(2))


def test_cost_by_hand():
    # Type 1 does half as much for a quarter of the money; its dollar buys 0.5 of a second's work, the other's 0.25.
    one = demand([[2, 1]], [1, 1], costs=[4, 1])
    found = shares.cheapest(one)
    assert found.objective == pytest.approx(0.5, rel=1e-6)
    assert found.x == pytest.approx(np.array([[0, 1]]))
    # 1.5 steps within a second: half of the time on each; 0.75 of a second's work for $2.50.
    kept = shares.cheapest(replace(one, left=np.array([1.5]), deadline=np.array([1.0])))
    assert kept.x == pytest.approx(np.array([[0.5, 0.5]]), abs=1e-6)
    assert kept.objective == pytest.approx(0.3, rel=1e-6)


def test_the_fullest_of_the_cheapest_is_taken():
    found = shares.cheapest(demand([[1], [1], [1]], [2], costs=[3]))
    assert found.x.sum() == pytest.approx(2)


def test_deadlines_that_cannot_be_kept_are_relaxed_by_the_least_factor():
    both = demand([[1], [1]], [1], left=[6, 6], deadline=[6, 6])
    assert shares.relaxation(both) == pytest.approx(2)
    assert shares.cheapest(both).x.ravel() == pytest.approx([0.5, 0.5], abs=1e-6)
    assert shares.relaxation(demand([[1]], [1], deadline=[5])) == 1


def test_a_gpu_s_price_is_in_the_unit_that_it_is_printed_with():
    some = demand(
        [[3, 1], [1.1, 1], [2, 1.5]],
        [2, 1],
        left=[900, 900, 1500],
    )
    here = replace(some, counts=np.array([1.5, 1.0]))
    found = shares.makespan(here)
    for kind in (0, 1):
        more = shares.makespan(replace(here, counts=here.counts + 0.01 * np.eye(2)[kind]))
        assert found.objective - more.objective == pytest.approx(
            0.01 * found.type_prices[kind], rel=0.02
        )


@st.composite
def queues(draw):
    jobs = draw(st.integers(1, 6))
    types = draw(st.integers(1, 3))
    speed = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5])
    rates = [[draw(speed) for _ in range(types)] for _ in range(jobs)]
    rates = [[1.0, *row[1:]] if not any(row) else row for row in rates]
    counts = [draw(st.integers(2, 5)) for _ in range(types)]
    return demand(
        rates,
        counts,
        [draw(st.floats(1, 1e4)) for _ in range(jobs)],
        [draw(st.sampled_from([1, 2])) for _ in range(jobs)],
        weight=[draw(st.sampled_from([1, 2])) for _ in range(jobs)],
    )


def fits(here, x):
    return bool(
        (x.sum(axis=1) <= 1 + 1e-6).all()
        and (x.T @ here.gpus <= here.counts + 1e-5).all()
        and (x >= 0).all()
    )


@settings(max_examples=25, deadline=None)
@given(queues())
def test_shares_fit_the_cluster_and_more_never_hurts(here):
    more = replace(here, counts=here.counts + 1)
    faster = replace(here, rates=here.rates * 1.5)
    for rule in RULES:
        assert fits(here, rule(here).x), rule
    slack = 1 + 1e-5
    assert shares.makespan(more).objective <= shares.makespan(here).objective * slack
    assert shares.makespan(faster).objective == pytest.approx(shares.makespan(here).objective / 1.5)


@settings(max_examples=25, deadline=None)
@given(queues())
def test_merged_rows_have_the_optimum_of_all_rows(here):
    twice = [*range(len(here)), *range(len(here))]
    names = ("rates", "gpus", "weight", "left", "running", "deadline")
    here = replace(
        here, **{name: getattr(here, name)[twice] for name in names}, ids=np.arange(len(twice))
    )
    assert merge_jobs(here, here.weight).size < len(here)
    found = shares.max_min(here)
    alone = Groups(np.arange(len(here)), np.arange(len(here)), np.ones(len(here)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shares, "merge_jobs", lambda demand, *columns: alone)
        each = shares.max_min(here)
    assert found.objective == pytest.approx(each.objective, rel=1e-6)
    work = [float((here.rates * one.x).sum(axis=1) @ (1 / here.best)) for one in (found, each)]
    assert work[0] == pytest.approx(work[1], rel=1e-6)


def test_the_fluid_bound_of_gavels_trace():
    from schedules import example

    from stash.schedule.matrix import demand_of

    jobs, lab, rates = example("jobs-at-once")
    assert shares.makespan(demand_of(jobs, lab, rates)).objective / 3600 == pytest.approx(
        17.0933, abs=1e-4
    )


def test_objectives_are_those_of_gavels_own_classes_and_those_recorded_before_programs_were_plain():
    """Recorded with its code and cvxpy, its bisected makespan also formulated exactly; and with prices of types by
    Dantzig and Wolfe, and water-filling from the last solution (archive-2026-11).
    """
    inputs = json.loads((RECORDED / "gavel_objectives.json").read_text())
    for one, before in zip(
        inputs, json.loads((RECORDED / "schedule/objectives.json").read_text()), strict=True
    ):
        here = demand(
            one["rates"],
            one["counts"],
            one["left"],
            one["gpus"],
            weight=one["weight"],
            costs=one["costs"],
        )
        factor = np.where(np.arange(len(here)) % 4 == 0, 2.0, 0.5)
        due = np.where(np.arange(len(here)) % 2 == 0, here.left / here.best * factor, np.inf)
        dated = replace(here, deadline=due)
        fair = shares.max_min(here)
        fastest = np.repeat(here.best[:, None], here.rates.shape[1], axis=1)
        found = {
            "max-min": fair.objective,
            "max-min, blind": shares.max_min(replace(here, rates=fastest)).objective,
            "makespan": shares.makespan(here).objective,
            "cost": shares.cheapest(here).objective,
            "cost, due": shares.cheapest(dated).objective,
            "relaxation": shares.relaxation(dated),
        }
        assert found == {name: pytest.approx(before[name], rel=1e-8) for name in found}
        for name, theirs in (
            ("max-min", "max-min"),
            ("makespan", "makespan, exact"),
            ("cost", "cost, exact"),
        ):
            assert found[name] == pytest.approx(one["objectives"][theirs], rel=1e-6), name
        assert 0.95 < found["makespan"] / one["objectives"]["makespan"] <= 1


def test_what_the_solver_prints_is_on_no_page_and_what_it_cannot_solve_is_a_sentence(
    monkeypatch, capfd
):
    def talks(*_, **__):
        os.write(1, b"WARNING: HiGHS says something\n")
        return SimpleNamespace(status=4, x=None)

    monkeypatch.setattr("stash.schedule.shares.linprog", talks)
    with pytest.raises(
        StashError, match=r"no shares of time could be computed: rates from 1 to 40 steps/s lie too"
    ):
        shares.makespan(demand([[1.0, 40.0]], [1, 1]))
    assert capfd.readouterr().out == ""
