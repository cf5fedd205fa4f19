"""What is asked of a testbed, read from words and refused in words."""

import pytest

from stash.core.errors import UserError
from stash.lab.testbed.topology import HostSpec, make_topology


def test_hosts_are_alike_but_for_their_overrides():
    made = make_topology(
        3,
        network="1gbit",
        interconnect="1GB/s",
        overrides={1: {"network": "100mbit", "disk": "50MB/s"}},
    )
    assert made.hosts[0] == made.hosts[2] == HostSpec(network=125e6, interconnect=1e9)
    assert made.hosts[1] == HostSpec(network=12.5e6, interconnect=1e9, disk=50e6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 0}, "1 to 64"),
        ({"nodes": 2, "devices": 0}, "at least one"),
        ({"nodes": 2, "network": "10 gbots"}, "gbots"),
        ({"nodes": 2, "network": "0bit"}, "more than 0"),
        ({"nodes": 2, "overrides": {2: {"network": "1gbit"}}}, "0 to 1"),
        ({"nodes": 2, "overrides": {1: {"netwrok": "1gbit"}}}, "network, interconnect, disk"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_in_words(arguments, words):
    with pytest.raises(UserError, match=words):
        make_topology(**arguments)
