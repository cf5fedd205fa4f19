"""Quantities as people write them, and as Stash prints them."""

import math
import re

import pytest

from stash.core.errors import UnitError
from stash.core.parsers import whole
from stash.core.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_price,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", 512),
        ("110 kB", 110e3),
        ("2GiB", 2 * 2**30),
        ("1.5 mb", 1.5e6),
        ("3e3 B", 3000),
        (".5k", 500),
    ],
)
def test_sizes(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10gbit", 1.25e9),
        ("25 Gbit/s", 3.125e9),
        ("200mbit", 25e6),
        ("1.2 GB/s", 1.2e9),
        ("100 MBps", 100e6),
        ("800bit", 100),
    ],
)
def test_rates(text, expected):
    assert parse_rate(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["100Gbps", "25 Gb/s", "10gbps", "1 Mb/s"])
def test_a_rate_that_may_be_of_bits_or_bytes_is_refused(text):
    with pytest.raises(UnitError, match="may mean bits or bytes"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250 ms", 0.25),
        ("0", 0),
        ("60s", 60),
        ("2min", 120),
        ("1h", 3600),
        ("5 us", 5e-6),
        ("3 µs", 3e-6),
    ],
)
def test_durations(text, expected):
    assert parse_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["24", "1.5", " 24 "])
def test_a_duration_without_a_unit_is_refused(text):
    number = text.strip()
    with pytest.raises(
        UnitError, match=f"^{re.escape(f'{number} what? type {number}h, {number}m or {number}s')}$"
    ):
        parse_seconds(text)


def test_a_name_that_says_the_unit_needs_no_other():
    assert parse_seconds("24", named="s") == 24
    assert parse_seconds("24h", named="s") == 24 * 3600


@pytest.mark.parametrize(
    ("text", "expected"), [("$3.06/h", 3.06), ("3.06", 3.06), ("12 USD", 12.0), ("$1/hour", 1.0)]
)
def test_prices(text, expected):
    assert parse_price(text) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_bytes, "10 gbots"),
        (parse_bytes, "many"),
        (parse_bytes, "-5 MB"),
        (parse_rate, "10 furlongs"),
        (parse_rate, ""),
        (parse_seconds, "5 parsecs"),
        (parse_price, "3 EUR"),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example_or_the_units(parse, text):
    with pytest.raises(UnitError, match=r"write it like|use |dollars"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12.3 ms"),
        (0.2316, "232 ms"),
        (1.5, "1.50 s"),
        (4.2e-6, "4.20 µs"),
        (0.0, "0.00 µs"),
        (-0.0004, "-400 µs"),
        (600.0, "10.0 min"),
        (math.nan, "unknown"),
    ],
)
def test_durations_are_printed_with_three_digits(seconds, text):
    assert format_seconds(seconds) == text


def test_sizes_and_rates_are_printed_with_decimal_prefixes():
    assert format_bytes(46_800_000) == "46.8 MB"
    assert format_bytes(12) == "12.0 B"
    assert format_rate(1.2e9) == "1.20 GB/s"


@pytest.mark.parametrize("text", ["1e308T", "2.5", "0", "3000000000"])
def test_a_whole_number_beyond_its_bounds_is_one_sentence(text):
    with pytest.raises(UnitError, match="it must be a whole number, 1 or more"):
        whole(1)(text)
