"""The rungs, which of them can differ on a job, and the order in which a round measures them."""

import pytest

from stash.core.errors import UserError
from stash.core.ladder import (
    CATCH_UP,
    NAMES,
    NOT_ASKED,
    STALLS,
    Situation,
    has_no_exchange,
    parse_rungs,
    round_of_visits,
    rung,
    rung_adding,
    split_reachable,
    stall_names,
    why_no_stall,
    why_not,
)


def situation(**changes):
    usual = {"world_size": 4, "nodes": 2, "ranks_per_node": 2, "accelerator": True, "loader": True}
    return Situation(**{**usual, **changes})


def test_every_rung_adds_one_stall_in_ladder_order():
    assert NAMES == ("resident", "solo", "crowd", "node", "cluster", "warm", "cold")
    assert STALLS == (
        "compute",
        "transfer",
        "contention",
        "bubble",
        "interconnect",
        "network",
        "prep",
        "fetch",
    )


def test_the_first_rung_run_is_compute_whichever_it_is():
    assert stall_names(("solo", "crowd", "warm")) == ("compute", "contention", "prep")
    assert stall_names(("cluster",)) == ("compute",)
    assert [rung_adding(stall).name for stall in STALLS if stall != "bubble"] == list(NAMES)


def test_collectives_are_held_back_until_everybody_exchanges():
    assert [name for name in (*NAMES, CATCH_UP, "starting") if has_no_exchange(name)] == [
        *("resident", "solo", "crowd", "node", CATCH_UP)
    ]


@pytest.mark.parametrize(
    ("changes", "cannot_exist"),
    [
        ({}, set()),
        ({"accelerator": False}, {"transfer"}),
        (
            {"world_size": 1, "nodes": 1, "ranks_per_node": 1},
            {"contention", "interconnect", "network"},
        ),
        ({"nodes": 1}, {"network"}),
        ({"ranks_per_node": 1}, {"interconnect"}),
        ({"loader": False}, set()),  # nothing is known of data stalls, which is not the same
    ],
)
def test_some_stalls_cannot_exist_on_some_jobs(changes, cannot_exist):
    assert {stall for stall in STALLS if why_no_stall(stall, situation(**changes))} == cannot_exist


def test_a_rung_is_not_worth_measuring_if_its_stall_cannot_exist_or_there_is_no_loader():
    assert {name for name in NAMES if why_not(name, situation(loader=False))} == {
        "resident",
        "warm",
        "cold",
    }
    assert why_not("resident", situation(accelerator=False)) == why_no_stall(
        "transfer", situation(accelerator=False)
    )
    assert why_not("solo", situation(accelerator=False)) is None


def test_an_unknown_rung_is_refused_with_the_valid_names():
    with pytest.raises(UserError, match="resident, solo, crowd"):
        rung("hot")


def test_rungs_are_put_into_ladder_order():
    assert parse_rungs("warm, solo,cluster") == ("solo", "cluster", "warm")


@pytest.mark.parametrize("text", ["", " , "])
def test_an_empty_list_of_rungs_is_refused(text):
    with pytest.raises(UserError, match="no rungs"):
        parse_rungs(text)


def test_a_cpu_job_on_one_node_skips_the_copy_and_the_network():
    rungs, skipped = split_reachable(situation(accelerator=False, nodes=1, world_size=2))
    assert rungs == ("solo", "crowd", "node", "warm", "cold")
    assert skipped["cluster"] == "one node"
    assert "no host-to-device copy" in skipped["resident"]


def test_without_a_loader_data_stalls_are_unknown():
    _, skipped = split_reachable(situation(loader=False))
    assert set(skipped) == {"resident", "warm", "cold"}
    assert "stash.loader" in skipped["warm"]


def test_rungs_not_asked_for_say_so():
    rungs, skipped = split_reachable(situation(), ("solo", "cluster"))
    assert rungs == ("solo", "cluster")
    assert skipped["warm"] == NOT_ASKED == "not asked for (--rungs)"


@pytest.mark.parametrize(
    ("rungs", "even", "odd"),
    [
        ("crowd node warm", "crowd node warm", "warm node crowd"),
        # cold is the first to read its samples, which replays need too
        ("crowd node warm cold", "cold warm crowd node", "cold warm node crowd"),
    ],
)
def test_even_rounds_ascend_and_odd_ones_descend_after_cold(rungs, even, odd):
    for number, expected in enumerate((even, odd)):
        visits = round_of_visits(tuple(rungs.split()), number, 2)
        assert [visit.rung for visit in visits if visit.measured] == expected.split()


def test_cold_always_runs_just_before_warm():
    for number in (0, 1):
        names = [v.rung for v in round_of_visits(NAMES, number, 2)]
        assert names.index("warm") == names.index("cold") + 1


def test_followers_catch_up_after_blocks_of_the_leader_alone():
    visits = round_of_visits(("solo", "crowd"), 0, 2)
    assert [(v.rung, v.active, v.measured) for v in visits] == [
        ("solo", "leader", True),
        ("catch-up", "followers", False),
        ("crowd", "all", True),
    ]


def test_batches_that_cannot_be_kept_on_the_device_leave_the_transfer_unknown():
    why = "batches (Graphs) cannot be put on cuda"
    rungs, skipped = split_reachable(situation(immovable=why))
    assert skipped == {"resident": why}
    assert rungs == NAMES[1:]
