"""One rank of a probe alone is a rank all the same."""

from pathlib import Path

from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.probe_launch import _make_request


def test_one_rank_where_there_is_one_gpu_meets_nobody_and_yet_is_a_rank():
    words = _make_request(Cluster(1, engine="local"), Path("orders.json"), 120.0).argv
    assert "--nproc-per-node=1" in words
