"""A plan held against later profiles: by pencil, which choice they are of, and what is refused."""

import re

import plan_builder
import pytest
from checked_plans import later

from stash.analysis.attribution import attribute
from stash.analysis.comparison import STEP, estimate_figure
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.plan.checking import check_plan, find_choice
from stash.plan.records import BillItem
from stash.predict.forecasting import shipped_catalog

PLAN = plan_builder.plan()


def found(profile, plan=PLAN, instance=None):
    return find_choice(
        plan, profile, attribute(profile).samples_per_step, shipped_catalog(), instance
    )


def check(profile, plan=PLAN):
    decisions = check_plan(plan, found(profile, plan), attribute(profile))
    return {decision.limit: decision for decision in decisions}


def verdicts(profile, plan=PLAN):
    return {name: decision.verdict for name, decision in check(profile, plan).items()}


def plan_of(**update):
    """Of 2 × p3.8xlarge alone."""
    return plan_builder.plan(choices=(plan_builder.lost().model_copy(update=update),))


@pytest.mark.parametrize(
    ("gpus", "matches"), [({}, True), ({"gpu": "Tesla T4"}, False), ({"devices": 2}, False)]
)
def test_a_machine_of_gcp_is_known_by_its_type_and_its_gpus(gpus, matches):
    n1 = {"instance": "n1-standard-8+4xV100", "cloud": "gcp"}
    plan = plan_of(rented=plan_builder.lost().rented.model_copy(update=n1))
    profile = later(instance="n1-standard-8", **gpus)
    if matches:
        assert found(profile, plan) == plan.choices[0]
        return
    with pytest.raises(UserError, match=r"this profile is of 2 × n1-standard-8 with "):
        found(profile, plan)


@pytest.mark.parametrize(
    ("profile", "instance", "why"),
    [
        (
            {"nodes": 4},
            None,
            "of 4 × p3.8xlarge with 4 × V100, which the plan does not have; it has 1 × g5.48xlarge",
        ),
        ({"instance": "g6.xlarge"}, None, "of 2 × g6.xlarge with"),
        ({"instance": None, "gpu": "Tesla T4"}, None, "of 2 × a machine with 4 × T4"),
        ({"devices": 2}, None, "of 2 × p3.8xlarge with 2 × V100"),
        ({"gpu": "Tesla T4"}, "p3.8xlarge", "of 2 × p3.8xlarge with 4 × T4"),
        ({"fields": {"device": "cpu"}}, "p3.8xlarge", "of 2 × p3.8xlarge with 4 × CPUs"),
        ({"instance": None}, "gcp/p3.8xlarge", "which the plan does not have"),
        (
            {"batch": 32},
            None,
            "trains 256 samples a step, and the plan's 2 × p3.8xlarge 512; profile with the plan's",
        ),
        (
            {"fields": {"workload": {"name": "bert"}}},
            None,
            "the plan is for resnet50, and this profile is of bert",
        ),
    ],
)
def test_a_profile_that_is_of_none_is_refused_with_what_the_plan_has(profile, instance, why):
    with pytest.raises(UserError, match=re.escape(why)):
        found(later(**profile), instance=instance)


@pytest.mark.parametrize(
    ("stalls", "step", "deadline"),
    [
        ({}, "passes", "passes"),
        ({"network": 0.25}, "fails", "fails"),
        ({"network": 0.1}, "passes", "passes"),
    ],
)
def test_what_is_as_planned_or_faster_holds(stalls, step, deadline):
    assert verdicts(later(**stalls)) == {"step": step, "deadline": deadline}


def test_time_and_cost_follow_from_the_measured_step_by_pencil():
    """225,206 steps of 441 ms and 300 s of start-up, at 2 · $12.24 an hour: 27.7 h and $678."""
    goal = PLAN.goal.model_copy(update={"budget_dollars": 600.0})
    decisions = check(later(network=0.250), plan_builder.plan(goal=goal))
    seconds = plan_builder.lost().steps * 0.441 + 300
    assert f"takes {seconds / 3600:.1f} ± " in decisions["deadline"].sentence
    assert f"costs ${seconds * 24.48 / 3600:.0f} ± " in decisions["budget"].sentence
    assert decisions["budget"].verdict == "fails"


def test_a_forecast_without_a_spread_cannot_be_told_to_fail():
    assert (
        verdicts(later(network=0.25), plan_of(step=Interval(value=0.37)))["step"] == "cannot tell"
    )


def test_fetch_that_was_not_measured_or_is_of_later_epochs_is_counted_as_planned():
    """369 ms of all else and 2 ms planned from memory; measured cold it is 40 ms."""
    lost, hour = plan_builder.lost(), plan_builder.around(3600.0, 0.1)
    item = BillItem(name="first epoch", seconds=hour, dollars=hour.scale(24.48 / 3600), text="cold")
    cached = plan_of(items=(*lost.items, item))
    for profile, plan in ((later(without=("fetch",)), PLAN), (later(fetch=0.040), cached)):
        assert "the step of 2 × p3.8xlarge is 371" in check(profile, plan)["step"].sentence
        assert verdicts(profile, plan)["step"] == "passes"
    assert "takes 24.3 ± " in check(later(fetch=0.040), cached)["deadline"].sentence
    assert estimate_figure(STEP, [attribute(later(fetch=0.040))]).value == pytest.approx(0.409)
