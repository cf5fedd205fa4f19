"""Sockets and EFA are different machines: which is forecast is asked for, or is what the profile used."""

from dataclasses import replace

import numpy as np
import pytest
from forecast_profiles import gpu_job

from stash.core.errors import UserError
from stash.core.measured import Collective
from stash.core.records.host import Gpu, Host, Limits
from stash.predict.changes import Alteration
from stash.predict.cluster import Network, Target, socket_limit, transport_used
from stash.predict.cluster_sources import target_of_instance
from stash.predict.collective_times import fabric_of
from stash.predict.draws import Draws, Quantity
from stash.predict.forecasting import base_of, shipped_catalog, what_if

CATALOG = shipped_catalog()


def base(seconds=0.130, instance=None):
    """Two nodes of four T4s each, whose exchange of 102 MB takes ``seconds``."""
    cards = tuple(Gpu(index=j, name="Tesla T4", memory_bytes=15 * 2**30) for j in range(4))
    hosts = tuple(
        Host(
            hostname=f"h{i}",
            instance=instance,
            cores=48,
            memory_bytes=190 * 2**30,
            gpus=cards,
            limits=Limits(),
        )
        for i in range(2)
    )
    runs = tuple(
        Collective(
            scope="world", ranks=8, bytes=102_228_128, seconds=seconds * k, latency_seconds=0.0001
        )
        for k in (0.99, 1.0, 1.01)
    )
    return base_of(gpu_job(ranks=8, hosts=hosts, collectives=runs), draws=Draws(64))


def test_without_set_up_nodes_talk_over_sockets():
    plain, quick = (
        target_of_instance(CATALOG.instance("g4dn.12xlarge"), 2, each)
        for each in ("sockets", "rdma")
    )
    assert (plain.transport_name, quick.transport_name) == ("sockets", "EFA")
    limit = socket_limit()
    # a line of 12.5 GB/s, and sockets
    linked = target_of_instance(CATALOG.instance("p3dn.24xlarge"), 2)
    assert linked.network.bytes_per_second.value == pytest.approx(limit.value)
    # it has nothing else
    assert target_of_instance(CATALOG.instance("p3.8xlarge"), 2, "rdma").transport_name == "sockets"
    assert target_of_instance(CATALOG.instance("p3.8xlarge"), 1).transport_name is None


def test_sockets_of_machines_whose_gpus_have_no_links_carry_a_tenth() -> None:
    """Sia's T4 machines, 50 Gbit: three and four of four GPUs carry 0.5 GB/s, two half of that; a line of 6.25 GB/s was
    taken to carry 2.7."""
    pair, more = (target_of_instance(CATALOG.instance("g4dn.12xlarge"), nodes) for nodes in (2, 3))
    assert 0.5e9 < more.network.bytes_per_second.value < 0.6e9
    carried = [np.median(fabric_of(each, Draws(64)).between) for each in (pair, more)]
    assert carried[0] == pytest.approx(carried[1] / 2)
    linked = [target_of_instance(CATALOG.instance("p3.2xlarge"), nodes) for nodes in (2, 3)]
    assert np.array_equal(*(fabric_of(each, Draws(64)).between for each in linked))
    one_each = base_of(gpu_job(nodes=1, ranks=1, hosts=base().profile.hosts[:1]), draws=Draws(64))
    wider = what_if(one_each, Alteration(nodes=2, network=50e9 / 8)).target.network
    assert 0.7e9 < wider.bytes_per_second.value < 1e9


def test_more_nodes_than_a_measured_pair_may_carry_up_to_twice_as_much() -> None:
    """Of T4s, which share PCIe; of GPUs with links of their own a measured rate stays."""
    pair = base()
    target = replace_nodes(pair.target, 3)
    rates = fabric_of(target, pair.draws).between
    beyond = pair.exchange._beyond_pair(fabric_of(target, pair.draws), target).between
    assert (beyond / rates).min() == pytest.approx(1.0, abs=0.01)
    assert (beyond / rates).max() == pytest.approx(2.0, abs=0.01)
    linked = base_of(gpu_job(), draws=Draws(64))
    same = fabric_of(replace_nodes(linked.target, 3), linked.draws)
    assert linked.exchange._beyond_pair(same, replace_nodes(linked.target, 3)) is same


def replace_nodes(target: Target, nodes: int) -> Target:
    return target.model_copy(update={"nodes": nodes})


def test_what_the_profile_used_is_told_by_its_rate() -> None:
    def network(rate: float, **more: object) -> Network:
        known = Quantity(
            value=rate, low=0.98 * rate, high=1.02 * rate, origin="measured", source="x"
        )
        return Network(bytes_per_second=known, **more)

    limit = socket_limit()
    assert transport_used(None) == "sockets"
    assert transport_used(network(1.1e9)) == "sockets"
    assert transport_used(network(1.1 * limit.high)) == "rdma"
    assert transport_used(network(1.1e9, transport="efa")) == "rdma"


def test_the_profiled_machines_over_another_transport_need_their_type():
    there = base(instance="g4dn.12xlarge")
    forecast = what_if(there, Alteration(transport="efa"))
    assert forecast.target.transport_name == "EFA"
    assert {part.stall: part.origin for part in forecast.grounds}["compute"] == "measured"
    assert (
        what_if(there, Alteration(transport="sockets")).breakdown.step
        == what_if(there).breakdown.step
    )
    with pytest.raises(UserError, match="name it with --instance, or say a rate with --network"):
        what_if(base(), Alteration(transport="efa"))


def test_what_a_described_cluster_talks_over_is_not_changed_by_the_option():
    quick = target_of_instance(CATALOG.instance("g4dn.12xlarge"), 2, "rdma")
    asked = replace(base(), clusters=lambda file: quick)
    assert (
        what_if(asked, Alteration(cluster="lab.yaml", transport="efa")).target.transport_name
        == "EFA"
    )
    assert (
        what_if(
            asked, Alteration(cluster="lab.yaml", transport="sockets", network=1e9)
        ).target.transport_name
        == "sockets"
    )
    with pytest.raises(
        UserError, match=r"--transport: lab\.yaml says already what its nodes talk over"
    ):
        what_if(asked, Alteration(cluster="lab.yaml", transport="sockets"))


def test_a_given_line_is_reached_over_what_is_asked_for():
    asked = base()
    sockets, direct = (
        what_if(asked, Alteration(network=50e9, transport=each)) for each in (None, "ib")
    )
    assert direct.target.transport_name == "InfiniBand"
    slow, fast = sockets.target.network.bytes_per_second, direct.target.network.bytes_per_second
    assert slow.value < fast.value < 50e9
