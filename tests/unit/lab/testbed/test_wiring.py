"""What a testbed would do to a machine, read without being root: switch, links, shaping."""

from stash.lab.testbed import wiring
from stash.lab.testbed.topology import Owner, make_topology, owner_of

OWNER = Owner(77, 0xABC, 0xD, 0)


def lines(*args, **options):
    return [step.describe() for step in wiring.set_up(*args, **options)]


def test_each_link_is_shaped_in_both_directions_and_loopback_as_the_interconnect():
    steps = lines(
        make_topology(
            2, network="1gbit", interconnect="4gbit", overrides={1: {"network": "100mbit"}}
        ),
        OWNER,
    )
    shaped = [line.split(" latency")[0] for line in steps if " tbf " in line]
    head = "tc -n stash-tb-77-abc-d-0"
    assert shaped == [
        f"{head}-n0 qdisc replace dev stash-tb0 root tbf rate 1000000000bit burst 262500",
        f"{head}-sw qdisc replace dev stash-tbp0 root tbf rate 1000000000bit burst 262500",
        f"{head}-n0 qdisc replace dev lo root tbf rate 4000000000bit burst 1050000",
        f"{head}-n1 qdisc replace dev stash-tb1 root tbf rate 100000000bit burst 65536",
        f"{head}-sw qdisc replace dev stash-tbp1 root tbf rate 100000000bit burst 65536",
        f"{head}-n1 qdisc replace dev lo root tbf rate 4000000000bit burst 1050000",
    ]


def test_every_command_stays_inside_namespaces_of_our_own():
    steps = wiring.set_up(make_topology(3, network="1gbit", interconnect="1gbit"), OWNER)
    # a namespace for each host, and the switch
    assert sum(step.undo is not None for step in steps) == 4
    for step in steps:
        program, first, second, *_ = step.argv
        assert (program, first) in (("ip", "netns"), ("ip", "-n"), ("tc", "-n"))
        name = step.argv[3] if first == "netns" else second
        assert owner_of(name) == OWNER
        assert (step.undo is not None) == (first == "netns")


def test_interface_names_fit_the_kernels_fifteen_characters():
    assert max(len(name) for name in (wiring.interface(63), "stash-tbp63", wiring.BRIDGE)) <= 15
