"""Second opinions on a breakdown, and where two estimators contradict each other."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest
from breakdowns import CALM, change_blocks
from profile_builder import build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.uncertainty import SECONDS, SHARE, launch_error
from stash.core.artefact import decode_artefact
from stash.core.measured import Collective, Rate
from stash.core.records.profile import Loader, Profile
from stash.report.profile_page import page

RECORDINGS = Path(__file__).parents[3] / "bench/noise/data"


def _loader_rates(feed: str, ranks: int, samples_per_second: float) -> tuple[Rate, ...]:
    return tuple(
        Rate(feed=feed, rank=r, round=3, samples=100, seconds=100 / samples_per_second)
        for r in range(ranks)
    )


def test_rates_are_those_of_the_whole_job():
    breakdown = attribute(
        build(CALM, rates=_loader_rates("warm", 2, 50) + _loader_rates("cold", 2, 45))
    )
    assert breakdown.rates.device == pytest.approx(16 / 0.140)
    assert breakdown.rates.prep == pytest.approx(100)
    assert breakdown.rates.fetch == pytest.approx(90)


def test_a_rate_that_not_every_rank_measured_is_unknown():
    assert attribute(build(CALM, rates=_loader_rates("warm", 1, 50))).rates.prep is None


def test_communication_is_total_from_collectives_and_exposed_from_stalls():
    runs = tuple(
        Collective(scope="node", ranks=2, bytes=40_000_000, seconds=s) for s in (0.05, 0.04, 0.09)
    )
    exchange = attribute(
        build(CALM, collectives=runs, workload={"bucket_bytes": (10, 20)})
    ).communication
    assert exchange.total_seconds == pytest.approx(0.05)  # the median
    assert exchange.exposed_seconds == pytest.approx(0.036)
    assert exchange.bytes == 30
    # 2(p-1)/p is 1 for two ranks
    assert exchange.wire_bytes_per_second == pytest.approx(40e6 / 0.05)


def test_a_prep_stall_hidden_behind_the_exchange_surfaces():
    # 16 samples a step at 100/s: the loaders need 160 ms; without the interconnect the step would take 140
    breakdown = attribute(build(CALM, rates=_loader_rates("warm", 2, 50)))
    (hidden,) = breakdown.surfacing
    assert (hidden.removed, hidden.appears) == ("interconnect", "prep")
    assert hidden.seconds == pytest.approx(0.160 - (0.176 - 0.036))


def test_slow_storage_surfaces_as_fetch():
    rates = _loader_rates("warm", 2, 500) + _loader_rates("cold", 2, 50)
    (hidden,) = attribute(build(CALM, rates=rates)).surfacing
    assert hidden.appears == "fetch"


def test_the_exposed_part_has_an_interval_of_its_own():
    times = {
        "solo": [0.1] * 3,
        "crowd": [0.1] * 3,
        "node": [0.11, 0.12, 0.13],
        "cluster": [0.15, 0.15, 0.15],
    }
    exchange = attribute(build(times, ranks=4, nodes=2)).communication
    assert exchange.exposed_seconds == pytest.approx(0.05)
    errors = (
        SECONDS["interconnect"],
        SECONDS["network"],
        SHARE * 0.02,
        SHARE * 0.03,
        launch_error(0.15),
    )
    # the noise of node cancels, and the rest is no noise
    assert exchange.exposed_high - exchange.exposed_seconds == pytest.approx(math.hypot(*errors))


def test_beside_other_work_the_exposed_part_is_as_uncertain_as_the_stall():
    path = RECORDINGS / "computes-2-ranks--pip.stash.json.gz"
    breakdown = attribute(decode_artefact(gzip.decompress(path.read_bytes()), path))
    (stall,) = (each for each in breakdown.stalls if each.name == "interconnect")
    assert stall.parts.correction > 0.5 * stall.parts.noise  # else the recording shows nothing
    exchange = breakdown.communication
    assert (exchange.exposed_low, exchange.exposed_high) == pytest.approx(
        (stall.time.low, stall.time.high)
    )


def test_a_step_may_wait_longer_for_the_exchange_than_it_takes_alone():
    fast = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.02),)
    assert attribute(build(CALM, collectives=fast)).communication.is_slowed
    slow = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.05),)
    assert not attribute(build(CALM, collectives=slow)).communication.is_slowed


def test_no_more_is_hidden_than_there_is():
    runs = (Collective(scope="node", ranks=2, bytes=40_000_000, seconds=0.02),)
    exchange = attribute(
        build({"solo": [0.1], "crowd": [0.11], "node": [0.1]}, collectives=runs)
    ).communication
    assert exchange.exposed_seconds == pytest.approx(-0.01)
    assert exchange.hidden_seconds == 0.02


def test_waits_are_those_of_the_slowest_rank():
    waits = attribute(build(CALM, block_extra={"warm": {"wait_seconds": 0.29}})).waits
    assert (waits.warm, waits.cold) == (pytest.approx(0.029), None)


def explanation(profile: Profile) -> tuple[str, str]:
    """Kind and text of the verdict."""
    advice = verdict(attribute(profile), profile)
    return advice.kind, advice.text


def alone(waits: tuple[float, ...], workers: int = 0, **changes: Any) -> Profile:
    """One process on CPUs whose step takes 200 ms, and 180, 150 or 210 on replayed batches."""
    profile = build(
        {"solo": [0.18, 0.15, 0.21], "warm": [0.2, 0.2, 0.2]},
        ranks=1,
        workload={"loaders": (Loader(kind="map", workers=workers),)},
        **changes,
    )
    return with_waits(profile, "warm", waits)


def with_waits(profile: Profile, rung: str, waits: tuple[float, ...]) -> Profile:
    return change_blocks(
        profile, lambda b: {"wait_seconds": 10 * waits[b.round]} if b.rung == rung else {}
    )


def test_without_workers_on_a_cpu_the_stall_is_what_steps_waited():
    # GIVEN steps that wait 79, 80 and 81 ms, which rungs differ by 20 ± some
    profile = alone((0.079, 0.080, 0.081))
    breakdown = attribute(profile)
    prep = breakdown.stall("prep")
    compute = breakdown.stall("compute")
    assert breakdown.by_waits
    assert prep.seconds == pytest.approx(0.080)
    assert 0.07 < prep.low < prep.high < 0.09  # its own interval, of the waits
    # AND what is left goes to compute, so that the sum is the step's
    assert compute.seconds == pytest.approx(0.120)
    assert compute.seconds + prep.seconds == pytest.approx(breakdown.step_seconds)
    assert explanation(profile)[0] == "stall"


def test_an_accelerator_waits_for_its_loader_when_its_queue_runs_dry():
    # GIVEN a host that waits 80 ms for each batch, three quarters of which the device does not feel
    profile = alone((0.08,) * 3, device="cuda")
    stages = {"input": 10 * 0.02, "forward": 10 * 0.18}
    felt = change_blocks(profile, lambda b: {"stage_seconds": stages} if b.rung == "warm" else {})
    # THEN it is the rest that agrees with the difference of rungs
    assert attribute(felt).waits.warm == pytest.approx(0.02)
    assert attribute(profile).waits.warm == pytest.approx(0.08)


def test_a_note_says_which_estimator_was_used():
    def by_waits(profile: Profile) -> str:
        breakdown = attribute(profile)
        chapters = page(breakdown, verdict(breakdown, profile), profile).chapters
        return next(
            (dict(each.facts).get("by waits", "") for each in chapters if each.name == "figures"),
            "",
        )

    why = "prep is what steps waited for the loader, which works in the training process itself"
    assert why in by_waits(alone((0.08, 0.08, 0.08)))
    assert not by_waits(alone((0.02, 0.02, 0.02), workers=1))


def test_fetch_is_what_steps_waited_longer_with_files_on_disk():
    times = {"solo": [0.1] * 3, "warm": [0.25] * 3, "cold": [0.3] * 3}
    profile = build(times, ranks=1, workload={"loaders": (Loader(kind="map", workers=0),)})
    profile = with_waits(with_waits(profile, "warm", (0.08,) * 3), "cold", (0.11,) * 3)
    breakdown = attribute(profile)
    assert [round(stall.seconds, 6) for stall in breakdown.stalls] == [0.19, 0.08, 0.03]


@pytest.mark.parametrize(
    "profile",
    [
        alone((0.08,) * 3, workers=1),  # which load while a step trains
        alone((0.08,) * 3, device="cuda"),  # which goes on meanwhile
        build({"solo": [0.18] * 3, "warm": [0.2] * 3}, ranks=1),  # waits are unknown
        with_waits(
            build({"crowd": [0.1] * 3, "warm": [0.2] * 3}), "warm", (0.08,) * 3
        ),  # other ranks wait, too
    ],
)
def test_elsewhere_the_stall_is_the_difference_of_rungs(profile):
    assert not attribute(profile).by_waits
