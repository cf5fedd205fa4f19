"""Measurements of one machine see each other, and those of one run do not mind each other."""

import os

from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.neighbours import NeighbouringRuns


def test_two_runs_see_each_other_while_they_last():
    with NeighbouringRuns() as first:
        assert os.getpid() not in first.list_others()
        with NeighbouringRuns() as second:
            assert os.getpid() in first.list_others()
            assert os.getpid() in second.list_others()
        assert os.getpid() not in first.list_others()


def test_the_launchers_of_one_run_belong_together():
    with (
        NeighbouringRuns("node0:29500") as first,
        NeighbouringRuns("node0:29500") as second,
        NeighbouringRuns("node0:29501") as other,
    ):
        assert first.list_others().count(os.getpid()) == 1
        assert second.list_others().count(os.getpid()) == 1
        assert os.getpid() in other.list_others()


def test_where_the_kernel_does_not_tell_no_run_is_seen(tmp_path):
    assert NeighbouringRuns(sockets=tmp_path / "none").list_others() == []


def test_where_the_launchers_of_a_run_meet():
    ranks = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert Cluster(engine="inherited").meeting_address(ranks) == "10.0.0.1:29500"
    assert Cluster(nnodes=2, rdzv_endpoint="node0:1").meeting_address(ranks) == "node0:1"
    assert Cluster(nproc=2, rdzv_endpoint="node0:1").meeting_address(ranks) is None
