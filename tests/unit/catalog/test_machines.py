"""The peak rates of a GPU by the catalog's name of it."""

import pytest

from stash import catalog
from stash.catalog.facts import GpuFacts
from stash.catalog.machines import find_variants, peak_rates
from stash.core.errors import UserError

pytestmark = pytest.mark.usefixtures("home")


def gpu(name, fp32=10e12, memory=500e9, **facts):
    return GpuFacts(
        name=name,
        model="X1",
        fp32_flops_per_second=fp32,
        memory_bytes_per_second=memory,
        as_of="2020-01-01",
        source="somebody",
        **facts,
    )


def test_a_model_made_in_variants_is_its_fastest_and_says_so_with_date_and_source():
    slow = gpu("X1-PCIe", 9e12)
    fast = gpu("X1-SXM-16GB")
    big = gpu("X1-SXM-32GB")
    found = peak_rates((slow, fast, big), "fp32")
    assert (found.flops_per_second, found.memory_bytes_per_second) == (10e12, 500e9)
    assert found.about.startswith(
        "X1-SXM-16GB, the fastest of its variants (others: X1-PCIe, X1-SXM-32GB)"
    )
    assert "2020-01-01" in found.about
    assert "somebody" in found.about


def test_half_precision_runs_on_tensor_cores_where_there_are_any():
    plain = gpu("X1-a", fp16_flops_per_second=20e12)
    tensor = gpu("X1-b", fp16_flops_per_second=20e12, tensor_fp16_flops_per_second=100e12)
    assert peak_rates((plain,), "fp16").flops_per_second == 20e12
    assert peak_rates((tensor,), "fp16").flops_per_second == 100e12


@pytest.mark.parametrize("lacking", [gpu("X1", fp32=None), gpu("X1", memory=None)])
def test_a_rate_the_catalog_does_not_know_is_refused_not_guessed(lacking):
    with pytest.raises(UserError, match="does not know the fp32 rate of X1; name another GPU"):
        peak_rates((lacking,), "fp32")


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("Quadro RTX 6000", "RTX-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX-PRO-6000"),
        ("NVIDIA GH200 480GB", "GH200-96GB"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA L40", "L40"),
    ],
)
def test_a_gpu_that_people_have_is_found_by_its_driver_s_name(driver, name):
    """Issue 60: none of them was known, and MI300X brought *did you mean B300?*."""
    assert [found.name for found in find_variants(driver, catalog.load())] == [name]
