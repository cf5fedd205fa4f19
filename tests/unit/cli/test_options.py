"""Numbers above zero, and torchrun's options turned into the cluster they ask for."""

from __future__ import annotations

import pytest

from stash.base.errors import UserError
from stash.cli.options import cluster, positive


@pytest.mark.parametrize(
    ("value", "finite"), [(0.0, False), (-1.0, False), (float("inf"), True), (float("nan"), True)]
)
def test_a_number_that_is_not_above_zero_is_refused_with_its_option(value: float, finite: bool) -> None:
    with pytest.raises(UserError, match=f"--budget {value:g}: it must be a number above 0"):
        positive("--budget", value, "a number above 0", finite)


def test_what_is_above_zero_is_taken() -> None:
    assert positive("--budget", 0.5) == 0.5
    assert positive("--budget", float("inf")) == float("inf")


def test_the_cluster_is_of_machines_like_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stash.measure.host.describe.count_gpus", lambda: 8)
    found = cluster(None, 2, 1, "head:29500")
    assert (found.nproc, found.nnodes, found.node_rank, found.rdzv_endpoint) == (8, 2, 1, "head:29500")
    assert cluster(None, None, None, None, ranks=False).nproc == 1
