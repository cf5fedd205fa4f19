"""What is recommended: by pencil arithmetic on three offers, on the shipped catalog, and where nothing suffices."""

import re
from datetime import date

import pytest
from catalogs import box, small
from forecast_profiles import cpu_job, gpu_job
from markets import GPUS, kind
from profile_builder import build

from stash.catalog.facts import Price
from stash.catalog.layers import merge
from stash.catalog.offers import Catalog
from stash.core.intervals import Interval
from stash.core.measured import Memory
from stash.core.records.host import Gpu, Host, Limits
from stash.plan.bill import BillFacts
from stash.plan.page import page, verdict
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, TrainingWork
from stash.plan.settings import is_profiled_on, measured_machines
from stash.predict.changes import AS_IT_IS
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of, what_if

TODAY = date(2026, 11, 22)
SAMPLES = 720_000
HOUR = 3600.0


def pair():
    """Two V100s of an instance called *pair*: compute 100 ms, contention 10, interconnect 20; 10 samples each."""
    devices = tuple(
        Gpu(index=i, name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30) for i in range(2)
    )
    return build(
        {"solo": [0.1] * 6, "crowd": [0.11] * 6, "node": [0.13] * 6},
        ranks=2,
        device="cuda",
        batch=10,
        workload={"name": "resnet50", "loaders": ()},
        hosts=(Host(hostname="x", cloud="here", instance="pair", gpus=devices, cores=16),),
    )


V100 = {
    "gpu": "V100-SXM2-16GB",
    "gpu_model": "V100",
    "gpu_memory_bytes": 16 * 2**30,
    "interconnect": "none",
}
SINGLE = box("single", gpu_count=1, **V100)
DEARER = box("dearer", gpu_count=1, **V100)
PAIR = box("pair", gpu_count=2, **V100)


def three(single=2.0, dearer=2.6, both=5.0):
    found = small((SINGLE, single), (DEARER, dearer), (PAIR, both))
    return Catalog(GPUS, found.instances, found.prices)


def asked(profile=None, catalog=None, *, samples=SAMPLES, bill=None, **wishes):
    of_goal = {name: value for name, value in wishes.items() if name in Goal.model_fields}
    of_offers = {name: value for name, value in wishes.items() if name in Constraints.model_fields}
    goal = Goal(work=TrainingWork(samples=samples, text="some"), **of_goal)
    others = {name: wishes[name] for name in ("machines", "listed") if name in wishes}
    base = base_of(profile or pair(), draws=Draws(64))
    return recommend(
        [base],
        goal,
        Constraints(**of_offers),
        catalog or three(),
        bill or BillFacts(),
        ["pair.stash.json"],
        TODAY,
        **others,
    )


def front(plan):
    return [choice for choice in plan.choices if choice.standing in ("chosen", "front")]


# 720,000 samples. *single*: 10 a step of 0.10 s, 72,000 steps, 2 h, $4.00. *dearer* takes as long for $5.20.
# *pair*: 20 a step of 0.13 s, 36,000 steps, 1.3 h, $6.50.


def test_the_cheapest_is_a_single_device_in_two_hours_for_four_dollars():
    plan = asked()
    assert plan.chosen_choice.name == "1 × single"
    assert plan.chosen_choice.steps == 72_000
    assert plan.chosen_choice.seconds.value == pytest.approx(2 * HOUR)
    assert plan.chosen_choice.dollars.value == pytest.approx(4.00)
    assert [choice.name for choice in front(plan)] == ["1 × single", "1 × pair"]


def test_how_probably_spot_machines_keep_a_deadline_and_a_budget_is_unknown():
    prices = [Price(SINGLE.cloud, SINGLE.name, "r1", "spot", 0.5, "2026-11-20", "made up", "")]
    plan = asked(
        catalog=Catalog(GPUS, (SINGLE,), tuple(prices)),
        deadline_seconds=9 * HOUR,
        budget_dollars=9.0,
        spot="allow",
    )
    assert plan.chosen_choice.rented.price.paid_as == "spot"
    assert (plan.chosen_choice.on_time, plan.chosen_choice.within_budget) == (None, None)
    assert plan.chosen_choice.why.endswith("unless it is interrupted")
    assert "if it is not interrupted; how probable that is, is unknown" in verdict(plan)
    (choices,) = page(plan).grids
    assert [choices.rows[0][choices.head.index(head) + 1] for head in ("on time", "in budget")] == [
        "unknown"
    ] * 2
    assert any("stash spot guard" in each for each in plan.assumptions)


def test_a_quota_holds_however_its_type_is_written():
    plan = asked(deadline_seconds=1.5 * HOUR, quotas={"PAIR": 0})
    assert "pair" not in {choice.rented.instance for choice in plan.choices}


def test_the_fastest_within_seven_dollars_is_the_pair_and_within_six_the_single():
    assert asked(budget_dollars=7.0).chosen_choice.name == "1 × pair"
    assert asked(budget_dollars=6.0).chosen_choice.name == "1 × single"


def test_where_nothing_is_feasible_the_nearest_deadline_and_budget_are():
    plan = asked(deadline_seconds=HOUR, budget_dollars=3.0)
    assert plan.chosen_choice is None
    # With the budget of $3 no deadline helps, nor any budget with a deadline of an hour.
    assert [each.to for each in plan.relaxations] == [
        "--deadline 2.1h --max-dollars 5",
        "--deadline 1.4h --max-dollars 7",
    ]
    assert [(each.option, each.to) for each in asked(deadline_seconds=HOUR).relaxations] == [
        ("deadline", "1.4h")
    ]
    assert [(each.option, each.to) for each in asked(budget_dollars=3.0).relaxations] == [
        ("budget", "5")
    ]


def test_a_constraint_that_is_in_the_way_is_named():
    plan = asked(deadline_seconds=1.5 * HOUR, most_dollars_per_hour=3.0)
    assert ("max-price", "5.00") in [(each.option, each.to) for each in plan.relaxations]
    plan = asked(deadline_seconds=1.5 * HOUR, quotas={"pair": 0})
    assert ("quota", "pair=1") in [(each.option, each.to) for each in plan.relaxations]
    plan = asked(deadline_seconds=1.5 * HOUR, excluded=("pair",))
    assert "exclude" in [each.option for each in plan.relaxations]


def test_a_global_batch_is_shared_out():
    # 20 samples on a single device: two passes of 10, 0.2 s; on the pair as profiled.
    plan = asked(scaling="global")
    assert plan.chosen_choice.name == "1 × single"
    assert (plan.chosen_choice.setting.batch, plan.chosen_choice.setting.accumulate) == (None, 2)
    assert plan.chosen_choice.samples_per_step == 20
    assert plan.chosen_choice.step.value == pytest.approx(0.2)


def test_unknown_prices_and_networks_are_told_apart_and_never_ranked():
    catalog = small(
        (kind("V100-SXM2-16GB", 1, 10), 3.0), (kind("T4", 2, None), 1.0), (kind("T4", 1, 5), None)
    )
    plan = asked(gpu_job(), Catalog(GPUS, catalog.instances, catalog.prices), samples=1e6)
    reasons = {each.instance: each.why for each in plan.unranked}
    assert reasons["t4x1-5"] == "its price is unknown"
    assert "network between nodes" in reasons["t4x2-None"]
    assert all(
        choice.rented.nodes == 1 for choice in plan.choices if choice.rented.instance == "t4x2-None"
    )


def test_a_model_that_the_job_shards_goes_to_fewer_ranks_only_where_all_of_it_surely_fits():
    """Four ranks hold 12 GiB each: one alone up to 48, two up to 24 each."""
    plain = gpu_job()
    travels = {"all_gather_into_tensor": 5e7, "reduce_scatter_tensor": 1e8}
    work = plain.workload.model_copy(
        update={
            "bucket_bytes": (),
            "gradients": (),
            "collective_bytes_per_step": travels,
            "collectives_per_step": dict.fromkeys(travels, 50.0),
        }
    )
    held = (Memory(rank=0, allocated_bytes=12 * 2**30),)
    sharded = plain.model_copy(update={"workload": work, "memory": held})
    catalog = merge(None, None)
    plan = asked(sharded, catalog, samples=1e7, clouds=("aws", "gcp"))
    ranks = {choice: choice.rented.nodes * choice.rented.devices for choice in plan.choices}
    few = [choice for choice in plan.choices if ranks[choice] < 4]
    assert few
    for choice in few:
        assert 48 * 2**30 / ranks[choice] < (
            catalog.gpu(choice.rented.device or "").memory_bytes or 0
        )


def test_the_nearest_profile_speaks_for_a_machine():
    own = base_of(pair(), draws=Draws(64))
    slow = pair().model_copy(
        update={
            "hosts": (
                Host(
                    hostname="y", gpus=(Gpu(index=0, name="T4"), Gpu(index=1, name="T4")), cores=16
                ),
            )
        }
    )
    goal = Goal(work=TrainingWork(samples=SAMPLES, text="some"))
    plan = recommend(
        [base_of(slow, draws=Draws(64)), own],
        goal,
        Constraints(),
        three(),
        BillFacts(),
        ["t4.json", "v100.json"],
        TODAY,
    )
    assert plan.chosen_choice.step.value == pytest.approx(0.1)
    assert (
        "3 of 3 types are forecast from v100.json, the profile nearest to them" in plan.assumptions
    )


def test_choices_within_their_intervals_are_tied_and_an_experiment_would_tell():
    plan = asked(
        gpu_job(),
        merge(None, None),
        samples=90 * 1_281_167,
        deadline_seconds=30 * HOUR,
        clouds=("aws", "azure"),
    )
    assert plan.tied_choices
    assert plan.experiment.command[1] == "profile"
    assert plan.experiment.worth > plan.experiment.dollars
    assert f"profile on 1 × {plan.experiment.on} before renting (40 s, $" in plan.experiment.text
    assert (
        page(plan).verdict[0]
        == f"First {plan.experiment.text}: `{' '.join(plan.experiment.command)}`."
    )
    for tie in plan.tied_choices:
        assert (
            tie.dollars.value <= 1.1 * plan.chosen_choice.dollars.value
            or tie.best >= plan.chosen_choice.best
        )
    # a measurement never saves more than knowing all would
    assert plan.risk.regret.value > plan.experiment.worth
    assert sum(each.best or 0.0 for each in plan.choices) == pytest.approx(1.0)


def test_a_cheaper_one_that_may_miss_the_deadline_is_worth_a_profile():
    unsure = kind("RTX-A6000", 1, None)
    found = small((PAIR, 5.0), (unsure, 2.0))
    catalog = Catalog(GPUS, found.instances, found.prices)
    plan = asked(catalog=catalog, deadline_seconds=1.35 * HOUR, most_nodes=1, confidence=0.9)
    assert plan.chosen_choice.name == "1 × pair"  # measured, and in time
    (missed,) = (each for each in plan.choices if each.standing == "infeasible")
    assert missed.dollars.value < plan.chosen_choice.dollars.value
    assert plan.experiment.on == unsure.name
    assert f", as it keeps the limits with {missed.on_time:.0%} probability" in plan.experiment.text
    saved = plan.chosen_choice.dollars.value - missed.dollars.value
    # Where it is in time it is cheaper yet than in the mean.
    assert missed.on_time * saved < plan.experiment.worth < 1.25 * missed.on_time * saved


def unsure_fleet():
    """One measured machine, and one at half its bill whose speed is only forecast."""
    found = small((PAIR, 5.0), (kind("RTX-A6000", 1, None), 2.0))
    return Catalog(GPUS, found.instances, found.prices)


@pytest.mark.parametrize(
    ("late", "name"), [(None, "1 × rtxx1-None"), (1.0, "1 × rtxx1-None"), (1e4, "1 × pair")]
)
def test_what_being_late_costs_decides_how_sure_the_choice_has_to_be(late, name):
    plan = asked(
        catalog=unsure_fleet(), deadline_seconds=1.5 * HOUR, most_nodes=1, late_dollars=late
    )
    assert plan.chosen_choice.name == name
    surely = asked(
        catalog=unsure_fleet(), deadline_seconds=1.5 * HOUR, most_nodes=1, confidence=0.95
    )
    assert surely.chosen_choice.name == "1 × pair"


def test_unless_said_being_late_costs_the_bill_of_what_is_surely_in_time():
    fleet, short, long = unsure_fleet(), 1.5 * HOUR, 30 * HOUR
    plan = asked(catalog=fleet, deadline_seconds=short, most_nodes=1)
    sentence = "being late costs $6.50, the bill of what is surely in time"
    assert any(each.startswith(sentence) for each in plan.assumptions)
    priced = asked(catalog=fleet, deadline_seconds=short, most_nodes=1, late_dollars=6.5)
    assert (plan.chosen_choice, plan.risk) == (priced.chosen_choice, priced.risk)
    assert plan.goal.late_dollars is None
    # By when even the cheaper one is sure, it is its own bill, and nothing is late.
    easy = asked(catalog=fleet, deadline_seconds=long, most_nodes=1)
    assert any(
        each.startswith(f"being late costs ${easy.chosen_choice.dollars.value:.2f}, ")
        for each in easy.assumptions
    )


def test_the_expected_cost_is_the_bill_and_what_being_late_costs_as_often_as_it_is():
    plan = asked(
        catalog=unsure_fleet(), deadline_seconds=1.5 * HOUR, most_nodes=1, late_dollars=100.0
    )
    assert any("being late costs $100" in each for each in plan.assumptions)
    gamble = next(each for each in plan.choices if each.rented.instance.startswith("rtx"))
    assert 0.5 <= gamble.on_time < 1.0
    # The pair's bill is $6.50 and it is never late; the other costs less than half, and $100 where it is late.
    assert (gamble.dollars.value + (1 - gamble.on_time) * 100 < 6.5) is (
        plan.chosen_choice.name != "1 × pair"
    )


def test_an_exchange_says_what_less_certainty_would_buy():
    plan = asked(
        catalog=unsure_fleet(), deadline_seconds=1.5 * HOUR, most_nodes=1, late_dollars=1e4
    )
    gamble = next(each for each in plan.choices if each.rented.instance.startswith("rtx"))
    saved = plan.chosen_choice.dollars.value - gamble.dollars.value
    assert plan.exchanges == (
        f"{gamble.on_time:.0%} instead of > 99%: ${saved:.2f} less, with {gamble.name}",
    )
    assert plan.exchanges[0] in page(plan).next_steps


def test_what_is_cheaper_for_a_gpu_but_cannot_be_ranked_stands_beside_the_answer():
    tiny = box("tiny", gpu_count=1, **{**V100, "gpu_memory_bytes": 2**30})
    found = small((SINGLE, 2.0), (tiny, 0.1))
    job = gpu_job(memory=(Memory(rank=0, allocated_bytes=100 * 10**9),))
    plan = asked(job, Catalog(GPUS, found.instances, found.prices), samples=1e6, most_nodes=1)
    sentence = page(plan).verdict[-1]
    assert sentence.startswith(
        "Cheaper for a GPU and hour, but not ranked: tiny ($0.10): a single sample needs"
    )


def test_an_old_price_is_told_in_the_first_line_in_the_verdict_and_as_the_next_step():
    plan = asked(
        gpu_job(), merge(None, None), samples=90 * 1_281_167, clouds=("aws",), spot="allow"
    )
    shown = page(plan)
    assert shown.subtitle[0].endswith("; its youngest price may be 125 days old")
    assert ", a price of 20" in verdict(plan)
    assert shown.next_steps[0] == "`stash catalog refresh`: its youngest price may be 125 days old"
    spot = [each.rented.price for each in plan.choices if each.rented.price.paid_as == "spot"]
    assert spot
    assert all(price.dollars_per_hour.low < price.dollars_per_hour.high for price in spot)


def test_equal_offers_are_tied_and_no_experiment_can_tell():
    plan = asked(catalog=three(dearer=2.0))
    assert [choice.name for choice in plan.tied_choices] == ["1 × dearer"]
    assert plan.experiment is None
    assert [plan.chosen_choice.best, plan.tied_choices[0].best] == [0.5, 0.5]
    assert plan.risk.regret == Interval(value=0.0, low=0.0, high=0.0)
    assert "rent any of those that are tied" in page(plan).next_steps[-1]


def test_a_type_that_not_even_one_sample_fits_into_is_left_out_with_the_numbers():
    # 64 samples take 100 GB, so one takes about 1.5 GiB: of 16 GiB ten fit, in seven passes or more, of 1 GiB none.
    tiny = box("tiny", gpu_count=1, **{**V100, "gpu_memory_bytes": 2**30})
    found = small((SINGLE, 2.0), (tiny, 0.1))
    job = gpu_job(memory=(Memory(rank=0, allocated_bytes=100 * 10**9),))
    plan = asked(job, Catalog(GPUS, found.instances, found.prices), samples=1e6, most_nodes=1)
    assert [choice.rented.instance for choice in plan.choices] == ["single"]
    assert plan.chosen_choice.setting.accumulate >= 7
    (why,) = (each.why for each in plan.unranked if each.instance == "tiny")
    assert re.fullmatch(r"a single sample needs 1\.[5-9] GiB of its 1 GiB", why)


def test_what_nothing_keeps_is_told_with_what_would_have_to_change():
    # The pair takes 1.3 h for $6.50, the single 2 h for $4.00; of the pair's 130 ms a step 30 are stalls.
    hour = asked(deadline_seconds=1.1 * HOUR)
    assert hour.chosen_choice is None
    assert (hour.relaxations[0].option, hour.relaxations[0].to) == ("deadline", "1.4h")
    assert (
        "for 1.10 h it would have to be 1.2 times as fast, which its stalls could give"
        in hour.relaxations[0].text
    )
    half = asked(deadline_seconds=HOUR / 2)
    assert (
        "would have to be 2.6 times as fast, and without any stall it is 1.3 times"
        in half.relaxations[0].text
    )
    cheap = asked(budget_dollars=2.0)
    assert (
        "for $2.00 at this price it would have to be 2 times as fast, and without"
        in cheap.relaxations[0].text
    )


def test_a_job_of_cpus_is_recommended_the_type_that_it_was_profiled_on():
    host = Host(
        hostname="c", instance="c5.4xlarge", cores=16, memory_bytes=32 * 10**9, limits=Limits()
    )
    plan = asked(cpu_job(hosts=(host,)), merge(None, None), samples=1e6)
    assert (plan.chosen_choice.rented.instance, plan.chosen_choice.rented.device) == (
        "c5.4xlarge",
        None,
    )
    assert {choice.rented.instance for choice in plan.choices} == {"c5.4xlarge"}


@pytest.mark.parametrize(
    ("gpu", "model", "measured"),
    [("Tesla V100-SXM2-16GB", "V100", {"1xV100"}), ("Tesla T4", "T4", {"1xT4"})],
)
def test_a_machine_of_gcp_was_measured_with_the_gpus_that_are_attached(gpu, model, measured):
    host = (
        pair()
        .hosts[0]
        .model_copy(
            update={
                "cloud": "gcp",
                "instance": "n1-standard-8",
                "gpus": (Gpu(index=0, name=gpu, memory_bytes=16 * 2**30),),
            }
        )
    )
    base = base_of(build({"solo": [0.1] * 6}, device="cuda", batch=10, hosts=(host,)))
    kinds = {
        f"{count}x{name}": box(
            f"n1-standard-8+{count}x{name}", cloud="gcp", gpu_model=name, gpu_count=count
        )
        for count, name in ((1, "V100"), (2, "V100"), (1, "T4"))
    }
    plain = box("n1-standard-8", cloud="gcp", gpu_count=0)
    assert {
        name for name, each in kinds.items() if is_profiled_on(base, each, all_devices=False)
    } == measured
    catalog = Catalog(GPUS, (plain, *kinds.values()), ())
    assert set(measured_machines([base], catalog)) == {f"n1-standard-8+1x{model}"}


def test_a_named_type_is_listed_however_bad():
    assert "dearer" in {choice.rented.instance for choice in asked(listed=("dearer",)).choices}


ASKED_TWICE = (
    ("aws", "p3.8xlarge", 1),
    ("aws", "p3.8xlarge", 2),
    ("aws", "p3.16xlarge", 4),
    ("aws", "p4d.24xlarge", 1),
    ("aws", "g4dn.xlarge", 1),
    ("aws", "g5.12xlarge", 1),
    ("gcp", "n1-standard-8+1xV100", 1),
    ("gcp", "g2-standard-24", 1),
    ("azure", "Standard_NC24s_v3", 1),
    ("azure", "Standard_ND40rs_v2", 1),
    ("lambda", "gpu_8x_h100_sxm5", 1),
    ("runpod", "2x_A100-80GB_SECURE", 1),
)


def test_twelve_questions_have_the_same_answer_from_recommend_and_from_whatif():
    usual, catalog, read = gpu_job(), merge(None, None), ("warm", "cold")
    changed = {
        "workload": usual.workload.model_copy(update={"loaders": ()}),
        "settings": usual.settings.model_copy(update={"rungs": usual.settings.rungs[: -len(read)]}),
        "blocks": tuple(each for each in usual.blocks if each.rung not in read),
        "rates": (),
    }
    job = usual.model_copy(update=changed)
    base = base_of(job, draws=Draws(64), catalog=lambda: catalog)
    for cloud, name, nodes in ASKED_TWICE:
        others = tuple(
            f"{each.cloud}/{each.name}" for each in catalog.instances if each.name != name
        )
        plan = asked(
            job, catalog, samples=nodes * 1e6, excluded=others, most_nodes=nodes, listed=(name,)
        )
        one = next(
            (each for each in plan.choices if each.rented.nodes == nodes), plan.chosen_choice
        )
        changed = {"batch": one.setting.batch, "accumulate": one.setting.accumulate}
        wanted = AS_IT_IS.replace_facts(
            instance=f"{cloud}/{name}", nodes=one.rented.nodes, **changed
        )
        assert what_if(base, wanted).step.value == pytest.approx(one.step.value, rel=1e-12), name
