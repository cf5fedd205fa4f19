"""Whether an instance has what is wished for: yes, no, or not known."""

import pytest
from catalogs import box
from pydantic import ValidationError

from stash.catalog.offers import OfferFilter, judge_instance

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("wanted", "fabric", "met"),
    [
        ("nvlink", "nvlink3+nvswitch", True),
        ("nvlink3", "nvlink3+nvswitch", True),
        ("nvswitch", "nvlink3+nvswitch", True),
        ("nvlink4", "nvlink3+nvswitch", False),
        ("NVLink", "nvlink2", True),
        ("nvlink", None, None),
        ("pcie", "pcie4", True),
    ],
)
def test_interconnect_is_matched_by_parts(wanted, fabric, met):
    assert (
        judge_instance(
            box("x", gpu_count=8, interconnect=fabric), OfferFilter(interconnect=wanted)
        )[0]
        is met
    )


def test_a_machine_without_gpus_has_no_gpu_facts_to_be_unknown():
    plain = box("cpu", gpu_count=0)
    for wish in (
        {"gpu": "V100"},
        {"min_gpu_memory_bytes": 1.0},
        {"interconnect": "nvlink"},
        {"min_gpu_count": 1},
    ):
        assert judge_instance(plain, OfferFilter.model_validate(wish)) == (False, "")


def test_a_misspelt_wish_is_refused():
    with pytest.raises(ValidationError):
        OfferFilter.model_validate({"min_netwrok": 3})
