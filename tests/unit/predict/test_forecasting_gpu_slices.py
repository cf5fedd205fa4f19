"""Slices of GPUs: told by a fraction or by their memory, and nowhere taken for a whole GPU."""

from datetime import date

import pytest
from catalogs import box, own_file, small
from forecast_profiles import gpu_job

from stash.analysis.findings.against import nearest_types
from stash.analysis.findings.machine import machine_findings
from stash.catalog.facts import share_of
from stash.catalog.shipped import gpus
from stash.core.errors import UserError
from stash.core.records.host import Gpu, Host, Limits
from stash.plan.candidates import build_market
from stash.plan.records import Constraints
from stash.predict.changes import Alteration
from stash.predict.cluster_sources import target_of_profile
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of, shipped_catalog, what_if

GIB = 2**30
SLICES = [each for each in shipped_catalog().instances if each.gpu_count and each.gpu_count < 1]


def host(gpu="NVIDIA L4", memory=11.18 * GIB):
    devices = (Gpu(index=0, name=gpu, memory_bytes=round(memory)),)
    return Host(hostname="x", instance="g6f.4xlarge", cores=16, gpus=devices, limits=Limits())


@pytest.fixture(scope="module")
def base():
    return base_of(gpu_job(), draws=Draws(64))


@pytest.mark.parametrize(
    ("name", "gib", "share"),
    [
        ("L4", 22.35, 1),
        ("L4", 11.18, 1 / 2),
        ("L4", 2.79, 1 / 8),
        ("A10", 4.0, 1 / 6),
        ("NVIDIA A10-4Q", 4.0, 1 / 6),
        ("A100", 40.0, 1),
        ("A100-SXM4-80GB", 39.4, 1 / 2),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4.75, 1 / 8),
        ("P100", 12.0, 1),
        ("Tesla K80", 11.17, 1),
        ("V710", 4.0, 1),
        (None, 4.0, 1),
        ("L4", None, 1),
    ],
)
def test_a_slice_is_told_by_its_memory(name, gib, share):
    assert share_of(name, None if gib is None else gib * GIB, gpus()) == pytest.approx(share)


def test_no_instance_of_the_catalog_is_a_slice_that_counts_as_a_whole():
    assert {each.gpu_model for each in SLICES} == {"L4", "A10"}
    for each in shipped_catalog().instances:
        shown = share_of(each.gpu or each.gpu_model, each.gpu_memory_bytes, gpus())
        assert each.gpu_share == pytest.approx(shown, rel=0.01), each.name


@pytest.mark.parametrize("instance", SLICES, ids=lambda each: each.name)
def test_a_slice_is_left_out_of_what_is_recommended_with_its_reason(instance):
    found = build_market(shipped_catalog(), Constraints(), {}, date(2026, 11, 22))
    assert instance.name not in {each.instance.name for each in found.rentables}
    (why,) = (each.why for each in found.unranked if each.instance == instance.name)
    assert (
        f"it has {instance.gpu_share:.2g} of one {instance.gpu_model}, and how fast a slice" in why
    )


def test_how_fast_slices_train_does_not_follow_from_whole_gpus(base):
    with pytest.raises(
        UserError, match=r"0\.5 of one L4, and 1 of one .* is not published: profile there"
    ):
        what_if(base, Alteration(instance="g6f.4xlarge", nodes=1))
    half = gpu_job(nodes=1, ranks=1, hosts=(host(),), collectives=())
    assert target_of_profile(half).device_share == 0.5
    with pytest.raises(UserError, match=r"1 of one L4, and 0\.5 of one "):
        what_if(base_of(half, draws=Draws(64)), Alteration(gpu="L4"))


def test_a_probe_finds_the_one_gpu_that_a_slice_is_to_its_driver():
    reference = next(each for each in SLICES if each.name == "g6f.4xlarge")
    assert not [
        each
        for each in machine_findings(host(), reference, shipped_catalog())
        if each.name == "gpu-count"
    ]
    none = host().model_copy(update={"gpus": ()})
    assert [
        each
        for each in machine_findings(none, reference, shipped_catalog())
        if each.name == "gpu-count"
    ]
    assert nearest_types([host().model_copy(update={"instance": None})], 0, shipped_catalog())[
        0
    ].instance == ("g6f.4xlarge")


def test_an_own_machine_has_whole_gpus_or_a_part_of_one():
    with pytest.raises(UserError, match=r"gpu_count: .*a whole number, or below 1 for a slice"):
        own_file("instances:\n- {name: mine, gpu: L4, gpu_count: 1.5, price: $1/h}\n")


def test_a_small_catalog_needs_no_gpu_table():
    assert small((box("cpu", gpu_count=0), 1.0)).instances[0].gpu_share == 1.0
