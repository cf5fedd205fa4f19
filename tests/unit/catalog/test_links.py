"""Links of offers that no source names: by the variant of the GPU, else PCIe of its generation."""

import pytest
from catalogs import box

from stash.catalog.layers import merge
from stash.catalog.links import fill_links
from stash.catalog.shipped import gpus

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "model", "gib", "gpu", "fabric", "rate"),
    [
        ("gpu_8x_h100_sxm5", "H100", 80, "H100-SXM5-80GB", "nvlink4+nvswitch", 450e9),
        ("2x_A100-80GB-SXM_SECURE", "A100", 80, "A100-SXM4-80GB", "nvlink3+nvswitch", 300e9),
        ("8xV100-HGX-32", "V100", 32, "V100-SXM2-32GB", "nvlink2", 150e9),
        ("gpu_2x_h100_pcie", "H100", 80, "H100-PCIe-80GB", None, 63e9),
        ("gpu_8x_v100", "V100", 16, None, None, 15.75e9),
        ("4x_RTX-A6000", "RTX-A6000", 48, None, None, 31e9),
    ],
)
def test_links_follow_from_the_gpus_variant(name, model, gib, gpu, fabric, rate):
    found = fill_links(box(name, gpu_model=model, gpu_count=8, gpu_memory_bytes=gib * GIB), gpus())
    assert (found.gpu, found.interconnect) == (gpu, fabric)
    assert (found.interconnect_bytes_per_second if fabric else found.pcie_bytes_per_second) == rate


def test_every_shipped_offer_of_several_gpus_has_links_that_can_be_forecast():
    machines = [each for each in merge(None, None).instances if (each.gpu_count or 0) > 1]
    known = [
        each
        for each in machines
        if each.interconnect_bytes_per_second
        or each.pair_max_bytes_per_second
        or each.pcie_bytes_per_second
    ]
    assert {each.name for each in machines} - {each.name for each in known} == set()
