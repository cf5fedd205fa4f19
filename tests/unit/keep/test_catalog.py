"""The catalog's query, its names, and the command: wishes, unknown facts, nearest names, a table of 80 columns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from stash.base.errors import UnitError, UserError
from stash.cli.catalog import app
from stash.keep import catalog
from stash.keep.catalog import Catalog, Instance, OfferFilter, places, quantities
from stash.keep.catalog.facts import Price
from stash.keep.catalog.filter import judge
from stash.keep.catalog.table import Columns

GBIT = 1e9 / 8


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STASH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    catalog._usual.cache_clear()
    return tmp_path


def box(name: str, **facts: object) -> Instance:
    base = {"cloud": "here", "as_of": "2026-11-20", "source": "made up"}
    return Instance.model_validate({**base, "name": name, **facts})


def small(*items: tuple[Instance, float | None]) -> Catalog:
    """A catalog of instances at on-demand prices."""
    index = {(item.cloud, item.name): number for number, (item, _) in enumerate(items)}
    prices = [
        Price(item.cloud, item.name, "r1", "on-demand", price, "2026-11-20", "made up", "")
        for item, price in items
        if price is not None
    ]
    return Catalog((), tuple(item for item, _ in items), Columns.of(prices, index))


def names(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    return [offer["name"] for offer in json.loads(result.stdout)["offers"]]


def test_every_wish_must_be_met_and_the_cheapest_comes_first() -> None:
    wish = OfferFilter(gpu="V100", min_network_bytes_per_second=25 * GBIT, cloud="aws")
    offers = catalog.query(wish)
    assert [offer.instance.name for offer in offers] == ["p3.16xlarge", "p3dn.24xlarge"]
    assert offers[0].dollars_per_hour == 24.48
    assert offers[0].as_of == "2026-07-20"
    assert offers[0].dollars_per_gpu_hour == pytest.approx(3.06)
    assert catalog.query(wish.model_copy(update={"max_dollars_per_hour": 24.48}))[0].instance.name == "p3.16xlarge"


def test_an_unknown_fact_never_meets_a_minimum_and_is_counted() -> None:
    fast = box("fast", network_bytes_per_second=100 * GBIT)
    slow = box("slow", network_bytes_per_second=1 * GBIT)
    known = small((fast, 2.0), (slow, 1.0), (box("silent"), 1.5), (box("silent2", vcpus=2), 1.5))
    answer = known.search(OfferFilter(min_network_bytes_per_second=25 * GBIT))
    assert [offer.instance.name for offer in answer.offers] == ["fast"]
    assert answer.left_out == {"network": 2}
    # One that is known to miss another wish is not "left out because unknown".
    both = known.search(OfferFilter(min_network_bytes_per_second=25 * GBIT, min_vcpus=4))
    assert both.left_out == {"vCPUs": 1, "network": 1}


def test_an_instance_without_a_price_is_counted_not_free() -> None:
    answer = small((box("priced"), 2.0), (box("unpriced"), None)).search()
    assert [offer.instance.name for offer in answer.offers] == ["priced"]
    assert answer.left_out == {"price": 1}
    assert "p5e.48xlarge" not in {offer.instance.name for offer in catalog.query(OfferFilter(gpu="H200"))}
    assert catalog.search(OfferFilter(gpu="H200")).left_out == {"price": 2}


def test_a_region_that_is_not_known_is_counted() -> None:
    answer = catalog.search(OfferFilter(gpu="V100", region="US-EAST-1"))
    assert {offer.region for offer in answer.offers} == {"us-east-1"}
    assert answer.left_out == {"region": 1}  # lambda's gpu_8x_v100


def test_kinds_of_prices_do_not_mix() -> None:
    for kind in ("on-demand", "spot", "prior"):
        assert {offer.kind for offer in catalog.query(OfferFilter(kinds=(kind,)))} == {kind}
    prior = catalog.query(OfferFilter(gpu="A100", cloud="aws", kinds=("prior",)))
    assert {offer.instance.name: offer.dollars_per_hour for offer in prior}["p4d.24xlarge"] == 32.7726


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
def test_a_gpu_goes_by_model_variant_or_memory(gpu: str, found: set[str]) -> None:
    assert {offer.instance.name for offer in catalog.query(OfferFilter(gpu=gpu, cloud="aws"))} == found


def test_a_variant_nobody_documents_is_unknown_not_a_match() -> None:
    answer = catalog.search(OfferFilter(gpu="V100-SXM2-16GB", cloud="lambda"))
    assert answer.offers == ()
    assert answer.left_out == {"exact GPU": 1}
    assert catalog.search(OfferFilter(gpu="V100-SXM2-32GB", cloud="lambda")).left_out == {}


def test_published_memory_sizes_are_rounded_and_a_minimum_allows_for_it() -> None:
    found = {offer.instance.name for offer in catalog.query(OfferFilter(min_gpu_memory_bytes=24e9, cloud="aws"))}
    assert {"g5.xlarge", "g6.xlarge", "g6e.xlarge"} <= found  # 22.35 GiB is 24 GB
    assert "g4dn.xlarge" not in found


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
def test_interconnect_is_matched_by_parts(wanted: str, fabric: str | None, met: bool | None) -> None:
    assert judge(box("x", gpu_count=8, interconnect=fabric), OfferFilter(interconnect=wanted))[0] is met


def test_a_machine_without_gpus_has_no_gpu_facts_to_be_unknown() -> None:
    plain = box("cpu", gpu_count=0)
    for wish in ({"gpu": "V100"}, {"min_gpu_memory_bytes": 1.0}, {"interconnect": "nvlink"}, {"min_gpu_count": 1}):
        assert judge(plain, OfferFilter.model_validate(wish)) == (False, "")


def test_a_misspelt_wish_is_refused() -> None:
    with pytest.raises(ValidationError):
        OfferFilter.model_validate({"min_netwrok": 3})


def test_names_that_are_not_there_are_answered_with_the_nearest() -> None:
    assert catalog.instance("P3.8XLARGE").name == catalog.instance("aws/p3.8xlarge").name == "p3.8xlarge"
    with pytest.raises(UserError, match=r"unknown instance 'p3.8xlrge'; did you mean p3.8xlarge"):
        catalog.instance("p3.8xlrge")
    with pytest.raises(UserError, match="stash catalog"):
        catalog.instance("qqqqqqqqqqqqq")


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "T4"),
        ("nvidia l4", "L4"),
        ("NVIDIA A10G", "A10G"),
        ("H200", "H200-SXM-141GB"),
    ],
)
def test_a_gpu_is_found_by_the_name_its_driver_gives(name: str, gpu: str) -> None:
    assert catalog.gpu(name).name == gpu


def test_a_gpu_of_several_variants_must_be_named_exactly() -> None:
    with pytest.raises(UserError, match="several variants: A100-SXM4-40GB, A100-SXM4-80GB, A100-PCIe-80GB"):
        catalog.gpu("A100")
    with pytest.raises(UserError, match="did you mean"):
        catalog.gpu("A100-SXM4-8GB")
    with pytest.raises(UserError, match="unknown GPU ''"):
        catalog.gpu("")


def test_importing_the_catalog_loads_no_torch() -> None:
    program = "import sys, stash.keep.catalog, stash.cli.catalog; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_of_the_documentation_finds_what_it_should() -> None:
    assert names("--gpu", "V100", "--min-network", "25gbit", "--cloud", "AWS") == ["p3.16xlarge", "p3dn.24xlarge"]
    assert names("--gpu", "V100", "--min-network", "25gbit", "--cloud", "aws", "--max-price", "10") == []
    assert names("--gpu", "V100", "--min-network", "25gbit", "--cloud", "aws", "--max-price", "10", "--spot") == [
        "p3dn.24xlarge",
        "p3.16xlarge",
    ]
    assert names("--gpus", "16") == ["p2.16xlarge", "a2-megagpu-16g"]
    assert names("--gpu", "L4", "--cloud", "gcp", "--gpus", "2-4", "--sort", "network")[0] == "g2-standard-48"


def test_the_json_has_base_units_dates_sources_and_null_for_unknown() -> None:
    result = CliRunner().invoke(app, ["--gpu", "V100", "--cloud", "lambda", "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    offer = document["offers"][0]
    assert offer["network_bytes_per_second"] is None
    assert offer["memory_bytes"] == 448 * 2**30
    assert offer["price_as_of"] == "2026"
    assert "skypilot" in offer["price_source"]
    assert offer["facts_source"]
    assert document["left_out"] == {}
    assert document["schema"] == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--spot"], ["--history"], ["--gpus", "8"], ["show", "p3.16xlarge"], ["show", "A100-SXM4-80GB"]],
)
def test_everything_printed_fits_80_columns(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_the_table_shows_dates_and_says_what_was_left_out() -> None:
    result = CliRunner().invoke(app, ["--gpu", "V100", "--min-network", "1gbit"], catch_exceptions=False)
    assert "2026-07-20" in result.stdout
    assert "undated" in result.stdout
    assert "5 offers left out: network unknown" in result.stdout


def test_when_nothing_fits_the_command_says_which_wish_is_too_much() -> None:
    arguments = ["--gpu", "V100", "--min-network", "25gbit", "--max-price", "10", "--cloud", "aws"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "no on-demand offer fits" in result.stdout
    assert "without --max-price: p3.16xlarge at $24.48/h and 1 more" in result.stdout


def test_the_sheet_of_an_instance_names_sources_and_says_unknown() -> None:
    result = CliRunner().invoke(app, ["show", "p3.8xlarge"], catch_exceptions=False)
    text = " ".join(result.stdout.split())
    assert "$12.24/h in us-east-1, 2026-07-20 (karpenter zz_generated.pricing_aws.go)" in text
    assert "PCIe, measured unknown" in text
    assert "which 4 GPUs of the mesh" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "V1000"], "unknown GPU 'V1000'; did you mean V100"),
        (["--gpu", " "], "unknown GPU"),
        (["--cloud", "awz"], "unknown cloud 'awz'; did you mean aws"),
        (["--region", "us-east-9"], "unknown region 'us-east-9'; did you mean us-east-1"),
        (["--max-price", "10 EUR"], "not in US dollars"),
        (["--max-price", "€10"], "not in US dollars"),
        (["--max-price", "$2000/month"], "not per hour"),
        (["--max-price", "0"], "zero"),
        (["--min-network", "25"], "has no unit"),
        (["--min-network", "25Gb/s"], "may mean bits or bytes"),
        (["--min-memory", "200"], "has no unit"),
        (["--gpus", "many"], "cannot read --gpus"),
        (["--gpus", "8-4"], "at least 8 and at most 4"),
        (["--min-vcpus", "-1"], "positive"),
        (["--spot", "--history"], "exclude each other"),
        (["--instances", "/nowhere.yaml"], "cannot read the instances file /nowhere.yaml: No such file"),
        (["show", "p3.9xlarge"], "unknown instance 'p3.9xlarge'; did you mean"),
        (["show", "A100"], "several variants"),
        (["--spot", "show", "p3.8xlarge"], "--spot belongs to `stash catalog` alone"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dollars"), [("$3.06/h", 3.06), ("3.06 usd/h", 3.06), ("$3.06", 3.06), ("3.06 USD/hour", 3.06)]
)
def test_prices_are_dollars_per_hour(text: str, dollars: float) -> None:
    assert quantities.price(text) == dollars


@pytest.mark.parametrize("text", ["3.06 EUR/h", "£3/h", "$3/day", "$3 per month", "$3/min", "3,06", "", "free", "-3"])
def test_other_prices_are_refused(text: str) -> None:
    with pytest.raises(UnitError):
        quantities.price(text)


def test_places_follow_the_environment(tmp_path: Path) -> None:
    assert places.snapshot_file({"STASH_HOME": "/s", "XDG_CACHE_HOME": "/c"}) == Path("/s/catalog.json")
    assert places.snapshot_file({"XDG_CACHE_HOME": "/c"}) == Path("/c/stash/catalog.json")
    assert places.own_file({"XDG_CONFIG_HOME": "/c"}) == Path("/c/stash/instances.yaml")
    assert places.own_file({}) == Path.home() / ".config/stash/instances.yaml"
