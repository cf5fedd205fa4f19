"""What golden comparisons forgive: the digits of a float that depend on the processor, and nothing else."""

from __future__ import annotations

import pytest
from golden_numbers import copy_close_numbers


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ('"seconds": 0.004148661050914219,', '"seconds": 0.004148661050914216,'),
        ("[0.30000000000000004, 1]", "[0.3, 1]"),
        (
            'stash_step_seconds{run="a"} -1.2345678901234e-07',
            'stash_step_seconds{run="a"} -1.2345678901235e-07',
        ),
        ("step 1.0000000004 s", "step 1.0 s"),
    ],
)
def test_numbers_that_agree_to_nine_digits_are_spelled_as_in_the_golden_text(text, golden):
    assert copy_close_numbers(text, golden) == golden


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ('"seconds": 0.004148661,', '"seconds": 0.004148662,'),
        ('"seconds": 0.00414866105,', '"seconds": 0.00414866106,'),
        ('"bytes": 64000000000', '"bytes": 64000000001'),
        ('"seconds": -0.004148661050914219', '"seconds": 0.004148661050914219'),
        ("0.1234567890123 s", "0.1234567890124 ms"),
        ("torch 2.13.0000000001", "torch 2.13.0000000002 "),
        ("0.1234567890123 0.2", "0.1234567890124"),
        ("12.3 ms", "12.4 ms"),
    ],
)
def test_everything_else_has_to_be_the_same_to_the_character(text, golden):
    assert copy_close_numbers(text, golden) != golden
