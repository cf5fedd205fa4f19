"""Market files and what others wrote down: read back alike, holes kept, mistakes named with line and column."""

import gzip
import json

import numpy as np
import pytest

from stash.core.errors import UserError
from stash.market.market_importers import import_skypilot
from stash.market.market_table import market_bytes, read_market
from stash.market.market_trace import iso_time, merge_traces

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


def file(folder, text, name="a.market.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_row_holds_until_the_next_one_but_no_longer_than_max_gap(tmp_path):
    found = read_market(file(tmp_path, HEAD + ROWS))
    assert [each.name for each in found.offers] == ["p3.2xlarge@us-east-1b", "NC6 v2@us_east"]
    first = slice(1, 6)
    assert [iso_time(at)[11:16] for at in found.at[first]] == [
        "10:00",
        "11:00",
        "13:00",
        "15:00",
        "17:00",
    ]
    np.testing.assert_array_equal(found.price[first], [1.1409, 1.2, np.nan, 1.0, np.nan])
    np.testing.assert_array_equal(found.available[first], [2, 0, np.nan, np.nan, np.nan])
    # 10:30 to 11:00 at 1.1409 and half an hour at 1.2.
    begin = int(found.at[1]) + 1800
    assert found.paid(0, [begin, begin + 3600]) == pytest.approx(0.5 * 1.1409 + 0.5 * 1.2)


@pytest.mark.parametrize("name", ["b.market.csv", "b.market.csv.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    found = read_market(file(tmp_path, HEAD + ROWS))
    path = tmp_path / name
    path.write_bytes(market_bytes(found, path))
    again = read_market(path)
    assert again.offers == found.offers
    assert (again.max_gap, again.sources) == (7200, ("by hand",))
    for one, other in (
        (found.at, again.at),
        (found.price, again.price),
        (found.available, again.available),
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            "2020-02-27T09:00:00Z,aws,r,z,p3,spot,1,",
            r":9: at: 2020-02-27T09:00:00Z is earlier than the line before",
        ),
        (
            "2020-02-27T18:00:00,aws,r,z,p3,spot,1,",
            r":9: at: 2020-02-27T18:00:00 has no zone; write .*Z if it is UTC",
        ),
        ("tomorrow,aws,r,z,p3,spot,1,", r":9: at: 'tomorrow' is no time"),
        ("1960-02-27T18:00:00Z,aws,r,z,p3,spot,1,", r":9: at: 1960-02-27T18:00:00Z is before 1970"),
        *(
            (
                f"2020-02-27T18:00:00Z,aws,r,z,p3,spot,{price},",
                rf":9: usd_per_hour: '{price}' is no price of an hour",
            )
            for price in ("€1", "-1", "1e9", "nan", "cheap")
        ),
        (
            "2020-02-27T18:00:00Z,aws,r,z,p3,spot,1,-1",
            r":9: available: '-1' is no number of machines",
        ),
        (
            "2020-02-27T18:00:00Z,aws,r,z,p3,spot,1,1.5",
            r":9: available: '1.5' is no number of machines",
        ),
        (
            "2020-02-27T18:00:00Z,aws,r,z,p3,free,1,",
            r":9: kind: 'free' is none; write spot or on-demand",
        ),
        (
            "2020-02-27T18:00:00Z,aws,,,p3,spot,1,",
            r":9: it needs a cloud, a region or a zone, and an instance",
        ),
        ("2020-02-27T18:00:00Z,aws", r":9: it has 2 columns of 8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, row, says):
    with pytest.raises(UserError, match=says):
        read_market(file(tmp_path, HEAD + ROWS + row + "\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# stash market 2\n", "this Stash reads version 1"),
        ("# stash market 1\n", ":2: '' does not name the columns; write at,cloud"),
        ("# max_gap: soon\n", ":1: max_gap: 'soon' is no number of seconds"),
        (
            "at,cloud,zone,instance,kind,eur_per_hour\n",
            ":1: .* does not name the columns; .* Prices are US dollars",
        ),
        (HEAD, "has no rows"),
    ],
)
def test_a_file_that_is_no_market_is_refused(tmp_path, text, says):
    with pytest.raises(UserError, match=says):
        read_market(file(tmp_path, text))


def test_a_truncated_gzip_is_refused(tmp_path):
    (tmp_path / "a.market.csv.gz").write_bytes(gzip.compress((HEAD + ROWS).encode())[:-20])
    with pytest.raises(UserError, match="ends in the middle or is damaged"):
        read_market(tmp_path / "a.market.csv.gz")


def test_the_later_word_is_kept_and_two_files_fill_each_other_in(tmp_path):
    row = "2020-02-27T1{}:00:00Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,{},{}\n"
    twice = read_market(file(tmp_path, HEAD + row.format(0, 1, "") + row.format(0, 2, "")))
    assert twice.price[1] == 2
    prices = read_market(file(tmp_path, HEAD + row.format(0, "1.5", "")))
    counts = read_market(file(tmp_path, HEAD + row.format(1, "", "1")))
    both = merge_traces([twice, prices, counts])
    assert both.price[1:3].tolist() == [1.5, 1.5]
    np.testing.assert_array_equal(both.available[1:3], [np.nan, 1])


def test_a_trace_of_skypilot_counts_machines(tmp_path):
    folder = tmp_path / "aws-02-15-2023"
    folder.mkdir()
    ticks = {
        "metadata": {"gap_seconds": 600},
        "data": [1, 1, 0, 1],
        "prices": [0.9, 0.9, 0.9, None],
    }
    path = file(folder, json.dumps(ticks), "us-west-2a_v100_1.json")
    found = import_skypilot([path], on_demand={"p3.2xlarge": 3.06}).trace
    fixed, spot = found.offers
    assert (fixed.name, spot.name) == ("p3.2xlarge@us-west-2:on-demand", "p3.2xlarge@us-west-2a")
    rows = slice(found.first[1] + 1, found.first[2])
    assert [iso_time(each)[8:16] for each in found.at[rows]] == [
        "15T00:00",
        "15T00:20",
        "15T00:30",
        "15T00:40",
    ]
    np.testing.assert_array_equal(found.available[rows], [1, 0, 1, np.nan])
    np.testing.assert_array_equal(found.price[rows], [0.9, 0.9, np.nan, np.nan])
    del ticks["prices"]
    bare = import_skypilot([file(folder, json.dumps(ticks), "us-west-2b_v100_1.json")])
    assert np.isnan(bare.trace.price).all()
    assert bare.notes == ["no price of p3.2xlarge; say it, like --spot-price p3.2xlarge=0.918"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[4, 4, 0]", "is not a trace"),
        (
            '{"metadata": {"gap_seconds": 600}, "data": [4, 4',
            "it is no JSON, or not all of it; write it like",
        ),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, null]}', "data.1"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, -1]}', "data.1"),
        ('{"metadata": {"gap_seconds": 600}, "data": [4, 1.5]}', "data.1"),
        ('{"metadata": {"gap_seconds": 600}, "data": []}', "data"),
        ('{"metadata": {"gap_seconds": 0}, "data": [4]}', "gap_seconds"),
        ('{"metadata": {}, "data": [4]}', "gap_seconds"),
        (
            '{"metadata": {"gap_seconds": 600}, "data": [4], "unit": "machines"}',
            "unit: extra inputs are not",
        ),
        (
            '{"metadata": {"gap_seconds": 600}, "data": [4], "prices": [1, 2]}',
            "there are 2 prices for 1 ticks",
        ),
        (
            '{"metadata": {"gap_seconds": 600, "start": "May"}, "data": [4]}',
            "its start 'May' is no time",
        ),
        ('{"metadata": {"gap_seconds": 600, "start": 5}, "data": [4]}', "start"),
    ],
)
def test_what_is_no_trace_of_skypilot_is_one_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError) as error:
        import_skypilot([file(tmp_path, text, "us-east-1a_v100_1.json")])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
