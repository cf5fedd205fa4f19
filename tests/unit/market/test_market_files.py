"""Market files and what others wrote down: read back alike, holes kept, mistakes named with line and column."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from stash.core.errors import UserError
from stash.market.market_importers import import_aws, import_skypilot
from stash.market.market_table import read_market, written
from stash.market.market_trace import MarketOffer, merged, stamp

HEAD = (
    "# stash market 1\n# source: by hand\n# max_gap: 7200\n"
    "at,cloud,region,zone,instance,kind,usd_per_hour,available\n"
)
ROWS = (
    "2020-02-27T10:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409,2\n"
    "2020-02-27T10:30:00+00:00,azure,us_east,,NC6 v2,spot,0.3,\n"
    "2020-02-27T11:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.2,0\n"
    "2020-02-27T15:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.0,\n"
)


def file(folder: Path, text: str, name: str = "a.market.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_row_holds_until_the_next_one_but_no_longer_than_max_gap(tmp_path: Path) -> None:
    found = read_market(file(tmp_path, HEAD + ROWS))
    assert [each.name for each in found.offers] == ["p3.2xlarge@us-east-1b", "NC6 v2@us_east"]
    pieces = [
        (stamp(at)[11:16], price, count)
        for at, price, count in zip(
            found.at[1:6].tolist(), found.price[1:6].tolist(), found.available[1:6].tolist(), strict=True
        )
    ]
    assert str(pieces) == str([
        ("10:00", 1.1409, 2.0), ("11:00", 1.2, 0.0), ("13:00", float("nan"), float("nan")),
        ("15:00", 1.0, float("nan")),
        ("17:00", float("nan"), float("nan")),
    ])  # fmt: skip
    # 10:30 to 11:00 at 1.1409 and half an hour at 1.2.
    begin = int(found.at[1]) + 1800
    assert found.dollars(0, begin, begin + 3600) == pytest.approx(0.5 * 1.1409 + 0.5 * 1.2)


@pytest.mark.parametrize("name", ["b.market.csv", "b.market.csv.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    found = read_market(file(tmp_path, HEAD + ROWS))
    path = tmp_path / name
    path.write_bytes(written(found, path))
    again = read_market(path)
    assert again.offers == found.offers
    assert (again.max_gap, again.sources) == (7200, ("by hand",))
    for one, other in ((found.at, again.at), (found.price, again.price), (found.available, again.available)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("2020-02-27T09:00:00Z,aws,r,z,p3,spot,1,", r":9: at: 2020-02-27T09:00:00Z is earlier than the line before"),
        (
            "2020-02-27T18:00:00,aws,r,z,p3,spot,1,",
            r":9: at: 2020-02-27T18:00:00 has no zone; write .*Z if it is UTC",
        ),
        ("tomorrow,aws,r,z,p3,spot,1,", r":9: at: 'tomorrow' is no time"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,€1,", r":9: usd_per_hour: '€1' is in another currency"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,-1,", r":9: usd_per_hour: -1 is negative"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,1e9,", r":9: usd_per_hour: 1e9 is no price of an hour"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,nan,", r":9: usd_per_hour: nan is no price of an hour"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,cheap,", r":9: usd_per_hour: 'cheap' is no price"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,spot,1,-1", r":9: available: '-1' is no number of machines"),
        ("2020-02-27T18:00:00Z,aws,r,z,p3,free,1,", r":9: kind: 'free' is none; write spot or on-demand"),
        ("2020-02-27T18:00:00Z,aws,,,p3,spot,1,", r":9: zone: neither zone nor region is given"),
        ("2020-02-27T18:00:00Z,aws", r":9: it has 2 columns of 8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_market(file(tmp_path, HEAD + ROWS + row + "\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# stash market 2\n", "this Stash reads version 1"),
        ("# stash market 1\n", "no line with the names of columns"),
        ("# max_gap: soon\n", ":1: max_gap: 'soon' is no number of seconds"),
        ("at,cloud,zone,instance,kind,eur_per_hour\n", ":1: eur_per_hour: prices are US dollars"),
        ("at,cloud,zone,instance,kind,price\n", ":1: there is no column usd_per_hour"),
        (HEAD, "has no rows"),
    ],
)
def test_a_file_that_is_no_market_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_market(file(tmp_path, text))


def test_a_truncated_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress((HEAD + ROWS * 1).encode())
    (tmp_path / "a.market.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(UserError, match="ends in the middle or is damaged"):
        read_market(tmp_path / "a.market.csv.gz")


def test_duplicates_merge_and_contradictions_are_kept_to_be_shown(tmp_path: Path) -> None:
    line = "2020-02-27T15:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,{},\n"
    found = read_market(file(tmp_path, HEAD + ROWS + line.format("1.0") + line.format("2.0")))
    assert found.duplicates == 1
    (against,) = found.contradictions
    assert (against.kept, against.dropped) == ("$2/h", "$1/h")
    one, other = (
        read_market(file(tmp_path, HEAD + line.format(price), f"{price}.market.csv")) for price in ("1.0", "3.0")
    )
    both = merged([one, other])
    assert [(each.kept, each.dropped) for each in both.contradictions] == [("3", "1")]
    assert both.dollars(0, both.begin, both.begin + 3600) == 3.0


def test_prices_and_counts_of_two_files_fill_each_other_in(tmp_path: Path) -> None:
    row = "2020-02-27T1{}:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,{},{}\n"
    prices = read_market(file(tmp_path, HEAD + row.format(0, "1.5", ""), "p.market.csv"))
    counts = read_market(file(tmp_path, HEAD + row.format(1, "", "1"), "c.market.csv"))
    both = merged([prices, counts])
    assert (both.price[1], both.price[2]) == (1.5, 1.5)
    assert (np.isnan(both.available[1]), both.available[2]) == (True, 1)


def test_aws_prints_what_is_imported(tmp_path: Path) -> None:
    entries = [
        {"AvailabilityZone": "us-east-1b", "InstanceType": "p3.2xlarge", "ProductDescription": what,
         "SpotPrice": price, "Timestamp": f"2020-02-27T{hour}:00:00.000Z"}
        for what, price, hour in (("Linux/UNIX", "1.14", 17), ("Linux/UNIX", "1.01", 12), ("Windows", "9", 12))
    ]  # fmt: skip
    found = import_aws([file(tmp_path, json.dumps({"SpotPriceHistory": entries}), "a.json")])
    assert found.trace.offers == (MarketOffer("aws", "us-east-1", "us-east-1b", "p3.2xlarge", "spot"),)
    assert found.trace.price[1:3].tolist() == [1.01, 1.14]
    assert found.notes == ["1 prices of other systems than Linux left out"]
    with pytest.raises(UserError, match="has no SpotPriceHistory"):
        import_aws([file(tmp_path, "{}", "b.json")])


def test_a_trace_of_skypilot_counts_machines(tmp_path: Path) -> None:
    folder = tmp_path / "aws-02-15-2023"
    folder.mkdir()
    ticks = {"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, 1], "prices": [0.9, 0.9, 0.9, 1.0]}
    path = file(folder, json.dumps(ticks), "us-west-2a_v100_1.json")
    found = import_skypilot([path], on_demand={"p3.2xlarge": 3.06}).trace
    spot = found.number("p3.2xlarge@us-west-2a")
    rows = slice(found.first[spot] + 1, found.first[spot + 1])
    assert [stamp(each)[8:16] for each in found.at[rows]] == ["15T00:00", "15T00:20", "15T00:30", "15T00:40"]
    assert found.available[rows][:3].tolist() == [1, 0, 1]
    assert found.price[rows][:3].tolist() == [0.9, 0.9, 1.0]
    assert found.offers[1 - spot].name == "p3.2xlarge@us-west-2:on-demand"
    del ticks["prices"]
    bare = import_skypilot([file(folder, json.dumps(ticks), "us-west-2b_v100_1.json")])
    assert np.isnan(bare.trace.price).all()
    assert "has no prices; say what p3.2xlarge cost" in bare.notes[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[4, 4, 0]", "is not a trace of machines; write it like"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, 4', "it is no JSON, or not all of it"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, null]}', "has a gap at tick 1"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, -1]}', "data.1"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, 1.5]}', "data.1"),
        ('{"metadata": {"gap_seconds": 600}, "data": []}', "data"),
        ('{"metadata": {"gap_seconds": 0}, "data": [4]}', "gap_seconds"),
        ('{"metadata": {}, "data": [4]}', "gap_seconds"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4], "unit": "machines"}', "its 'unit' has no known meaning"),
        ('{"metadata": {"gap_seconds": 600, "start": "May"}, "data": [4]}', "its start 'May' is no time"),
        ('{"metadata": {"gap_seconds": 600, "start": 5}, "data": [4]}', "its start '5' is no time"),
    ],
)
def test_what_is_no_trace_of_skypilot_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "us-east-1a_v100_1.json"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        import_skypilot([file])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
