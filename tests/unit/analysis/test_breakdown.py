"""The breakdown's own checks, its figures, and the stalls that cannot be told."""

from __future__ import annotations

import math

import pytest
from breakdowns import CALM, seconds, unknown
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown, Stall
from stash.core.errors import StashError
from stash.core.records.profile import Loader

GOOD = attribute(build(CALM), "run.stash.json")


def changed(**fields: object) -> Breakdown:
    return Breakdown(**{**{name: getattr(GOOD, name) for name in Breakdown.model_fields}, **fields})


def with_time(name: str, **time: float | None) -> tuple[Stall, ...]:
    return tuple(
        stall.model_copy(update={"time": stall.time.model_copy(update=time)})
        if stall.name == name
        else stall
        for stall in GOOD.stalls
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"step_seconds": 0.18}, r"its stalls add up to 0\.176 s and its step takes 0\.18 s"),
        ({"step_seconds": math.nan}, r"add up to 0\.176 s and its step takes nan s"),
        ({"stalls": with_time("prep", value=0.04)}, r"prep \(0\.04 s\) is not within its interval"),
        (
            {"stalls": with_time("prep", low=0.031)},
            r"prep \(0\.03 s\) is not within its interval, 0\.031 to",
        ),
        ({"stalls": with_time("prep", low=None)}, r"is not within its interval, None to"),
        ({"stalls": with_time("fetch", value=math.nan)}, r"fetch \(nan s\)"),
        (
            {"stalls": GOOD.stalls[::-1]},
            r"its stalls \(fetch, prep, .*\) are not those of its rungs",
        ),
        (
            {"stalls": GOOD.stalls[:-1]},
            r"are not those of its rungs \(solo, crowd, node, warm, cold\)",
        ),
        ({"rungs": GOOD.rungs[::-1]}, r"its rungs \(cold, .*\) are not in the ladder's order"),
        (
            {"rungs": (), "stalls": (), "step_seconds": 0.0},
            r"its stalls \(\) are not those of its rungs \(\)",
        ),
    ],
)
def test_one_that_contradicts_itself_is_refused_in_a_sentence_that_names_the_file(fields, says):
    with pytest.raises(
        StashError, match=rf"^the breakdown of run\.stash\.json contradicts itself: .*{says}"
    ) as caught:
        changed(**fields)
    assert "\n" not in str(caught.value)


def test_one_device_per_node_has_a_network_stall_and_no_interconnect():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=2, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "one device per node"
    assert breakdown.paper.network_pct == pytest.approx((0.2 - 0.11) / 0.11 * 100)
    assert breakdown.paper.interconnect_pct is None


def test_a_node_rung_left_out_hides_its_stall_in_the_network_and_says_so():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=4, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "not asked for (--rungs); contained in network"
    assert breakdown.paper.network_pct is None


def test_a_loader_that_copies_to_the_device_has_the_transfer_in_prep():
    why = "batches (list) arrive on cuda:0"
    work = {"loaders": (Loader(kind="map", workers=0, on_device=True),)}
    times = {"solo": [0.1] * 3, "warm": [0.2] * 3}
    breakdown = attribute(build(times, device="cuda", workload=work, skipped={"resident": why}))
    assert unknown(breakdown)["transfer"] == f"{why}; contained in prep"
    without = attribute(
        build({"solo": [0.1] * 3}, device="cuda", workload=work, skipped={"resident": why})
    )
    assert unknown(without)["transfer"] == why  # nothing that was measured contains it
