"""How process groups fall into parts at the nodes' edges: pairs of ranks, and groups across two nodes of four."""

from __future__ import annotations

from stash.measure.agent.wraps.groups import Membership, parts_on

NODES = {rank: rank // 4 for rank in range(8)}


def group(name, *ranks) -> Membership:
    return Membership(name, ranks, "gloo")


def test_a_group_on_one_node_has_no_parts():
    assert parts_on(NODES, [group("pair", 0, 1), group("node", 4, 5, 6, 7)]) == []


def test_a_group_across_nodes_falls_into_one_part_a_node_in_its_own_order():
    assert parts_on(NODES, [group("even", 6, 4, 2, 0)]) == [
        group("even", 6, 4),
        group("even", 2, 0),
    ]


def test_a_rank_that_is_alone_on_its_node_needs_no_group():
    assert parts_on(NODES, [group("corners", 0, 4)]) == []
    assert parts_on(NODES, [group("odd", 0, 1, 4)]) == [group("odd", 0, 1)]


def test_the_order_is_the_same_whoever_asks_and_each_group_is_cut_once():
    world, even = group("0", *range(8)), group("1", 0, 2, 4, 6)
    assert parts_on(NODES, [even, world, even]) == parts_on(NODES, {world, even})
    assert [part.name for part in parts_on(NODES, [even, world])] == ["0", "0", "1", "1"]
