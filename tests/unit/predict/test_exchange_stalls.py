"""The exchange stalls of a forecast: by hand, and what must hold of every one."""

from functools import cache

import numpy as np
import pytest
from forecast_profiles import cpu_job
from profile_builder import build

from stash import catalog
from stash.analysis.attribution import attribute
from stash.core.measured import Collective
from stash.core.records.profile import Bucket, Gradient
from stash.predict.changes import Alteration
from stash.predict.cluster import Network
from stash.predict.cluster_sources import target_of_instance, target_of_profile
from stash.predict.draws import Draws
from stash.predict.draws import given_quantity as wished
from stash.predict.exchange_stalls import ExchangeModel
from stash.predict.exposure import AS_MEASURED, ExchangeChanges, exchange_of, shown_seconds
from stash.predict.forecasting import base_of, what_if

DRAWS = Draws()
WIGGLE = (-0.001, 0.001, -0.0005, 0.0005)
MB = 10**6


def job(
    exposed,
    rate=1e8,
    ready=(0.0, 0.02, 0.04),
    **work,
):
    """Two nodes of one device: three gradients of 1 MB, a bucket each, 10 ms apiece at 100 MB/s of bus bandwidth."""
    gradients = tuple(
        Gradient(name=str(i), bytes=MB, ready_seconds=moment) for i, moment in enumerate(ready)
    )
    runs = tuple(
        Collective(scope="world", ranks=2, bytes=3 * MB, seconds=0.03 * noise, latency_seconds=1e-6)
        for noise in (0.99, 1.0, 1.0, 1.01)
    )
    steps = [0.1 + each for each in WIGGLE]
    return build(
        {"solo": steps, "crowd": steps, "cluster": [each + exposed for each in steps]},
        ranks=2,
        nodes=2,
        collectives=runs,
        workload={"gradients": gradients, "bucket_bytes": (MB,) * 3, **work},
    )


@cache
def model_of(exposed, known=True):
    profile = job(exposed, ready=(0.0, 0.02, 0.04) if known else (None, None, None))
    base = target_of_profile(profile)
    return ExchangeModel(profile, attribute(profile), base, DRAWS), base


def network(exposed, target=None, changes=AS_MEASURED):
    model, base = model_of(exposed)
    (part,) = model.predict(target or base, changes).parts
    return part.seconds


def at(rate, base, nodes=2):
    wished_for = base.network.model_copy(update={"bytes_per_second": wished(rate, "--network")})
    return base.model_copy(update={"network": wished_for, "nodes": nodes})


def test_where_nothing_changes_the_forecast_is_the_measurement():
    for exposed in (0.0, 0.005, 0.01, 0.05, -0.0001):
        profile = job(exposed)
        stall = attribute(profile).stall("network")
        drawn = network(exposed)
        assert drawn.mean() == pytest.approx(stall.seconds, abs=1e-12)
        assert stall.low is not None
        assert np.percentile(drawn, 2.5) == pytest.approx(stall.low, abs=2e-4)
        (part,) = model_of(exposed)[0].predict(model_of(exposed)[1]).parts
        assert part.origin == "measured"
        assert part.beyond == ()


def test_what_the_model_misses_stays_or_grows_with_the_exchange():
    # 20 ms were exposed where the model says 10: the 10 it misses become between 10 and 40 at a quarter of the rate.
    _, base = model_of(0.02)
    found = network(0.02, at(0.25e8, base)) - 0.08
    assert np.percentile(found, 5) == pytest.approx(0.01, abs=0.005)
    assert np.percentile(found, 95) == pytest.approx(0.04, abs=0.008)


def test_where_the_model_says_too_much_its_share_is_kept():
    # 5 ms were exposed where the model says 10: half of the 80 ms at a quarter of the rate.
    _, base = model_of(0.005)
    assert network(0.005, at(0.25e8, base)).mean() == pytest.approx(0.04, rel=0.1)


def test_smaller_buckets_overlap_more_and_larger_ones_less():
    _, base = model_of(0.01)
    slow = at(0.5e8, base)  # 20 ms a bucket: exposed is the last one's 20 ms
    assert network(0.01, slow).mean() == pytest.approx(0.02, rel=0.05)
    one = network(0.01, slow, ExchangeChanges(bucket_cap=3e6))
    # A cap that is named is the first bucket's, too: one bucket of all three, 60 ms long, after the backward pass.
    assert one.mean() == pytest.approx(0.06, rel=0.05)


def test_compression_halves_what_travels():
    _, base = model_of(0.01)
    assert network(0.01, base, ExchangeChanges(compress=0.5)).mean() == pytest.approx(
        0.005, rel=0.1
    )


def test_exchanging_after_each_of_several_batches_costs_as_many_times():
    _, base = model_of(0.01)
    assert network(0.01, base, ExchangeChanges(times=4.0)).mean() == pytest.approx(0.04, rel=0.1)


def test_a_shorter_backward_pass_hides_less():
    _, base = model_of(0.01)
    # Buckets ready every 5 ms and 10 ms long: 30 − 10.
    assert network(0.01, base, ExchangeChanges(compute=0.25)).mean() == pytest.approx(
        0.02, rel=0.05
    )


def test_a_target_without_network_facts_is_unknown_and_never_assumed():
    model, base = model_of(0.01)
    found = model.predict(base.model_copy(update={"network": None, "nodes": 4}))
    assert found.parts == ()
    assert found.missing[-1].possible
    assert "say it with --network" in found.missing[-1].why


def test_without_readiness_as_much_hides_as_did_and_the_forecast_says_so():
    # 30 ms alone, 10 exposed: 20 hide. At half of the rate 60 ms less 20 are exposed.
    model, base = model_of(0.01, known=False)
    (part,) = model.predict(at(0.5e8, base)).parts
    assert part.seconds.mean() == pytest.approx(0.04, rel=0.1)
    assert "does not tell when gradients are ready" in part.beyond[0]


def test_a_data_sheet_says_data_sheet_and_is_wide():
    model, _ = model_of(0.01)
    found = {
        part.name: part
        for part in model.predict(target_of_instance(catalog.instance("p3.8xlarge"), 2)).parts
    }
    assert set(found) == {"interconnect", "network"}
    assert found["network"].origin == "data sheet"
    assert any("no exchange inside a node" in sentence for sentence in found["interconnect"].beyond)
    assert found["interconnect"].seconds.std() > 0.1 * found["interconnect"].seconds.mean()


def test_a_profile_without_gradients_says_what_adds_them():
    profile = job(0.01, ready=(), bucket_bytes=())
    base = target_of_profile(profile)
    found = ExchangeModel(profile, attribute(profile), base, DRAWS).predict(at(1e7, base))
    assert "profile again" in found.missing[-1].why


def test_collectives_of_the_script_s_own_are_counted():
    extra = {
        "collectives_per_step": {"all_reduce": 10.0},
        "collective_bytes_per_step": {"all_reduce": 1e6},
    }
    profile = job(0.02, **extra)
    base = target_of_profile(profile)
    model = ExchangeModel(profile, attribute(profile), base, DRAWS)
    (part,) = model.predict(at(0.25e8, base)).parts
    # The buckets' 80 ms, and ten collectives of 0.1 MB: 1 ms each before, 4 ms now.
    assert part.seconds.mean() == pytest.approx(0.12, rel=0.05)


def test_an_exchange_that_was_hidden_altogether_divides_by_nothing():
    profile = job(-0.0005, ready=(None, None, None), bucket_bytes=(3 * MB,))
    base = target_of_profile(profile)
    with np.errstate(all="raise"):
        (part,) = (
            ExchangeModel(profile, attribute(profile), base, DRAWS).predict(at(0.5e8, base)).parts
        )
    assert np.isfinite(part.seconds).all()


def two_ranks_on_a_node(exposed):
    """The same three buckets inside one node, 10 ms apiece at 100 MB/s."""
    gradients = tuple(Gradient(name=str(i), bytes=MB, ready_seconds=0.02 * i) for i in range(3))
    runs = tuple(
        Collective(scope="node", ranks=2, bytes=3 * MB, seconds=0.03 * noise, latency_seconds=1e-6)
        for noise in (0.99, 1.0, 1.0, 1.01)
    )
    steps = [0.1 + each for each in WIGGLE]
    return build(
        {"solo": steps, "crowd": steps, "node": [each + exposed for each in steps]},
        ranks=2,
        collectives=runs,
        workload={"gradients": gradients, "bucket_bytes": (MB,) * 3},
    )


@pytest.mark.parametrize("exposed", [0.005, 0.01, 0.03])
def test_a_network_faster_than_the_links_inside_a_node_costs_nothing_whatever_was_measured_inside(
    exposed,
):
    # The profile has no exchange between nodes, and its interconnect is not what the model says of it.
    profile = two_ranks_on_a_node(exposed)
    base = target_of_profile(profile)
    found = {
        part.name: part.seconds
        for part in ExchangeModel(profile, attribute(profile), base, DRAWS)
        .predict(
            base.model_copy(
                update={"nodes": 2, "network": Network(bytes_per_second=wished(1e13, "--network"))}
            )
        )
        .parts
    }
    assert found["interconnect"].mean() == pytest.approx(exposed, abs=5e-4)
    assert found["network"].min() >= 0.0
    # Four ranks send 3/2 of what two did over the links inside: up to 25 ms more, and nothing but that.
    assert found["network"].mean() <= 0.026


def looked_at(*steps):
    """The job of ``job`` whose three buckets were ready at these moments in each step that was looked at."""
    buckets = tuple(
        Bucket(bytes=MB, gradients=(str(i),), ready_steps=tuple(step[i] for step in steps))
        for i in range(3)
    )
    gradients = tuple(
        Gradient(
            name=str(i),
            bytes=MB,
            ready_seconds=steps[0][i],
            ready_steps=tuple(step[i] for step in steps),
        )
        for i in range(3)
    )
    return job(0.02, gradients=gradients, buckets=buckets)


def test_readiness_of_every_step_that_was_looked_at_counts():
    # At the end of a pass of 40 ms, or all at its end: 10 or 30 ms are exposed, and 20 in the mean of four steps.
    even, late = (0.0, 0.02, 0.04), (0.0399, 0.0399, 0.04)
    work = exchange_of(looked_at(even, late, even, late))
    assert work.buckets_ready == (even, late, even, late)
    profile = looked_at(even, late, even, late)
    base = target_of_profile(profile)
    half = at(0.5e8, base)
    (part,) = ExchangeModel(profile, attribute(profile), base, DRAWS).predict(half).parts
    # 20 ms a bucket: 20 or 60 exposed.
    assert part.seconds.mean() == pytest.approx(0.04, rel=0.05)


def test_a_bucket_waits_for_those_in_front_of_it():
    assert exchange_of(looked_at((0.03, 0.02, 0.04))).buckets_ready == ((0.03, 0.03, 0.04),)


def test_a_job_that_shards_its_model_itself_is_predicted_on_another_network():
    # 2 gathers of 3 MB in parts of half, and a scatter of 3 MB: 15 ms each at 100 MB/s, 45 in all, 20 of it exposed.
    own = {
        "bucket_bytes": (),
        "gradients": (),
        "collectives_per_step": {"all_gather_into_tensor": 2.0, "reduce_scatter_tensor": 1.0},
        "collective_bytes_per_step": {"all_gather_into_tensor": 3e6, "reduce_scatter_tensor": 3e6},
    }
    profile = job(0.02, **own)
    base = target_of_profile(profile)
    (part,) = ExchangeModel(profile, attribute(profile), base, DRAWS).predict(at(0.5e8, base)).parts
    assert part.seconds.mean() == pytest.approx(0.090 - 0.025, rel=0.06)
    assert "as much of their exchange hides as did" in part.beyond[0]
    # With NCCL anything of the 45 ms more shows, 22.5 in the mean; the plain rule has all of it, and half of the say.
    cuda = base.model_copy(update={"backend": "nccl"})
    (part,) = ExchangeModel(profile, attribute(profile), cuda, DRAWS).predict(at(0.5e8, cuda)).parts
    assert part.seconds.mean() == pytest.approx((0.0425 + 0.065) / 2, rel=0.06)


def test_what_stays_inside_a_node_keeps_its_measured_interval_though_its_links_have_none():
    """One exchange was timed, so its rate has no ends; what steps waited for it has, and stays on more nodes."""
    once = cpu_job(
        collectives=(Collective(scope="node", ranks=2, bytes=46_758_048, seconds=0.048),)
    )
    base = base_of(once, draws=Draws(64))
    was, forecast = (
        base.breakdown.stall("interconnect"),
        what_if(base, Alteration(nodes=2, network=1.25e9)),
    )
    now = forecast.breakdown.stall("interconnect")
    assert now.time.low is not None
    assert now.seconds == pytest.approx(was.seconds)
    assert {part.stall: part.origin for part in forecast.grounds}["interconnect"] == "measured"


def test_between_nodes_as_much_hides_as_did_inside_one_where_readiness_is_unknown():
    """By hand: 36 of 48 ms were exposed, so 12 hide. On two nodes of two, all four ranks at the rate of the slower
    link: nothing below zero, and a faster line exposes no more."""
    work = {
        "name": "resnet18",
        "parameter_bytes": 46_758_048,
        "bucket_bytes": (46_758_048,),
        "gradients": (),
    }
    base = base_of(cpu_job(workload=work), draws=Draws(64))
    waited = []
    for rate in (1e8, 1e9, 1e10):
        forecast = what_if(base, Alteration(nodes=2, network=rate))
        assert not forecast.unknown
        waited.append(forecast.breakdown.seconds("network"))
    assert waited[0] > waited[1] >= waited[2] >= 0
    # 2·3/4 of 46.8 MB at 100 MB/s take 701 ms alone; 12 of them hide, and 36 are inside the node.
    assert waited[0] == pytest.approx(0.701 - 0.012 - 0.036, rel=0.2)


def test_a_slow_exchange_hides_and_a_faster_link_never_shows_more():
    """8 GB: over 1 GB/s 8 s, 5 of them hidden, of which 3/4 of a quarter show; over 8 GB/s 1 s, of which 3/4 do."""
    half = np.full(1, 0.5)
    rates = np.array([1e9, 2e9, 4e9, 8e9])
    alone = 8e9 / rates
    shown = shown_seconds(np.maximum(0.0, alone - 5.0), alone, rates, half)
    assert shown == pytest.approx([3 + 5 * 0.75 / 4, 4 * 0.75 / 2, 2 * 0.75, 0.75])
    assert np.all(np.diff(shown) <= 0)
