"""Findings about the links inside a machine, that fire and that must not."""

from __future__ import annotations

import pytest
from probe_builder import GB, copy, gpus, host, links, p3_8xlarge
from readings import found


def test_slow_pairs_are_named_with_what_pairs_of_the_type_reach():
    (text,) = found(p3_8xlarge())["uneven-pairs"]
    assert text.startswith(
        "2 of 6 pairs of GPUs copy much slower than the others (0-3 and 1-2): 0-3 reaches 9.8"
    )
    assert "fastest pair of p3.8xlarge: 50.0 GB/s (catalog of 2026-11-20: " in text
    assert "uneven-pairs" in found(p3_8xlarge(instance=None))


def test_gpus_behind_one_switch_share_an_uplink_and_the_driver_says_which():
    texts = found(p3_8xlarge())["shared-uplink"]
    assert [text.split(" share")[0] for text in texts] == ["GPUs 0 and 1", "GPUs 2 and 3"]
    (text,) = found(p3_8xlarge(routes=()))["shared-uplink"]
    assert text.startswith("GPUs 0, 1, 2 and 3 slow one another down, both ways: host to GPU")


def test_copies_together_as_fast_as_alone_share_nothing():
    copies = [
        copy("host", f"cuda:{i}", 12 * GB, together=both, seed=i + 9 * both)
        for i in range(4)
        for both in (0, 1)
    ]
    assert found(host(measured=links(copies=tuple(copies)), gpus=gpus(4))) == {}


@pytest.mark.parametrize(("rate", "fires"), [(6.2, True), (12.0, False)])
def test_a_link_is_trained_down_only_if_copies_are_as_slow_as_it_says(rate, fires):
    # An idle link saves power: gen1 or x8 at rest may be gen3 x16 at work.
    down = gpus(1, pcie="gen3 x8", pcie_max="gen3 x16")
    named = found(host(measured=links(copies=(copy("host", "cuda:0", rate * GB),)), gpus=down))
    assert ("pcie-trained-down" in named) is fires
