"""A plan held against later profiles: line by line by pencil, which choice they are of, and what failed."""

from __future__ import annotations

import re
from typing import Any

import plan_builder
import pytest
from checked_plans import PLANNED, later

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.plan.checking import PlanCheck, check_plan
from stash.plan.matching import MatchedChoice, choice_of
from stash.plan.planned_facts import explain_difference
from stash.plan.records import BillItem, PlanFact, RentalPlan, Setting
from stash.predict.forecasting import base_of, shipped_catalog

PLAN = plan_builder.plan()


def matched(profile: Profile, plan: RentalPlan = PLAN, instance: str | None = None) -> MatchedChoice:
    samples = base_of(profile).breakdown.samples_per_step
    return choice_of(plan, profile, samples, shipped_catalog(), instance)


def check(profile: Profile, plan: RentalPlan = PLAN) -> PlanCheck:
    return check_plan(plan, matched(profile, plan), base_of(profile))


def verdicts(found: PlanCheck) -> dict[str, str]:
    return {line.name: line.verdict for line in found.lines}


def decided(found: PlanCheck) -> dict[str, str]:
    return {decision.limit: decision.verdict for decision in found.decisions}


def test_a_profile_is_of_the_choice_on_its_instance_type_and_nodes() -> None:
    found = matched(later())
    assert found.choice == plan_builder.lost()
    assert found.by == "2 × p3.8xlarge, the plan's lost choice, by its instance type"


def test_a_type_may_be_said_with_its_cloud_and_in_any_case() -> None:
    assert matched(later(instance=None), instance="aws/P3.8xlarge").choice.name == "2 × p3.8xlarge"


@pytest.mark.parametrize(("gpus", "found"), [({}, True), ({"gpu": "Tesla T4"}, False), ({"devices": 2}, False)])
def test_a_machine_of_gcp_is_known_by_its_type_and_its_gpus(gpus: dict[str, Any], found: bool) -> None:
    choice = plan_builder.lost()
    n1 = {"instance": "n1-standard-8+4xV100", "cloud": "gcp"}
    plan = plan_builder.plan(choices=(choice.model_copy(update={"rented": choice.rented.model_copy(update=n1)}),))
    profile = later(instance="n1-standard-8", **gpus)
    if found:
        assert matched(profile, plan).by.endswith("by its instance type")
        return
    with pytest.raises(UserError, match=r"this profile is of 2 × n1-standard-8 with .*profile the job as the plan"):
        matched(profile, plan)


def test_without_a_type_it_is_of_the_first_choice_on_such_devices_and_that_is_said() -> None:
    found = matched(later(instance=None))
    assert found.choice.name == "2 × p3.8xlarge"
    assert "by its devices alone, as its instance type is not recorded" in found.by


def test_of_several_types_with_such_devices_the_others_are_named() -> None:
    choice = plan_builder.lost()
    twin = choice.model_copy(update={"rented": choice.rented.model_copy(update={"instance": "dgx-half"})})
    found = matched(later(instance=None), plan_builder.plan(choices=(choice, twin)))
    assert found.by.endswith("; dgx-half would fit as well (--instance NAME)")


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        ({"nodes": 4}, r"of 4 × p3\.8xlarge, which the plan does not have; it has 2 × p3\.8xlarge"),
        ({"instance": "g6.xlarge"}, r"of 2 × g6\.xlarge, .*it has 1 × g5\.48xlarge, 1 × p3\.16xlarge"),
        ({"instance": None, "gpu": "Tesla T4"}, r"of 2 × \(a machine of 4 × T4\), .*say which type it is with"),
        ({"batch": 32}, r"trains 256 samples a step, and the plan's 2 × p3\.8xlarge 512; profile with the plan's"),
        ({"fields": {"workload": {"name": "bert"}}}, "the plan is for resnet50, and this profile is of bert"),
    ],
)
def test_a_profile_that_is_of_none_is_refused_with_what_the_plan_has(profile: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        matched(later(**profile))


@pytest.mark.parametrize(
    ("profile", "instance", "why"),
    [
        ({"devices": 2}, None, "with 2 devices a node, and the plan's 2 × p3.8xlarge has 4;"),
        ({"devices": 1}, "p3.8xlarge", "with 1 device a node, and the plan's 2 × p3.8xlarge has 4;"),
        ({"gpu": "Tesla T4"}, "p3.8xlarge", "with T4, and the plan's 2 × p3.8xlarge has V100-SXM2-16GB;"),
        ({"fields": {"device": "cpu"}}, "p3.8xlarge", "with CPUs, and the plan's 2 × p3.8xlarge has V100-SXM2-16GB;"),
        ({"instance": None}, "gcp/p3.8xlarge", "with cloud gcp, and the plan's 2 × p3.8xlarge has cloud aws;"),
    ],
)
def test_where_the_type_is_the_same_it_says_what_differs(
    profile: dict[str, Any], instance: str | None, why: str
) -> None:
    with pytest.raises(UserError, match=re.escape(f"of 2 × p3.8xlarge {why}")) as error:
        matched(later(**profile), instance=instance)
    assert "does not have" not in str(error.value)


def test_what_is_measured_as_it_was_planned_holds() -> None:
    found = check(later())
    assert verdicts(found) == dict.fromkeys(PLANNED, "as planned") | {"prep": "cannot tell", "step": "as planned"}
    assert found.assumptions == ()
    assert decided(found) == {"step": "passes", "deadline": "passes"}


def test_a_slower_network_is_found_and_the_fact_behind_it_named() -> None:
    found = check(later(network=0.250))
    assert {name: word for name, word in verdicts(found).items() if word == "slower"} == {
        "network": "slower", "step": "slower"
    }  # fmt: skip
    assert len(found.assumptions) == 1
    assert "network is 70.0 ± " in found.assumptions[0]
    assert "what a node's interface carries to be 1.25 GB/s (data sheet of 2026-11-20" in found.assumptions[0]
    assert decided(found) == {"step": "fails", "deadline": "fails"}


def test_time_and_cost_follow_from_the_measured_step_by_pencil() -> None:
    """225,206 steps of 441 ms and 300 s of start-up, at 2 · $12.24 an hour."""
    found = check(later(network=0.250))
    steps = plan_builder.lost().steps
    seconds = steps * 0.441 + 300
    assert found.seconds.value == pytest.approx(seconds)
    assert found.dollars.value == pytest.approx(seconds * 24.48 / 3600)
    assert found.spent_dollars == pytest.approx(41.8 * 24.48 / 3600)
    step = found.step.measured
    arm = ((steps * (step.high - 0.441)) ** 2 + 150**2) ** 0.5
    assert found.seconds.high - seconds == pytest.approx(arm)


def test_a_faster_step_is_told_and_passes() -> None:
    found = check(later(network=0.100))
    assert verdicts(found)["step"] == "faster"
    assert decided(found)["step"] == "passes"
    assert "faster than planned" in found.assumptions[0]


def test_a_stall_that_the_plan_did_not_have_is_told_if_it_matters() -> None:
    assert "prep takes 30.0" in check(later(prep=0.030)).assumptions[0]
    assert check(later(prep=0.002)).assumptions == ()


def test_a_stall_that_was_not_measured_is_counted_as_planned_with_a_note() -> None:
    found = check(later(without=("fetch",)))
    step = found.step
    assert step.measured.value == pytest.approx(0.369 + 0.002)
    assert step.why == "counting fetch as planned"
    assert verdicts(found)["fetch"] == "cannot tell"
    assert step.why in found.decisions[0].sentence


def test_a_forecast_without_a_spread_cannot_be_told_to_fail() -> None:
    lost = plan_builder.lost()
    blind = lost.model_copy(update={"step": Interval(value=0.37)})
    found = check(later(network=0.25), plan_builder.plan(choices=(blind,)))
    assert verdicts(found)["step"] == "cannot tell"
    assert decided(found)["step"] == "cannot tell"


def test_intervals_that_held_are_counted_among_those_of_which_it_can_be_told() -> None:
    found = check(later(network=0.250))
    assert (len(found.held), len(found.decidable)) == (5, 7)


APART = Interval(value=0.03, low=0.02, high=0.04)
BANDWIDTH = plan_builder.NETWORK.model_copy(update={"about": "bandwidth between nodes"})


def share_with(*facts: PlanFact) -> Any:
    share = next(each for each in plan_builder.lost().stalls if each.name == "network")
    return share.model_copy(update={"facts": facts})


def seen(value: float) -> dict[str, PlanFact]:
    ends = {"low": value * 0.98, "high": value * 1.02}
    return {BANDWIDTH.about: BANDWIDTH.model_copy(update={"value": value, "origin": "measured", **ends})}


def test_a_fact_that_was_measured_otherwise_is_the_assumption_that_failed() -> None:
    sentence = explain_difference(share_with(BANDWIDTH), APART, seen(0.8e9))
    assert sentence == (
        "network is 30.0 ± 10.0 ms slower than planned: the plan took bandwidth between nodes to be 1.25 GB/s "
        "(data sheet of 2026-11-20, karpenter-aws instance-types.md (v1.12)); measured, it is 800 ± 16 MB/s"
    )


def test_where_facts_are_as_planned_it_is_the_model_that_is_off() -> None:
    sentence = explain_difference(share_with(BANDWIDTH), APART, seen(1.25e9))
    assert sentence.endswith(
        "which bandwidth between nodes (1.25 GB/s planned, 1.25 ± 0.03 GB/s measured) cannot explain: the model of "
        "the exchange between nodes is off"
    )


def test_a_fact_that_is_better_than_planned_explains_no_slower_stall() -> None:
    assert "cannot explain" in explain_difference(share_with(BANDWIDTH), APART, seen(2e9))
    faster = Interval(value=-0.03, low=-0.04, high=-0.02)
    assert "measured, it is 2.00 ± 0.04 GB/s" in explain_difference(share_with(BANDWIDTH), faster, seen(2e9))


def test_what_ran_with_other_settings_is_named_first() -> None:
    """The plan takes 12 workers and batches of 64; the profile had three, and batches of 64."""
    lost = plan_builder.lost().model_copy(update={"setting": Setting(workers=12, batch=64)})
    found = check(later(prep=0.050), plan_builder.plan(choices=(lost,)))
    assert found.assumptions[0].startswith("the job ran with workers 3, not 12, as the plan runs it there")
    assert "prep takes" in found.assumptions[1]
    bigger = lost.model_copy(update={"setting": Setting(batch=128)})
    found = check(later(), plan_builder.plan(choices=(bigger,)))
    assert "batch 64, not 128" in found.assumptions[0]


def first_epoch(spread: float | None = 0.1) -> RentalPlan:
    """The plan's 2 × p3.8xlarge with data in memory from the second epoch on."""
    lost = plan_builder.lost()
    hour = Interval(value=3600.0) if spread is None else plan_builder.around(3600.0, spread)
    item = BillItem(name="first epoch", seconds=hour, dollars=hour.scaled(24.48 / 3600), text="cold")
    return plan_builder.plan(choices=(lost.model_copy(update={"items": (*lost.items, item)}),))


def test_fetch_of_later_epochs_is_not_what_a_profile_measures() -> None:
    """Planned 2 ms from memory, measured 40 ms cold: the step of later epochs is 369 + 2 ms."""
    found = check(later(fetch=0.040), first_epoch())
    assert verdicts(found)["fetch"] == "cannot tell"
    assert found.step.measured.value == pytest.approx(0.371)
    assert found.step.verdict == "as planned"
    assert found.seconds.value == pytest.approx(plan_builder.lost().steps * 0.371 + 300 + 3600)
    assert found.exact == ()


def test_what_is_counted_as_planned_without_a_spread_is_named() -> None:
    found = check(later(), first_epoch(spread=None))
    assert found.exact == ("first epoch",)
    assert found.seconds.low is not None
