"""How people choose today: every rule on a few offers by pencil, what must hold on any, and their regret."""

from __future__ import annotations

from dataclasses import fields, replace

import plan_builder
import pytest
from checked_plans import later
from forecast_profiles import cpu_job
from hypothesis import given
from hypothesis import strategies as st

from stash.catalog.facts import GpuFacts, Instance
from stash.core.intervals import Interval
from stash.plan.records import Choice, Goal, HourlyPrice, PaidAs, TrainingWork
from stash.plan.rules import (
    RULES,
    Offered,
    Picked,
    RuleFacts,
    cheapest_per_hour,
    compare_rules,
    fastest_gpu,
    flops_per_dollar,
    linear,
    measuring_everything,
    rule_facts,
    skypilot,
    stash_table,
)
from stash.predict.forecasting import base_of, shipped_catalog

HOUR = 3600.0


def offer(
    name: str, gpu: str | None, devices: int, dollars: float, most: int = 4, paid_as: PaidAs = "on-demand",
    fp32: float | None = None, fp16: float | None = None,
) -> Offered:  # fmt: skip
    price = HourlyPrice(dollars_per_hour=Interval(value=dollars), paid_as=paid_as, source="made up")
    known = None
    if gpu is not None and fp32 is not None:
        known = GpuFacts(
            name=gpu, model=gpu, fp32_flops_per_second=fp32, tensor_fp16_flops_per_second=fp16,
            as_of="2026-11-20", source="made up",
        )  # fmt: skip
    instance = Instance(
        cloud="here", name=name, gpu_model=gpu, gpu_count=devices, as_of="2026-11-20", source="made up"
    )
    return Offered(instance, price, devices, most, known)


SMALL = offer("small", "old", 1, 1.0, fp32=10e12, fp16=11e12)
BOX = offer("box", "old", 4, 3.6, fp32=10e12, fp16=11e12)
FAST = offer("fast", "new", 4, 12.0, fp32=20e12, fp16=160e12)
HUGE = offer("huge", "new", 8, 25.0, fp32=20e12, fp16=160e12)
ODD = offer("odd", None, 2, 0.5)
OFFERS = [SMALL, BOX, FAST, HUGE, ODD]
FACTS = RuleFacts(samples=3.6e6, nodes=2, devices=4, rates={"old": 100.0, "new": 250.0}, trial_seconds=120.0)


def test_cheapest_per_hour_takes_the_lowest_price_whatever_it_buys() -> None:
    assert cheapest_per_hour(OFFERS, FACTS) == Picked(ODD, 1)
    assert cheapest_per_hour([], FACTS) == "nothing is offered"


def test_of_equally_cheap_hours_the_one_of_most_devices() -> None:
    assert cheapest_per_hour([SMALL, replace(BOX, price=SMALL.price)], FACTS) == (replace(BOX, price=SMALL.price), 1)


def test_the_fastest_gpu_is_that_of_most_peak_in_its_cheapest_machine() -> None:
    assert fastest_gpu(OFFERS, FACTS) == Picked(FAST, 1)
    assert fastest_gpu([ODD], FACTS) == "no offer's GPU has a peak on its data sheet"


def test_flops_per_dollar_by_pencil_and_by_precision() -> None:
    """fp32, TFLOP/s a dollar: small 10/1, box 40/3.6 = 11.1, fast 80/12 = 6.7, huge 160/25 = 6.4.
    amp: 11, 12.2, 640/12 = 53, 51."""
    assert flops_per_dollar(OFFERS, FACTS) == Picked(BOX, 1)
    assert flops_per_dollar(OFFERS, replace(FACTS, precision="amp")) == Picked(FAST, 1)


def test_tf32_counts_as_fp32_where_a_gpu_has_it() -> None:
    assert FAST.gpu is not None
    tf32 = replace(FAST, gpu=FAST.gpu.model_copy(update={"tensor_tf32_flops_per_second": 80e12}))
    assert flops_per_dollar([BOX, tf32], FACTS) == Picked(tf32, 1)  # 320/12 = 26.7


def test_skypilot_takes_the_cheapest_hour_of_what_the_job_ran_on() -> None:
    """Two nodes of four devices: 2 · $3.6 beats 2 · $12; what has another number of devices was not asked for."""
    assert skypilot(OFFERS, FACTS) == Picked(BOX, 2)
    assert "nothing that is offered has 18 devices in all" in str(skypilot(OFFERS, replace(FACTS, devices=9)))


def test_skypilot_asks_for_as_many_devices_in_all_where_no_node_has_as_many() -> None:
    """Two nodes of two, and nothing of two but odd: 2 · $0.5. Without it four of small at $4, or one box at $3.6."""
    two = replace(FACTS, devices=2)
    assert skypilot(OFFERS, two) == Picked(ODD, 2)
    assert skypilot([SMALL, BOX, FAST], two) == Picked(BOX, 1)


def test_to_skypilot_reserved_nodes_are_free() -> None:
    reserved = replace(FAST, price=FAST.price.model_copy(update={"paid_as": "reserved"}))
    assert skypilot([BOX, reserved], FACTS) == Picked(reserved, 2)


def test_linear_rents_the_cheapest_sample_and_one_node_of_it() -> None:
    """Samples a dollar and hour: small 100/1, box 400/3.6 = 111, fast 1000/12 = 83, huge 2000/25 = 80."""
    assert linear(OFFERS, FACTS) == Picked(BOX, 1)


def test_linear_rents_as_many_nodes_as_a_deadline_takes_on_a_line() -> None:
    """3.6 M samples at 400/s are 2.5 h: 1 h takes 3 boxes; half an hour 5, of which there are 4, so 2 of fast."""
    assert linear(OFFERS, replace(FACTS, deadline_seconds=HOUR)) == Picked(BOX, 3)
    assert linear(OFFERS, replace(FACTS, deadline_seconds=HOUR / 2)) == Picked(FAST, 2)


def test_linear_with_a_budget_rents_the_soonest_within_it() -> None:
    """Everything: $10, 9, 12, 12.5. Of $10, four boxes at 1600/s; of $13, four of huge."""
    assert linear(OFFERS, replace(FACTS, budget_dollars=10.0)) == Picked(BOX, 4)
    assert linear(OFFERS, replace(FACTS, budget_dollars=13.0)) == Picked(HUGE, 4)


def test_linear_rents_the_soonest_of_all_where_nothing_is_soon_enough() -> None:
    assert linear(OFFERS, replace(FACTS, deadline_seconds=1.0)) == Picked(HUGE, 4)


def test_linear_knows_nothing_of_gpus_without_published_times() -> None:
    assert "no throughput was published" in str(linear(OFFERS, replace(FACTS, rates={})))


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


def test_trying_everything_costs_a_trial_of_every_type_with_every_number_of_nodes() -> None:
    """1 + 2 + 3 + 4 = 10 nodes of small and box, for 120 s each: 10 · (1 + 3.6) / 30; a dearer spot is no machine."""
    dearer = replace(SMALL, price=SMALL.price.model_copy(update={"dollars_per_hour": Interval(value=2.0)}))
    assert measuring_everything([SMALL, BOX, dearer], FACTS) == (8, pytest.approx(46 / 30))
    assert measuring_everything([SMALL], replace(FACTS, trial_seconds=None)) == (4, None)


ANY = st.lists(
    st.builds(
        offer,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["old", "new", None]),
        st.integers(1, 16),
        st.floats(0.01, 100),
        st.integers(1, 8),
        fp32=st.one_of(st.none(), st.floats(1e12, 1e15)),
    ),
    max_size=8,
)
JOBS = st.builds(
    replace,
    st.just(MEASURED),
    deadline_seconds=st.one_of(st.none(), st.floats(1, 1e6)),
    budget_dollars=st.one_of(st.none(), st.floats(0.01, 1e4)),
    nodes=st.integers(1, 4),
    devices=st.integers(1, 16),
)


@given(ANY, JOBS, st.sampled_from(RULES))
def test_a_rule_picks_of_what_is_offered_or_says_why_not(
    offers: list[Offered], facts: RuleFacts, rule: object
) -> None:
    picked = rule.chooses(offers, facts)  # type: ignore[attr-defined]
    if isinstance(picked, str):
        assert picked
        return
    assert picked.offer in offers
    assert 1 <= picked.nodes <= picked.offer.most_nodes


@given(ANY, JOBS, st.sampled_from(RULES), st.randoms())
def test_the_order_of_offers_does_not_change_what_is_paid(
    offers: list[Offered], facts: RuleFacts, rule: object, random: object
) -> None:
    mixed = list(offers)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    found = [rule.chooses(each, facts) for each in (offers, mixed)]  # type: ignore[attr-defined]
    paid = [each if isinstance(each, str) else each.dollars_per_hour for each in found]
    assert paid[0] == paid[1]


@given(ANY, JOBS)
def test_nothing_is_cheaper_by_the_hour_than_the_cheapest(offers: list[Offered], facts: RuleFacts) -> None:
    picked = cheapest_per_hour(offers, facts)
    if isinstance(picked, Picked):
        assert all(picked.dollars_per_hour <= each.dollars_per_hour for each in offers)


def test_no_rule_is_given_anything_of_a_forecast() -> None:
    known = {field.name for kind in (Offered, RuleFacts) for field in fields(kind)}
    assert known == {
        "instance", "price", "devices", "most_nodes", "gpu",
        "samples", "nodes", "precision", "deadline_seconds", "budget_dollars", "rates", "measured", "trial_seconds",
    }  # fmt: skip


GOAL = Goal(work=TrainingWork(samples=3.6e6, text="3.6 M samples"), deadline_seconds=24 * HOUR)


def weighed(picked: Picked) -> Choice | str:
    """Boxes lose, fast ones are chosen, odd ones cannot be forecast, anything else is late."""
    by_name = {"box": plan_builder.lost(), "fast": plan_builder.chosen()}
    return "its network is unknown" if picked.offer == ODD else by_name.get(
        picked.offer.instance.name, plan_builder.infeasible()
    )  # fmt: skip


def test_each_rule_is_beside_the_plan_with_its_regret() -> None:
    best, dear = plan_builder.chosen(), plan_builder.lost()
    found = {each.rule: each for each in compare_rules(OFFERS, FACTS, weighed, best)}
    assert list(found) == [*(rule.name for rule in RULES), "exhaustive search"]
    assert found["fastest GPU"].dollars_more == 0
    assert found["fastest GPU"].feasible
    assert found["SkyPilot"].dollars_more == pytest.approx(dear.dollars.value - best.dollars.value)
    assert found["SkyPilot"].seconds_more == pytest.approx(dear.seconds.value - best.seconds.value)
    assert found["cheapest per hour"].choice is None
    assert found["cheapest per hour"].why == "it rents 1 × odd: its network is unknown"
    assert found["original Stash"].choice is None
    assert found["exhaustive search"].choice == best
    assert found["exhaustive search"].dollars_more == measuring_everything(OFFERS, FACTS)[1]


def test_a_rule_that_is_late_is_not_feasible() -> None:
    found = {each.rule: each for each in compare_rules([SMALL], FACTS, weighed, None)}
    assert found["cheapest per hour"].feasible is False
    assert found["cheapest per hour"].dollars_more is None
    assert found["exhaustive search"].choice is None


def test_what_is_known_of_a_job_is_read_from_its_profile() -> None:
    """One V100 by itself: 64 samples in 174 ms; the whole job 512 in 371 ms."""
    base = base_of(later())
    facts = rule_facts([base], GOAL, shipped_catalog())
    assert (facts.nodes, facts.devices, facts.precision) == (2, 4, "fp32")
    assert facts.rates["V100"] == pytest.approx(64 / 0.174)
    assert facts.measured == {("p3.8xlarge", 2): pytest.approx(512 / 0.371)}
    assert facts.trial_seconds == base.profile.elapsed_seconds
    assert facts.rates["V100"] > facts.rates["P100"] > facts.rates["K80"]


def test_another_profile_adds_what_it_measured() -> None:
    bases = [base_of(later()), base_of(later(nodes=1, instance="g4dn.12xlarge", gpu="Tesla T4"))]
    facts = rule_facts(bases, GOAL, shipped_catalog())
    assert set(facts.measured) == {("p3.8xlarge", 2), ("g4dn.12xlarge", 1)}
    assert facts.rates["T4"] == facts.rates["V100"]  # as fast, since the second profile says so


def test_a_job_on_cpus_has_no_rate_of_a_gpu() -> None:
    facts = rule_facts([base_of(cpu_job())], GOAL, shipped_catalog())
    assert facts.rates == {}
