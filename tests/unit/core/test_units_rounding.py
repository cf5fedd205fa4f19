"""The unit and the decimals that fit a number, and a rounding that keeps a sum."""

import pytest

from stash.core.units import (
    SECONDS,
    format_bytes,
    format_rate,
    round_to_sum,
    scale_for,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999.4e6, "999 MB"),
        (999.6e6, "1.00 GB"),
        (99.94e6, "99.9 MB"),
        (99.96e6, "100 MB"),
        (9.994e6, "9.99 MB"),
        (9.996e6, "10.0 MB"),
        (999.6, "1.00 kB"),
        (-999.6e6, "-1.00 GB"),
        (0.5, "0.50 B"),
        (0.0, "0.00 B"),
        (2e15, "2,000 TB"),
    ],
)
def test_what_three_digits_round_to_1000_belongs_to_the_next_unit(count, text):
    assert format_bytes(count) == text
    assert format_rate(count) == text + "/s"


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        (0.2316, "231.6 ms"),
        (1.92, "1.920 s"),
        (0.0123, "12.30 ms"),
        (4e-6, "4.000 µs"),
        (250.0, "250.0 s"),
        (0.99996, "1.000 s"),
        (0.99994, "999.9 ms"),
        (4e-7, "0.400 µs"),
    ],
)
def test_the_unit_fits_a_step_of_four_digits(step, shown):
    assert scale_for(step, SECONDS, digits=4).text(step) == shown


def test_rounding_keeps_the_sum():
    assert round_to_sum([1.4, 1.4, 1.4], 0) == [2.0, 1.0, 1.0]
    assert round_to_sum([-0.4, 10.4], 0) == [0.0, 10.0]
    assert round_to_sum([0.123456, 0.1], 3) == [0.123, 0.1]
