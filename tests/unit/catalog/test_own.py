"""The user's own instances: what the YAML file can say, how it wins, and every mistake with its line and field."""

import re
from pathlib import Path

import pytest
from catalogs import own_file

from bench.docs import columns
from stash.catalog import layers, own, shipped
from stash.catalog.offers import OfferFilter
from stash.core.errors import UserError
from stash.predict.gpu_scale import sheet_rates

pytestmark = pytest.mark.usefixtures("home")

GOOD = """\
gpus:
  - name: RTX4090
    memory: 24GiB
    fp32_tflops: 82.6
instances:
  - name: lab-box
    gpu: RTX4090
    gpu_count: 4
    vcpus: 64
    memory: 256GiB
    interconnect: pcie4
    network: 10gbit
    price: $1.20/h
    as_of: 2026-11-01
    source: amortised over three years
  - name: p3.8xlarge          # our negotiated price
    price: $9.50/h
    as_of: 2026-10
  - name: mystery
    gpu: A100
"""


def write(folder, text, name="instances.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def mistake(text):
    """Without the folder that the file is in."""
    with pytest.raises(UserError) as caught:
        own_file(text, "my.yaml")
    return re.sub(r"/\S*/my\.yaml", "my.yaml", str(caught.value))


def test_own_machines_are_offers_like_any_other(home):
    write(home, GOOD)
    known = layers.load()
    offer = next(
        o
        for o in known.query(OfferFilter(gpu="RTX4090", min_gpu_count=4))
        if o.instance.name == "lab-box"
    )
    assert offer.dollars_per_hour == 1.2
    assert offer.as_of == "2026-11-01"
    assert offer.source == "amortised over three years"
    assert offer.instance.cloud == "on-premise"
    assert offer.instance.layer == "user"
    assert offer.instance.gpu_memory_bytes == 24 * 2**30
    assert offer.instance.network_bytes_per_second == 1.25e9
    assert offer.instance.rdma is None
    assert known.gpu("RTX4090").fp32_flops_per_second == 82.6e12
    assert known.layers[-1] == f"own file {home / 'instances.yaml'}"


def test_a_named_file_is_used_instead_of_the_usual_one(home):
    write(home, "this: is not read")
    path = write(home, GOOD, "other.yaml")
    assert layers.load(path).instance("lab-box").vcpus == 64


def test_what_the_file_says_wins_and_what_it_leaves_out_stays(home):
    write(home, GOOD)
    known = layers.load()
    item = known.instance("p3.8xlarge")
    assert item.cloud == "aws"
    assert item.gpu_count == 4
    assert item.network_bytes_per_second == 1.25e9
    prices = {(o.kind, o.region): o.dollars_per_hour for o in known.offers_of(item)}
    assert prices["on-demand", None] == 9.5
    assert ("on-demand", "us-east-1") not in prices
    assert prices["spot", "us-east-1"] == 3.672
    shipped_one = next(each for each in shipped.instances() if each.name == "p3.8xlarge")
    assert (item.as_of, item.source, item.layer) == (
        shipped_one.as_of,
        shipped_one.source,
        "shipped",
    )


def test_a_model_with_several_variants_leaves_the_variant_unknown(home):
    write(home, GOOD)
    known = layers.load()
    item = known.instance("mystery")
    assert (item.gpu_model, item.gpu, item.gpu_memory_bytes, item.gpu_count) == (
        "A100",
        None,
        None,
        1,
    )
    assert known.search(OfferFilter(cloud="on-premise", gpu="A100")).left_out == {"price": 1}


@pytest.mark.parametrize(
    "lines", ["cloud: AWS, name: p3.8xlarge", "name: P3.8xlarge", "cloud: Aws, name: P3.8XLARGE"]
)
def test_a_known_type_is_corrected_in_any_case(home, lines):
    write(home, f"instances:\n  - {{{lines}, network: 12gbit, price: $9/h}}\n")
    known = layers.load()
    (item,) = [each for each in known.instances if each.name.lower() == "p3.8xlarge"]
    assert (item.cloud, item.network_bytes_per_second) == ("aws", 1.5e9)
    assert [o.dollars_per_hour for o in known.offers_of(item) if o.kind == "on-demand"] == [9]


RESERVED = """\
instances:
  - name: p4d.24xlarge
    reserved_price: $13.20/h
    reserved_count: 4
"""


def test_reserved_capacity_stands_beside_what_everybody_can_rent(home):
    write(home, RESERVED)
    known = layers.load()
    item = known.instance("p4d.24xlarge")
    assert item.reserved_count == 4
    kinds = {offer.kind: offer.dollars_per_hour for offer in known.offers_of(item)}
    assert kinds["reserved"] == 13.2
    assert kinds["on-demand"] > 13.2
    assert [offer.kind for offer in known.query(OfferFilter(gpu="A100", cloud="aws"))].count(
        "reserved"
    ) == 0


def entry(lines):
    if lines.startswith("{"):
        return f"instances:\n  -\n    {lines.replace('{', '{name: box, ')}\n"
    return f"instances:\n  - name: box\n    {lines}\n"


@pytest.mark.parametrize(
    ("lines", "field", "message"),
    [
        ("price: 3.06 EUR/h", "price", "not in US dollars"),
        ("price: €3.06/h", "price", "not in US dollars"),
        ("price: $90/day", "price", "not per hour"),
        ("price: 3.06", "price", "has no unit"),
        ("price: '3.06'", "price", "has no unit"),
        ("price: $0/h", "price", "is zero"),
        ("price: $1e9/h", "price", "cannot be a price"),
        ("price: yes", "price", "should be a quantity with its unit"),
        ("spot_price: a lot", "spot_price", "cannot read the price"),
        ("memory: 256", "memory", "has no unit"),
        ("memory: 256 gbit", "memory", "unknown size unit"),
        ("memory: 2kB", "memory", "cannot be a size"),
        ("network: 25Gb/s", "network", "may mean bits or bytes"),
        ("network: 25GB", "network", None),
        ("network: 25 parsec", "network", "unknown rate unit"),
        ("vcpus: many", "vcpus", "number"),
        ("vcpus: -4", "vcpus", "greater than 0"),
        ("vcpus: .nan", "vcpus", "finite"),
        ("gpu_count: -1", "gpu_count", "greater than or equal to 0"),
        ("netwrok: 25gbit", "netwrok", "no such field; did you mean network?"),
        ("as_of: last week", "as_of", "is not a date"),
        ("gpu: A100-SXM4-80G", "gpu", "did you mean A100-SXM4-80GB"),
        ("gpu: FPGA", "gpu", "add it under gpus:"),
        ("interconnect: [nvlink]", "interconnect", "string"),
        ("count: 0", "count", "greater than or equal to 1"),
        ("count: 1.5", "count", "integer"),
        ("reserved_price: $7/h", "reserved_price", "needs reserved_count as well"),
        ("reserved_count: 4", "reserved_count", "needs reserved_price as well"),
        (
            "{pair_min: 50GB/s, pair_max: 10GB/s}",
            "pair_min",
            "is above pair_max (50.0 GB/s and 10.0 GB/s)",
        ),
        ("{network: 10gbit, network_burst: 1gbit}", "network", "is above network_burst"),
    ],
)
def test_a_mistake_is_shown_with_line_and_field(lines, field, message):
    if message is None:
        own_file(entry(lines))  # a rate without /s can only mean one thing
        return
    text = mistake(entry(lines))
    assert text.startswith(f"my.yaml:3: instances[0].{field}: ")
    assert message in text
    assert "\n" not in text


def test_a_value_on_the_next_line_is_reported_where_its_field_stands():
    assert mistake(entry("price:\n      3.06 EUR/h")).startswith("my.yaml:3: instances[0].price: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instances:\n  - name: [a\n", ":3: it is not valid YAML"),
        ("instances:\n\t- name: a\n", ":2: it is not valid YAML"),
        (
            "instances:\n  - name: a\n    vcpus: 1\n    vcpus: 2\n",
            ":4: it is not valid YAML: 'vcpus' is given twice",
        ),
        (
            "instances:\n  - name: a\n  - name: a\n",
            ":3: instances[1].name: there are two instances called 'a'",
        ),
        ("instances: box\n", ":1: instances: must be a list"),
        ("instances:\n  - box\n", ":2: "),
        ("- name: box\n", ":1: the file: must hold named fields"),
        ("machines: []\n", ":1: machines: there is no such field"),
        ("a: &a [*a]\n", "my.yaml"),
        ("instances: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        ("instances:\n  - name: a\n    as_of: 2026-13-45\n", "my.yaml"),
        ("instances:\n  - name: ''\n", ":2: instances[0].name: "),
        ("a: b\n---\nc: d\n", "not valid YAML"),
    ],
)
def test_a_malformed_file_is_a_users_mistake(text, message):
    assert message in mistake(text)


def test_a_file_that_is_no_text_is_a_users_mistake(home):
    path = home / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        own.load_own_file(path)
    with pytest.raises(UserError, match="Is a directory"):
        own.load_own_file(home)


PAGE = Path(__file__).parents[3] / "docs/how-to/own-instances.md"


def test_the_examples_of_the_documentation_work(home):
    first, by_hand = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(own_file(by_hand).entries) == 2
    write(home, first)
    known = layers.load()
    (lab,) = known.query(OfferFilter(gpu="RTX4090"))
    assert lab.dollars_per_hour == 1.36
    assert (
        known.query(OfferFilter(gpu="V100", cloud="aws", min_gpu_count=4))[0].dollars_per_hour
        == 9.5
    )


def test_the_documentation_lists_every_field():
    text = PAGE.read_text()
    fields = {*own.OwnInstance.model_fields, *own.OwnGpu.model_fields}
    assert {field for field in fields if f"`{field}`" not in text} == set()


def test_the_documentation_lists_every_column_of_the_data():
    listed = columns.page()
    for name in ("gpus.csv", "instances.csv", "prices.csv"):
        line = next(line for line in listed.splitlines() if line.startswith(f"| `{name}` |"))
        assert [one for one in shipped.read_rows(name)[0] if f"`{one}`" not in line] == list(
            columns.EVERYWHERE
        )


def test_a_gpu_of_the_user_s_own_has_what_its_speed_is_told_from(tmp_path):
    """Issue 60: neither its architecture nor TF32 could be given, so nothing was known of its speed."""
    file = tmp_path / "own.yaml"
    fields = (
        "memory_bandwidth: 1TB/s, fp32_tflops: 80, tensor_fp16_tflops: 160, tensor_tf32_tflops: 80"
    )
    file.write_text(f"gpus:\n  - {{name: Mine, {fields}, architecture: Ada}}\n")
    (mine,) = own.load_own_file(file).gpus
    assert (mine.architecture, mine.tensor_tf32_flops_per_second) == ("Ada", 80e12)
    assert sheet_rates(mine, "fp32") is not None
    file.write_text("gpus:\n  - {name: Mine, architecture: Adaa}\n")
    with pytest.raises(UserError, match=r"own.yaml:2: gpus\[0\].architecture: should be 'Kepler'"):
        own.load_own_file(file)
