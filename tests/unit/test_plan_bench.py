"""The judges of choices: what is right by hand, and the fleet without a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.plan import emulated, fleet_judge, published
from bench.plan.judged import Truth, Verdict, judge
from stash.core.intervals import Interval
from stash.plan.records import Goal, TrainingWork
from stash.predict.cluster import Network, NodeLinks, Target
from stash.predict.draws import measured_quantity

WORK = TrainingWork(samples=1000, text="1,000 samples")
TRUTHS = {"slow": Truth(100.0, 1.0), "middle": Truth(50.0, 1.02), "fast": Truth(10.0, 5.0)}


def test_a_choice_within_three_percent_of_the_cheapest_is_right():
    goal = Goal(work=WORK, deadline_seconds=100)
    assert judge(goal, TRUTHS, "slow") == Verdict("slow", "slow", True, 0.0)
    near = judge(goal, TRUTHS, "middle")
    assert near.right
    assert near.more == pytest.approx(0.02)
    assert not judge(goal, TRUTHS, "fast").right


def test_a_choice_that_misses_the_deadline_is_wrong_however_cheap():
    missed = judge(Goal(work=WORK, deadline_seconds=60), TRUTHS, "slow")
    assert missed == Verdict("slow", "middle")
    assert not missed.right


def test_where_only_money_is_limited_time_is_what_counts():
    verdict = judge(Goal(work=WORK, budget_dollars=2), TRUTHS, "slow")
    assert verdict.best == "middle"
    assert verdict.more == pytest.approx(1.0)


def test_saying_that_nothing_keeps_a_goal_is_right_only_where_nothing_does():
    assert judge(Goal(work=WORK, deadline_seconds=5), TRUTHS, None).right
    assert not judge(Goal(work=WORK, deadline_seconds=20), TRUTHS, None).right
    assert not judge(Goal(work=WORK, deadline_seconds=5), TRUTHS, "fast").right


def test_machines_are_what_links_reached_of_their_data_sheets():
    seen, nodes = emulated.PROFILED
    inside, network = (
        measured_quantity(Interval(value=rate), None, "the profile") for rate in (70e6, 48e6)
    )
    base = Target(
        name="seen",
        machine="host0",
        nodes=nodes,
        devices=seen.devices,
        backend="gloo",
        inside=NodeLinks(bytes_per_second=inside),
        network=Network(bytes_per_second=network),
    )
    c4 = emulated.machines(base)["c4"]
    assert c4.nodes == 1
    assert not base.has_same_machines(c4), "else a forecast for it would be of the profiled machine"
    assert c4.network.bytes_per_second.value == pytest.approx(48e6 * 1000 / 400)
    # 2400 Mbit/s among four devices, where 1200 among two were seen to be 70 MB/s.
    assert c4.inside.bytes_per_second.value == pytest.approx(70e6)
    assert c4.storage.bytes_per_second.value == pytest.approx(80e6)
    assert emulated.machines(base)["a1"].inside is None


def test_choices_of_the_fleet_are_judged_by_what_was_run(monkeypatch):
    monkeypatch.setattr(fleet_judge, "DEADLINES", (1.1,))
    monkeypatch.setattr(fleet_judge, "BUDGETS", (1.1,))
    monkeypatch.setattr(fleet_judge, "MODELS", emulated.MODELS[:1])
    page = fleet_judge.page()
    assert "2 goals, 2 of which something keeps" in page
    assert "| Stash | 2 | 100% |" in page


def test_advice_to_profile_first_is_followed_twice_and_paid_for(monkeypatch):
    question = next(published.questions(40))
    asked = []

    def plan(self, goal, more=()):
        asked.append(len(more))
        on = list(self.cells)[len(more)].name
        return SimpleNamespace(experiment=SimpleNamespace(on=on, dollars=2.0))

    monkeypatch.setattr(published.Question, "plan", plan)
    goal = question.goals()[0]
    found, dollars = question.plan_after_profiling(goal, question.plan(goal))
    assert (asked, dollars) == ([0, 1, 2], 4.0)
    assert found.experiment is not None
