"""The catalog's query and its names: wishes, what is left out, names that drivers give, nearest names."""

import pytest
from catalogs import box, small

from stash import catalog
from stash.catalog.offers import OfferFilter
from stash.core.errors import UserError

pytestmark = pytest.mark.usefixtures("home")

GBIT = 1e9 / 8


def test_every_wish_must_be_met_and_the_cheapest_comes_first():
    wish = OfferFilter(gpu="V100", min_network_bytes_per_second=25 * GBIT, cloud="aws")
    offers = catalog.query(wish)
    assert [offer.instance.name for offer in offers] == ["p3.16xlarge", "p3dn.24xlarge"]
    assert offers[0].dollars_per_hour == 24.48
    assert offers[0].as_of == "2026-07-20"
    assert offers[0].dollars_per_gpu_hour == pytest.approx(3.06)
    assert (
        catalog.query(wish.model_copy(update={"max_dollars_per_hour": 24.48}))[0].instance.name
        == "p3.16xlarge"
    )


def test_an_unknown_fact_never_meets_a_minimum_and_is_counted():
    fast = box("fast", network_bytes_per_second=100 * GBIT)
    slow = box("slow", network_bytes_per_second=1 * GBIT)
    known = small((fast, 2.0), (slow, 1.0), (box("silent"), 1.5), (box("silent2"), 1.5))
    answer = known.search(OfferFilter(min_network_bytes_per_second=25 * GBIT))
    assert [offer.instance.name for offer in answer.offers] == ["fast"]
    assert answer.left_out == {"network": 2}
    # One that is known to miss another wish is not "left out because unknown".
    elsewhere = OfferFilter(min_network_bytes_per_second=25 * GBIT, cloud="there")
    assert known.search(elsewhere).left_out == {}


def test_an_instance_without_a_price_is_counted_not_free():
    answer = small((box("priced"), 2.0), (box("unpriced"), None)).search()
    assert [offer.instance.name for offer in answer.offers] == ["priced"]
    assert answer.left_out == {"price": 1}
    assert "p5e.48xlarge" not in {
        offer.instance.name for offer in catalog.query(OfferFilter(gpu="H200"))
    }
    assert catalog.search(OfferFilter(gpu="H200")).left_out == {"price": 2}


def test_a_region_that_is_not_known_is_counted():
    answer = catalog.search(OfferFilter(gpu="V100", region="US-EAST-1"))
    assert {offer.region for offer in answer.offers} == {"us-east-1"}
    assert answer.left_out == {"region": 1}  # lambda's gpu_8x_v100


@pytest.mark.parametrize(
    ("gpu", "found"),
    [
        ("a100", {"p4d.24xlarge", "p4de.24xlarge"}),
        ("A100-80GB", {"p4de.24xlarge"}),
        ("NVIDIA A100-SXM4-40GB", {"p4d.24xlarge"}),
        ("A100-PCIe-80GB", set()),
        ("A10", set()),
    ],
)
def test_a_gpu_goes_by_model_variant_or_memory(gpu, found):
    assert {
        offer.instance.name for offer in catalog.query(OfferFilter(gpu=gpu, cloud="aws"))
    } == found


def test_an_undocumented_variant_is_unknown_not_a_match():
    answer = catalog.search(OfferFilter(gpu="V100-SXM2-16GB", cloud="lambda"))
    assert answer.offers == ()
    assert answer.left_out == {"exact GPU": 1}
    assert catalog.search(OfferFilter(gpu="V100-SXM2-32GB", cloud="lambda")).left_out == {}


def test_a_gpu_of_several_variants_must_be_named_exactly():
    with pytest.raises(
        UserError, match="several variants: A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIe-80GB"
    ):
        catalog.gpu("A100")
    with pytest.raises(UserError, match="did you mean"):
        catalog.gpu("A100-SXM4-8GB")
    with pytest.raises(UserError, match="unknown GPU ''"):
        catalog.gpu("")


@pytest.mark.parametrize(
    ("driver", "variant"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("nvidia l4", "L4"),
        ("H200", "H200-SXM-141GB"),
    ],
)
def test_names_that_drivers_report_lead_to_the_gpu_table(driver, variant):
    assert catalog.gpu(driver).name == variant
