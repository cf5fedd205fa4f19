"""When a link carries what was asked, and how long that takes to say."""

import json
import subprocess

import pytest

from stash.lab.testbed import verify
from stash.lab.testbed.topology import Owner, make_topology

OWNER = Owner(77, 0xABC, 0xD, 0)


def test_a_link_is_right_within_five_percent_and_is_measured_long_enough():
    links = verify.list_links(make_topology(1, network="1mbit", interconnect="1gbit"))
    assert [(link.name, link.direction) for link in links] == [
        ("network", "up"),
        ("network", "down"),
        ("interconnect", "both"),
    ]
    assert verify.stream_of(links[0], OWNER).seconds == 10
    assert verify.stream_of(links[2], OWNER).seconds == pytest.approx(0.3)
    link = verify.ShapedLink(0, "network", "up", 100.0, 95.1, 0)
    assert link.right
    assert not verify.ShapedLink(0, "network", "up", 100.0, 94.9, 0).right


def test_many_slow_links_are_waited_for_as_long_as_all_of_them_take(
    monkeypatch,
):
    waited = []

    def measured(argv, patience):
        waited.append(patience - sum(seconds for *_, seconds, _ in json.loads(argv[-1])))
        return subprocess.CompletedProcess(argv, 0, json.dumps([125_000.0] * 128), "")

    monkeypatch.setattr("stash.lab.testbed.verify.run_command", measured)
    assert len(verify.verify_links(make_topology(64, network="1mbit"), OWNER)) == 128
    assert waited[0] > 128 * 3  # and a link may stand still
