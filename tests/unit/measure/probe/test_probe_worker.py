"""What the nodes of a probe publish for each other: records, or it is refused; and what was found, as a probe."""

import pickle

import pytest
from torch.distributed import HashStore

from stash.core.records.host import Host, Stream, Timing
from stash.measure.probe import probe_worker
from stash.measure.probe.probe_orders import ProbeOrders
from stash.measure.probe.probe_worker import NodeReport, make_probe, sort_links
from stash.measure.probe.team import AbsentError, Team

OWN = ProbeOrders("folder", "scratch", 45.0)


def team(rank, store):
    return Team(store, rank, 2, node=rank)


def test_node_0_decides_for_all():
    store = HashStore()
    decided = ProbeOrders("other", "other", 7.0, ("copies", "reads"))
    assert probe_worker._agree_on_orders(team(0, store), decided) == decided
    agreed = probe_worker._agree_on_orders(team(1, store), OWN)
    assert (agreed.budget, agreed.parts, agreed.folder) == (7.0, ("copies", "reads"), "folder")


STRANGE = [
    b"",
    b"[" * 4000,
    b"[1, [], null]",
    pickle.dumps(OWN),
    b'{"budget": 1e999, "parts": []}',
    b'{"budget": 1.0, "parts": ["../../etc"]}',
    b'{"links": {}, "steal": null}',
]


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_what_no_node_0_says_is_refused(text):
    store = HashStore()
    store.set("orders", text)
    with pytest.raises(AbsentError, match="published what this version"):
        probe_worker._agree_on_orders(team(1, store), OWN)


def test_streams_are_kept_where_they_come_from_and_what_is_left_is_unmeasured():
    stream = Stream(source=0, target=1, flows=1, timings=(Timing(bytes=1, seconds=(1.0,)),))
    reports = [
        NodeReport(links=sort_links([], 1.0), steal=0.1),
        NodeReport(links=sort_links([stream], 1.0)),
    ]
    hosts = [Host(hostname="a"), Host(hostname="b")]
    probe = make_probe(OWN, hosts, reports, ["exchanges"], 2.0)
    first, second = (host.links for host in probe.hosts)
    assert (first.streams, second.streams) == ((stream,), ())
    assert [one.link for one in first.skipped] == ["exchanges"]
    assert probe.hosts[0].steal_fraction == 0.1
