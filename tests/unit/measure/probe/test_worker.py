"""What the nodes of a probe tell each other in a store that is open to everybody: records, or it is refused."""

from __future__ import annotations

import pickle

import pytest
from torch.distributed import HashStore

from stash.core.records.host import Links
from stash.measure.probe import probe_worker
from stash.measure.probe.probe_orders import PARTS, ProbeOrders
from stash.measure.probe.team import AbsentError, Team
from stash.measure.protocol.wire import packed

OWN = ProbeOrders("folder", "scratch", 45.0)


def team(rank: int, store: object) -> Team:
    return Team(store, rank, 2, {"GROUP_RANK": str(rank)})


def test_node_0_decides_for_all():
    store = HashStore()
    decided = ProbeOrders("other", "other", 7.0, ("copies", "reads"), kind="images")
    assert probe_worker._agreed(team(0, store), decided) == decided
    agreed = probe_worker._agreed(team(1, store), OWN)
    assert (agreed.budget, agreed.parts, agreed.kind, agreed.folder) == (7.0, ("copies", "reads"), "images", "folder")


STRANGE = [
    b"", b"[" * 4000, b"[1, [], null]", pickle.dumps(OWN),
    b'{"record": "Agreement", "fields": [1e999, {"tuple": []}, null]}',
    packed(probe_worker.Contribution("{}", None)), packed(probe_worker.Agreement(1.0, ("../../etc",), None)),
    packed(probe_worker.Agreement(1.0, PARTS, "no such kind")),
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_what_no_node_0_says_is_refused(text: bytes):
    store = HashStore()
    store.set("orders", text)
    with pytest.raises(AbsentError, match="published what this version"):
        probe_worker._agreed(team(1, store), OWN)


@pytest.mark.parametrize("text", ["", "7", '{"created": 1}', "[" * 4000])
def test_what_are_no_links_is_refused(text: str):
    with pytest.raises(AbsentError, match="published what this version"):
        probe_worker._validated(1, Links, text)
