"""The judges of choices: what is right by hand, and the fleet without a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from forecast_profiles import gpu_job

from bench.plan import emulated, fleet, fleet_judge, published
from bench.plan.judged import Truth, Verdict, judge, reliability_table, verdict_table
from bench.plan.tables import Setup, jobs, prices
from stash.core.intervals import Interval
from stash.plan.records import Goal, TrainingWork
from stash.predict import gpu_scale
from stash.predict.cluster import Network, NodeLinks, Target
from stash.predict.draws import measured_quantity
from stash.predict.forecasting import base_of
from stash.predict.memory import job_footprint

SEEN = gpu_job(device="cpu")
"""A profile of two nodes of two ranks that knows all that forecasts ask for."""
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


def test_a_line_of_verdicts_counts_goals_that_something_keeps():
    verdicts = [
        Verdict("a", "a", True, 0.0),
        Verdict("a", "b", True, 0.1),
        Verdict(None, "b"),
        Verdict(None, None),
    ]
    assert (
        verdict_table({"me": verdicts}).splitlines()[-1]
        == "| me | 3 | 67% | 33% | 33% | 5.0% | 5.0% | 9.0% | 10.0% |"
    )


def test_what_was_certain_is_in_the_last_line_of_probabilities():
    lines = reliability_table([(1.0, True), (0.96, False), (0.1, False)]).splitlines()
    assert lines[2:] == ["| 5% to 25% | 1 | 10.0% | 0.0% |", "| 95% to 100% | 2 | 98.0% | 50.0% |"]


def test_the_fleet_has_sixty_goals_and_more_candidates_than_that():
    assert len(emulated.CANDIDATES) == 63
    assert max(each.ranks for each in emulated.CANDIDATES) <= emulated.MAX_RANKS
    base = fleet.base_for(SEEN)
    assert len(emulated.MODELS) * len(fleet_judge.goals(base, 0.9)) >= 60


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


def test_a_published_job_is_profiled_as_it_was_and_its_model_is_held_out():
    job = max((each for each in jobs() if each.table == "Lambda"), key=lambda each: each.parameters)
    setup, cell = next((each, it) for each, it in jobs()[job].items() if each.count == 1)
    before = gpu_scale.published_scale().rows
    with published.held_out(job):
        base = base_of(published.profile_of(job, setup, cell.batch, *[cell.per_second] * 2))
        left = gpu_scale.published_scale().rows
    assert base.breakdown.step_seconds == pytest.approx(cell.batch / cell.per_second)
    # whatever the machine's memory: it ran there
    assert job_footprint(base).largest_batch(16 * 2**30) >= cell.batch
    assert 0 < len(left) < len(before)
    assert not any(row.model == job.model for row in left)
    assert gpu_scale.published_scale().rows == before


def test_a_profile_of_several_gpus_tells_a_step_alone_and_of_all():
    job = next(each for each in jobs() if each.table == "Lambda")
    setup = next(each for each in jobs()[job] if each.count == 2)
    base = base_of(published.profile_of(job, setup, 10, per_second=80.0, alone=50.0))
    assert base.breakdown.step_seconds == pytest.approx(0.25)
    assert base.breakdown.stall("compute").seconds == pytest.approx(0.2)


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


def test_every_gpu_of_a_question_has_the_price_of_one_cloud():
    job, cells = next(iter(jobs().items()))
    drawn = prices(job, 1, cells)
    assert drawn == prices(job, 1, cells)
    for each, dollars in drawn.items():
        assert dollars / each.count == pytest.approx(drawn[Setup(each.gpu, 1)])
