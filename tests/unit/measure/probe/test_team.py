"""Ranks that meet, and one that does not come."""

import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from stash.measure.probe.team import AbsentError, Team, find_place, parse_places


def test_somebody_who_does_not_come_is_waited_for_only_once():
    store = HashStore()
    store.set_timeout(timedelta(seconds=1))
    team = Team(store, 0, 2)
    began = time.monotonic()
    with pytest.raises(AbsentError, match="stopped answering"):
        team.meet("begin", 0.2)
    with pytest.raises(AbsentError):
        team.meet("next", 600.0)
    assert time.monotonic() - began < 300


def test_two_who_come_both_go_on():
    store = HashStore()
    teams = [Team(store, rank, 2) for rank in range(2)]
    threads = [
        threading.Thread(target=team.meet, args=("begin", 60.0), daemon=True) for team in teams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert all(team.lost is None for team in teams)


def test_ranks_tell_their_nodes_and_addresses():
    assert parse_places(["0 10.0.0.1", "0 10.0.0.1", "1 fd00::2"]) == (
        (0, 0, 1),
        ("10.0.0.1", "fd00::2"),
    )


@pytest.mark.parametrize(
    ("rank", "environment", "place"),
    [
        (0, {}, (0, 0)),
        (1, {}, (1, 0)),
        (2, {}, (0, 1)),
        (3, {}, (1, 1)),
        (3, {"LOCAL_RANK": "5"}, (1, 5)),
    ],
)
def test_where_no_launcher_numbers_nodes_machines_are(rank, environment, place):
    assert find_place(rank, ["a", "b", "a", "b"], environment) == place


@pytest.mark.parametrize(
    "text", ["", "0", "x 10.0.0.1", "0 somewhere.else", "1 10.0.0.1", "-1 10.0.0.1", "0 1 2"]
)
def test_what_is_no_node_and_address_is_refused(text):
    with pytest.raises(AbsentError, match="same Stash"):
        parse_places([text])
