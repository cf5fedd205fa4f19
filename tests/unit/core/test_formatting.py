"""How a measured number is written, with its spread: one way for every report."""

import pytest

from stash.core.formatting import (
    bits_parts,
    format_bit_rate,
    format_fact,
    format_quantity,
    join_names,
    plus_minus,
    split_spread,
)
from stash.core.intervals import Interval
from stash.core.units import SECONDS, format_bits, scale_for


def around(value, below, above):
    return Interval(value=value, low=value - below, high=value + above, repetitions=7)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (around(9.21e9, 0.30e9, 0.30e9), "9.21 ± 0.30 GB/s"),
        (
            around(9.21e9, 0.12e9, 0.30e9),
            "9.21 ± 0.30 GB/s",
        ),  # the longer arm's, up to three times as long
        (around(9.21e9, 0.09e9, 0.30e9), "9.21 +0.30 −0.09 GB/s"),
        (around(9.21e9, 0.30e9, 0.09e9), "9.21 +0.09 −0.30 GB/s"),
        (
            around(9.21e9, 0.004e9, 0.001e9),
            "9.21 ± <0.01 GB/s",
        ),  # too narrow to print, lopsided or not
        (
            around(2.0e9, 1.2e9, 2.6e9),
            "2.00 +2.60 −1.20 GB/s",
        ),  # ± 2.6 would let a rate be negative
        (around(9.21e9, 0.009e9, 0.001e9), "9.21 ± 0.01 GB/s"),
        (Interval(value=9.21e9), "9.21 GB/s (± unknown)"),
        (around(999.6e6, 2e6, 2e6), "1.00 ± <0.01 GB/s"),
        (around(999.6e6, 20e6, 20e6), "1.00 ± 0.02 GB/s"),
        (around(1040e6, 1200e6, 1200e6), "1.04 ± 1.20 GB/s"),
    ],
)
def test_a_rate_is_written_with_its_spread(interval, text):
    assert format_quantity(interval, "bytes/s") == text


def test_a_spread_that_dwarfs_its_value_decides_the_unit():
    assert format_quantity(around(0.0, 0.206, 0.206), "seconds") == "0 ± 206 ms"
    assert format_quantity(around(2e-6, 0.206, 0.206), "seconds") == "0 ± 206 ms"
    assert format_quantity(around(0.0, 0.0, 0.0), "seconds") == "0.00 ± <0.01 µs"


def test_a_table_has_value_and_spread_apart():
    assert split_spread(around(1.61e-3, 0.11e-3, 0.37e-3), "seconds") == ("1.61 ms", "+0.37 −0.11")
    assert split_spread(around(1040.0, 17.0, 17.0), "samples/s") == ("1,040 samples/s", "± 17")
    assert split_spread(Interval(value=0.05), "fraction") == ("5.00 %", "± unknown")
    assert split_spread(Interval(value=64.0), "count") == ("64", "± unknown")


def test_networks_are_written_in_bits():
    rate = around(1.25e9, 0.05e9, 0.05e9)
    assert format_bit_rate(rate) == "10.0 ± 0.4 Gbit/s"
    assert bits_parts(rate) == ("10.0 Gbit/s", "± 0.4")
    assert format_bits(3.125e9) == "25 Gbit/s"
    assert format_bits(999.6e6 / 8) == "1 Gbit/s"


def test_a_spread_is_written_in_the_unit_of_what_it_belongs_to():
    step = scale_for(0.176, SECONDS, digits=4)
    assert plus_minus(around(0.004, 0.0014, 0.0014), step) == "± 1.4"
    assert plus_minus(around(0.004, 0.00002, 0.00002), step) == "± <0.1"


def test_facts_have_no_spread():
    assert format_fact(50e9, "bytes/s") == "50.0 GB/s"
    assert format_fact(0.5, "seconds") == "500 ms"
    assert format_fact(16e9, "bytes") == "16.0 GB"
    assert format_fact(0.07, "fraction") == "7%"
    assert format_fact(64, "count") == "64"


def test_long_lists_are_counted():
    assert join_names(["0"]) == "0"
    assert join_names(["0", "1", "3"]) == "0, 1 and 3"
    assert join_names(list("abcdefgh"), most=4) == "a, b, c and 5 more"
