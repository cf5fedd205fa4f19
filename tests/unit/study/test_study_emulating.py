"""An emulated instance: its speeds, its links, and the scales that leave ratios of stalls as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from breakdowns import CALM
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build
from studies import ZOO, study

from stash import catalog
from stash.analysis.attribution import attribute
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.predict.compute_ratios import precision_ratio
from stash.study.cells import Cell, cells
from stash.study.emulating import FASTEST, STEP_SECONDS, UNSHAPED, CalibratingProfile, EmulatedCell, ring
from stash.study.places import places
from stash.study.results import results

TWO = "workloads: [{zoo: WORKLOAD}]\ntargets: [{engine: emulated, instance: p3.8xlarge, nodes: [1, 2]FIELDS}]"


def made(fields: str = "", workload: str = "resnet50", calibrations: dict[str, CalibratingProfile] | None = None):
    file = study(TWO.replace("FIELDS", fields and f", {fields}").replace("WORKLOAD", workload), Path())
    return cells(file, places(file, catalog.load()), ZOO, "1.0", calibrations)


def bed(cell: Cell) -> EmulatedCell:
    assert cell.emulated is not None
    return cell.emulated


def test_devices_take_published_times_and_half_of_their_peak_where_none_are_published() -> None:
    one, two = map(bed, made())
    assert (one.devices, one.ranks, one.network) == (4, 4, None)
    assert one.samples_per_second == two.samples_per_second == pytest.approx(249, rel=0.01)
    guessed = bed(made(workload="vgg11")[0])
    # 15.7 TFLOP/s, of which half: three passes of 1.5e10 operations a sample, and an update that moves 1.5 GB.
    seconds = 2 * (3 * 32 * 1.5e10 / 15.7e12 + 3 * 5e8 / 9e11)
    assert guessed.samples_per_second == pytest.approx(32 / seconds)
    assert any("half of the GPU's peak" in fact for fact in guessed.facts)
    with pytest.raises(UserError, match="what a step of resnet18 computes is unknown; give a profile"):
        made(workload="resnet18")  # published for CIFAR-10 only, and no cost is given


def test_a_step_is_as_long_as_can_be_measured_and_no_link_faster_than_can_be_shaped() -> None:
    one, two = map(bed, made("ranks: 2"))
    assert one.interconnect == one.shaped == pytest.approx(FASTEST)
    # The compute of 32 samples and a ring of four over links of 34.7 GB/s last longer here, with a bucket's due.
    alone = 32 / one.samples_per_second + ring(4) * 102e6 / 34.667e9
    assert alone * one.time_scale == pytest.approx(STEP_SECONDS, rel=0.1)
    # Links inside are far faster than the line between nodes: where that is carried well, these cannot be shaped.
    assert two.shaped is None
    assert FASTEST < two.interconnect <= UNSHAPED


@pytest.mark.parametrize("workload", ["resnet50", "vgg11"])
def test_a_link_that_is_just_as_fast_as_can_be_shaped_is_shaped_whatever_the_batch(workload: str) -> None:
    text = TWO.replace("FIELDS", ", ranks: 2").replace("WORKLOAD", workload).replace("nodes: [1, 2]", "nodes: 1")
    file = study(f"{text}\nbatches: [{', '.join(str(batch) for batch in range(1, 200))}]", Path())
    assert all(bed(cell).shaped for cell in cells(file, places(file, catalog.load()), ZOO, "1.0"))


def test_few_ranks_wait_as_long_as_all_devices_would() -> None:
    fields = "interconnect: 30GB/s, network: 1GB/s, scale: 0.001, time_scale: 1"
    all_of_one, all_of_two = map(bed, made(fields))
    two_of_one, two_of_two = map(bed, made(f"{fields}, ranks: 2"))
    inside = [2 * (cell.ranks - 1) / (cell.interconnect or 0) for cell in (all_of_one, two_of_one)]
    assert inside[0] == pytest.approx(inside[1]) == pytest.approx(ring(4) / 30e6)
    across = [ring(2 * cell.ranks) / (cell.network or 0) for cell in (all_of_two, two_of_two)]
    assert across[0] == pytest.approx(across[1]) == pytest.approx(ring(8) / 1e6)
    with pytest.raises(UserError, match=r"one rank cannot stand for the 4 devices of p3\.8xlarge"):
        made("ranks: 1")


@settings(max_examples=20, deadline=None)
@given(size=st.floats(1e-4, 1), time=st.floats(0.05, 20))
def test_whatever_the_scales_are_exchange_keeps_its_ratio_to_compute(size: float, time: float) -> None:
    plain, scaled = (
        bed(made(f"interconnect: 1GB/s, scale: {s}, time_scale: {t}")[0]) for s, t in ((1.0, 1.0), (size, time))
    )
    exchange = [cell.scale / (cell.interconnect or 0) / cell.time_scale for cell in (plain, scaled)]
    assert exchange[0] == pytest.approx(exchange[1])


def test_results_are_the_instances_seconds_and_samples() -> None:
    cell = made("ranks: 2, time_scale: 4")[0]
    breakdown = attribute(build(CALM))
    (found,) = results([cell], {cell.id: breakdown})
    (plain,) = results([replace(cell, emulated=None)], {cell.id: breakdown})
    assert found.step == Interval(
        value=plain.step.value / 4,
        low=None if plain.step.low is None else plain.step.low / 4,
        high=None if plain.step.high is None else plain.step.high / 4,
        repetitions=found.step.repetitions,
    )
    assert found.samples_per_second == pytest.approx(2 * 4 * (plain.samples_per_second or 0))
    assert found.shares == plain.shares


MINE = "mine.stash.json"


def calibrated(gpu: str | None) -> CalibratingProfile:
    profile = build(CALM)
    return CalibratingProfile(MINE, profile, None if gpu is None else catalog.load().gpu(gpu))


def test_a_profile_of_the_same_gpu_is_believed_and_one_of_another_is_translated() -> None:
    profile = build(CALM)
    compute = attribute(profile).stall("compute")
    own = bed(made(f"calibrate: {MINE}", calibrations={MINE: calibrated("V100-SXM2-16GB")})[0])
    assert own.samples_per_second == pytest.approx(profile.workload.batch / compute.time.value)
    assert any(MINE in fact for fact in own.facts)
    other = bed(made(f"calibrate: {{resnet50: {MINE}}}", calibrations={MINE: calibrated("K80")})[0])
    assert other.samples_per_second > 2 * own.samples_per_second
    assert any("times as long" in fact for fact in other.facts)
    unnamed = bed(made(f"calibrate: {{vgg11: {MINE}}}", calibrations={MINE: calibrated("K80")})[0])
    assert unnamed == bed(made()[0])  # another workload's profile tells nothing of this one


def test_a_profile_in_another_precision_than_the_target_s_is_translated() -> None:
    fp32, fp16 = (
        bed(made(f"calibrate: {MINE}, precision: {each}", calibrations={MINE: calibrated("V100-SXM2-16GB")})[0])
        for each in ("fp32", "fp16")
    )
    times = precision_ratio("resnet50", catalog.gpu("V100-SXM2-16GB"))
    assert fp16.samples_per_second == pytest.approx(fp32.samples_per_second / times.value)
    assert any("in fp16 it takes" in fact for fact in fp16.facts)
    with pytest.raises(UserError, match="was trained in fp32, and nothing tells how fast K80 is in amp"):
        calibrated("K80").speed("resnet50", (catalog.load().gpu("K80"),), "fp16")


def test_a_profile_of_no_known_gpu_calibrates_nothing() -> None:
    with pytest.raises(
        UserError, match=r"targets\[0\]: mine\.stash\.json was taken on no GPU that the catalog knows"
    ):
        made(f"calibrate: {MINE}", calibrations={MINE: calibrated(None)})


def test_calibrating_makes_another_cell() -> None:
    known = {MINE: calibrated("K80")}
    assert made(f"calibrate: {MINE}", calibrations=known)[0].id != made()[0].id


def test_links_follow_from_the_gpus_that_a_machine_gets() -> None:
    whole, half, apart = (
        bed(made(f"ranks: 2, scale: 0.001, time_scale: 1, gpus: {gpus}")[0])
        for gpus in ("[0, 1, 2, 3]", "[0, 1, 4, 5]", "[0, 1, 6, 7]")
    )
    assert whole.interconnect == pytest.approx(2 * (half.interconnect or 0))
    assert (apart.interconnect or 0) < (half.interconnect or 0)
    assert "GPUs 0, 1, 2, 3 of a mesh have 2 rings of NVLinks" in whole.facts[0]
    assert "no ring of NVLinks, so PCIe" in apart.facts[0]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("gpus: [0, 1, 2]", r"`gpus:` names 4 different GPUs from 0 to 7 here, not 0, 1, 2"),
        ("gpus: [0, 1, 2, 2]", r"names 4 different GPUs"),
        ("gpus: [0, 1, 2, 8]", r"names 4 different GPUs"),
        ("gpus: [0, 1, 2, 3], interconnect: 1GB/s", r"give either `gpus:`"),
    ],
)
def test_gpus_that_cannot_be_had_are_refused(fields: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        made(fields)
