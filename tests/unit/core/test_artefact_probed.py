"""A probe's links put into a profile's hosts."""

import pytest
from probe_builder import gpus, host, links, probe
from profile_builder import build

from stash.core.artefact import add_links, check_probed
from stash.core.errors import UserError

pytestmark = pytest.mark.usefixtures("home")


def measured_links(seconds):
    return links().model_copy(update={"elapsed_seconds": seconds})


def test_links_go_to_the_hosts_of_the_same_name_and_the_others_are_said_to_be_unknown():
    profile = build({"solo": [0.1, 0.2]}, ranks=4, nodes=2)
    filled = add_links(profile, probe(host("node1", measured_links(3.0), gpus=gpus(8))))
    assert [item.links for item in filled.hosts] == [None, measured_links(3.0)]
    assert filled.hosts[1].gpus == profile.hosts[1].gpus
    assert "the links of node0 are unknown" in filled.notes[-1]


def test_nodes_that_share_a_name_are_matched_in_order():
    profile = build({"solo": [0.1, 0.2]}, ranks=2, nodes=2, host={})
    same = profile.model_copy(
        update={"hosts": tuple(h.model_copy(update={"hostname": "vm"}) for h in profile.hosts)}
    )
    filled = add_links(
        same, probe(host("vm", measured_links(1.0)), host("vm", measured_links(2.0)))
    )
    assert [item.links.elapsed_seconds for item in filled.hosts] == [1.0, 2.0]


def test_a_probe_of_other_machines_is_refused_in_a_sentence():
    with pytest.raises(
        UserError,
        match=r"is of node0, not of this machine \(here\); probe this one",
    ):
        check_probed(
            probe(host("node0", links())),
            "x.host.json",
            ("here",),
            "not of this machine (here); probe this one",
        )
    with pytest.raises(UserError, match="holds no measured link"):
        check_probed(
            probe(host("here")),
            "x.host.json",
            ("here",),
            "not of this machine (here); probe this one",
        )
    check_probed(
        probe(host("here", links())),
        "x.host.json",
        ("here",),
        "not of this machine (here); probe this one",
    )
