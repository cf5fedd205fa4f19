"""An emulated instance: its speeds, its links, and the scales that leave ratios of stalls as they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from breakdowns import CALM
from profile_builder import build
from studies import cells_of, study

from stash.analysis.attribution import attribute
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.lab.zoo.registry import WORKLOADS
from stash.study.emulating import FASTEST, STEP_SECONDS, UNSHAPED, ring
from stash.study.results import make_results

TWO = "workloads: [{zoo: WORKLOAD}]\ntargets: [{engine: emulated, instance: p3.8xlarge, nodes: [1, 2]FIELDS}]"


def made(fields="", workload="resnet50"):
    return cells_of(
        study(TWO.replace("FIELDS", fields and f", {fields}").replace("WORKLOAD", workload), Path())
    )


def bed(cell):
    assert cell.emulated is not None
    return cell.emulated


def test_devices_take_published_times_and_half_of_their_peak_where_none_are_published():
    one, two = map(bed, made())
    assert (one.devices, one.ranks, one.network) == (4, 4, None)
    assert one.samples_per_second == two.samples_per_second == pytest.approx(249, rel=0.01)
    guessed = bed(made(workload="vgg11")[0])
    # 15.7 TFLOP/s, of which half: three passes of a sample's operations; an update moves weights three times.
    model = WORKLOADS["vgg11"]
    seconds = 2 * (3 * 32 * model.forward_flops / 15.7e12 + 3 * model.gradient_bytes / 9e11)
    assert guessed.samples_per_second == pytest.approx(32 / seconds)
    assert any("half of the GPU's peak" in fact for fact in guessed.facts)
    other_input = bed(made(workload="resnet18")[0])  # published for CIFAR-10 only
    assert any("half of the GPU's peak" in fact for fact in other_input.facts)


def test_a_step_is_as_long_as_can_be_measured_and_no_link_faster_than_can_be_shaped():
    one, two = map(bed, made("ranks: 2"))
    assert one.interconnect == one.shaping_limit == pytest.approx(FASTEST)
    # The compute of 32 samples and a ring of four over links of 34.7 GB/s last longer here, with a bucket's due.
    alone = 32 / one.samples_per_second + ring(4) * WORKLOADS["resnet50"].gradient_bytes / 34.667e9
    assert alone * one.time_scale == pytest.approx(STEP_SECONDS, rel=0.1)
    # Links inside are far faster than the line between nodes: where that is carried well, these cannot be shaped.
    assert two.shaping_limit is None
    assert FASTEST < two.interconnect <= UNSHAPED


def unscaled(cell, rate):
    """Bytes per second that a link would have without the emulation's scales."""
    return (rate or 0.0) * cell.time_scale / cell.scale


def test_few_ranks_wait_as_long_as_all_devices_would_whatever_the_scales():
    fields = "interconnect: 30GB/s, network: 1GB/s"
    all_of_one, all_of_two = map(bed, made(fields))
    two_of_one, two_of_two = map(bed, made(f"{fields}, ranks: 2"))
    for cell in (all_of_one, two_of_one):
        assert 2 * (cell.ranks - 1) / unscaled(cell, cell.interconnect) == pytest.approx(
            ring(4) / 30e9
        )
    for cell in (all_of_two, two_of_two):
        assert ring(2 * cell.ranks) / unscaled(cell, cell.network) == pytest.approx(ring(8) / 1e9)
    with pytest.raises(UserError, match=r"one rank cannot stand for the 4 devices of p3\.8xlarge"):
        made("ranks: 1")


def test_results_are_the_instances_seconds_and_samples():
    (cell, _) = made("ranks: 2")
    cell = replace(cell, emulated=replace(bed(cell), time_scale=4.0))
    breakdown = attribute(build(CALM))
    (found,) = make_results([cell], {cell.id: breakdown})
    (plain,) = make_results([replace(cell, emulated=None)], {cell.id: breakdown})
    assert found.step == Interval(
        value=plain.step.value / 4,
        low=None if plain.step.low is None else plain.step.low / 4,
        high=None if plain.step.high is None else plain.step.high / 4,
        repetitions=found.step.repetitions,
    )
    assert found.samples_per_second == pytest.approx(2 * 4 * (plain.samples_per_second or 0))
    assert found.shares == plain.shares
