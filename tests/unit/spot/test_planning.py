"""From a profile, a curve and offers to a fleet: what each type does alone by hand, and what cannot be planned."""

from datetime import date

import pytest
from fleet_pools import published_pool
from forecast_profiles import gpu_job
from loss_courses import learned_curve

from stash.catalog.offers import OfferFilter
from stash.core.errors import UserError
from stash.predict.cluster import reached_share
from stash.predict.forecasting import shipped_catalog
from stash.spot import planning
from stash.spot.fleet_costs import FleetWish, all_fleets, cost_fleet
from stash.spot.fleet_records import InterruptionBand
from stash.spot.model.pool import BASE_BYTES, HEAD_BYTES, server_bytes
from stash.spot.pages.fleet_plan import document, page
from stash.spot.planning import plan, plan_with_revocations
from stash.spot.provision import provision
from stash.spot.risk import add_risk, keeps_limits

TODAY = date(2026, 11, 22)
SHARED = gpu_job(
    workload={**gpu_job().workload.model_dump(include={"name", "parameters"}), "replicas": 2}
)
QUOTAS = {"p3.2xlarge": 2, "g4dn.4xlarge": 3}


def offers(**wish):
    return shipped_catalog().query(OfferFilter(cloud="aws", kinds=("spot", "on-demand"), **wish))


def planned(**changes):
    asked = {
        "deadline": 36_000,
        "loss": 0.8,
        "quotas": QUOTAS,
        "today": TODAY,
        "start": 120.0,
    }
    profile = changes.pop("profile", None) or gpu_job()
    curve = changes.pop("curve", None) or learned_curve()
    return plan(profile, curve, changes.pop("offers", None) or offers(), **{**asked, **changes})


def test_a_lone_worker_computes_as_the_profile_did_and_exchanges_over_its_own_links():
    m5 = tuple(
        each for each in offers() if each.instance.gpu_count or each.instance.name == "m5.xlarge"
    )
    pool = planned(quotas={"p3.2xlarge": 2}, offers=m5).pool
    kind = pool.types[0]
    size = 102_228_128
    share = reached_share("tcp")
    network = min(312.5e6, 156.25e6) * share.value  # the worker's 2.5 Gbit/s, the server's 1.25
    assert pool.server.bytes_per_second == pytest.approx(156.25e6 * share.value)
    # The same GPU as profiled: 170 ms and a copy of 4 ms; its loader has eight threads in the place of 16 for two.
    exchange = 2 * size / network + 2 * size / 10e9 + 0.02 / 4
    computes = kind.single_seconds - exchange
    assert 0.174 < computes < 0.35
    assert (kind.gpus, kind.batch, kind.quota, kind.dollars_per_hour) == (1, 64, 2, 1.25)
    assert kind.on_demand_dollars_per_hour == pytest.approx(3.06)


def test_the_plan_has_the_server_that_makes_it_cheapest():
    free = planned()
    servers = ("m5.large", "m5.xlarge", "c5.2xlarge", "c6i.8xlarge")
    few = [
        [each for each in offers() if each.instance.gpu_count or each.instance.name == name]
        for name in servers
    ]
    named = [planned(offers=each) for each in few]
    costs = [each.chosen.dollars for each in named if each.chosen is not None]
    assert free.chosen.dollars <= min(costs) * (1 + 1e-9)
    assert any(
        f"the server is {free.pool.server.instance} on demand in us-east-1" in each
        for each in free.pool.notes
    )


def test_uncertainty_is_the_forecasts_and_the_curves():
    same, other = (planned(quotas={name: 2}) for name in ("p3.2xlarge", "g4dn.4xlarge"))
    # another GPU is told from published pairs
    assert same.pool.uncertainty.speed < other.pool.uncertainty.speed
    assert same.pool.uncertainty.updates == learned_curve().fitted.spread
    assert same.chosen.p_deadline is not None


def test_old_spot_prices_are_told_with_their_date():
    note = next(each for each in planned().pool.notes if each.startswith("spot prices of"))
    assert "are of 2023-01: renew them with `stash catalog refresh`" in note


def test_a_batch_that_has_no_room_is_the_power_of_two_that_has():
    from stash.core.measured import Memory

    peak = 14 * 2**30  # of a V100's 16 GiB, with a batch of 64; an M60 has 8
    profile = gpu_job(memory=tuple(Memory(rank=rank, allocated_bytes=peak) for rank in range(4)))
    pool = planned(profile=profile, quotas={"g3.8xlarge": 2, "p3.2xlarge": 1}).pool
    assert [kind.batch for kind in pool.types] == [32, 64]
    assert any(
        "no room for the profile's batch: 32 samples are taken" in each for each in pool.notes
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"curve": {"parameters": 11}},
            "the profile is of a model with 25,557,032 parameters, and the curve of job.py:job",
        ),
        ({"quotas": {}}, "--quota is missing: say how many of which types you may rent"),
        (
            {"quotas": {"g4dn.4xlage": 2}},
            "--quota g4dn.4xlage: no offer has that type; did you mean g4dn.4xlarge",
        ),
        (
            {"quotas": {"c5.2xlarge": 2}},
            "no spot price of c5.2xlarge is known; drop it from --quota",
        ),
        ({"quotas": {"p3.2xlarge": 0}}, "every quota is 0"),
        ({"profile": SHARED}, "share a model, and each worker of a fleet holds all of it"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(changes, sentence):
    if "curve" in changes:
        changes = {**changes, "curve": learned_curve(**changes["curve"])}
    with pytest.raises(UserError) as mistake:
        planned(**changes)
    assert sentence in str(mistake.value)


def test_without_a_machine_that_could_be_the_server_that_is_said():
    gpus = tuple(each for each in offers() if each.instance.gpu_count)
    with pytest.raises(UserError, match="no machine without GPUs has an on-demand price here"):
        planned(offers=gpus)


def test_a_confidence_that_cannot_be_computed_is_refused():
    blind = learned_curve()
    unknown = {"spread": None, "beyond_spread": None}
    fitted = blind.fitted.model_copy(update=unknown)
    with pytest.raises(UserError, match="so nor is a probability; plan without it"):
        planned(curve=blind.model_copy(update={"fitted": fitted}), confidence=0.9)


MB = 10**6


def curve(parameters=100 * MB, optimizer=200 * MB, largest=10 * MB):
    found = learned_curve()
    return found.model_copy(
        update={
            "parameter_bytes": parameters,
            "optimizer_bytes": optimizer,
            "largest_bytes": largest,
            "buffer_bytes": 1 * MB,
        }
    )


@pytest.mark.parametrize(
    ("of", "servers", "millions"),
    [
        (
            curve(),
            1,
            301 + 3 * 101 + 101 + 4 * 101,
        ),  # at the end: kept, exchanged, packed, and the head's
        (curve(optimizer=0), 1, 101 + 3 * 101 + 101 + 4 * 101),
        (
            curve(optimizer=900 * MB),
            1,
            1001 + 3 * 101 + 1001 + 10,
        ),  # while it saves: all that is kept twice
        (
            curve(largest=60 * MB),
            4,
            181 + 3 * 61 + 61 + 4 * 101,
        ),  # no share is smaller than a tensor
    ],
)
def test_it_is_the_worst_of_starting_saving_and_ending(of, servers, millions):
    assert server_bytes(of, servers) == pytest.approx(BASE_BYTES + HEAD_BYTES + millions * MB)


def test_machines_that_cannot_hold_it_are_left_out():
    small, large = (
        planned(curve=each, quotas={"p3.2xlarge": 2})
        for each in (curve(), curve(2_000 * MB, 4_000 * MB))
    )
    needs = server_bytes(curve(2_000 * MB, 4_000 * MB), 1)
    assert large.pool.server.needs_bytes == needs
    assert small.pool.server.memory_bytes < needs <= large.pool.server.memory_bytes
    assert document(large)["server_needs_bytes"] == needs
    assert dict(page(large, "x").chapters[0].facts)["memory"].startswith(
        "a server needs 23.6 GB of "
    )


BRISK = InterruptionBand(low=1.0, high=1.0)


def tight(deadline=2400):
    """A plan whose cheapest fleet is in time by a second or two, if no machine is revoked."""
    pool = published_pool().model_copy(update={"start_seconds": 60.0})
    return provision(FleetWish(pool, 0.8, deadline))


def everywhere(rate):
    return {kind.name: rate for kind in published_pool().types}


def test_a_fleet_that_revocations_make_late_gives_way_to_one_that_is_in_time():
    plan = tight()
    found = plan_with_revocations(plan, everywhere(BRISK))
    assert found.chosen.workers != plan.chosen.workers
    assert not keeps_limits(add_risk(plan, everywhere(BRISK)))
    assert keeps_limits(found)
    assert found.risk.weighed > 1
    # The one for machines that stay is cheaper by a little, and stands beside it with its chance.
    assert plan.chosen.dollars < found.risk.dollars.value < 1.2 * plan.chosen.dollars
    beside = next(each for each in found.runners_up if each.fleet.workers == plan.chosen.workers)
    assert "without revocations; with them in time with unknown probability" in beside.why


def test_no_fleet_that_is_in_time_often_enough_is_cheaper():
    # By force: every fleet of the pool that would do, and costs less, if no machine were revoked.
    plan = tight(deadline=2150)
    found = plan_with_revocations(plan, everywhere(BRISK))
    wish = FleetWish(plan.pool, plan.loss, plan.deadline_seconds)
    every = all_fleets(wish)
    cheaper = (every.feasible & (every.dollars < found.risk.dollars.value)).nonzero()[0].tolist()
    assert len(cheaper) >= found.risk.weighed - 1
    for at in cheaper:
        fleet = cost_fleet(wish, every, at)
        other = add_risk(plan.model_copy(update={"chosen": fleet}), everywhere(BRISK), 1000)
        assert (
            not keeps_limits(other) or other.risk.dollars.value >= found.risk.dollars.value * 0.998
        )


def test_where_no_fleet_is_in_time_the_cheapest_is_kept_and_spot_refused(
    monkeypatch,
):
    monkeypatch.setattr(planning, "_SECONDS", 0.2)  # whatever is looked at, it is late
    plan = tight(deadline=2000)
    hopeless = InterruptionBand(low=12, high=12)
    found = plan_with_revocations(plan, everywhere(hopeless))
    assert found.chosen == plan.chosen
    assert found.risk.advice.startswith("refuse spot: revocations alone make 100% of runs late")


def test_an_unknown_type_of_the_plans_own_fleet_is_said():
    with pytest.raises(UserError, match=r"how often p3\.2xlarge is revoked is unknown"):
        plan_with_revocations(tight(), {"k80": BRISK})


def test_a_plan_without_a_fleet_has_no_risk():
    plan = tight(deadline=100)
    assert plan_with_revocations(plan, everywhere(BRISK)) == plan
