"""Limits as people type them, and what becomes of them."""

from __future__ import annotations

import re

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.limits import (
    CANNOT_TELL,
    FAILS,
    PASSES,
    judge_limit,
    not_slower,
    parse_limit,
    parse_slower,
)
from stash.core.errors import UserError

RUN = attribute(build(CALM))
"""A step of 176 ms: compute 100, contention 4, interconnect 36, prep 30, fetch 6."""


@pytest.mark.parametrize(
    ("option", "text", "verdict"),
    [
        ("--max", "step=250ms", PASSES),
        ("--max", "step=150ms", FAILS),
        ("--max", "step=176ms", CANNOT_TELL),
        ("--max", "interconnect=40%", PASSES),
        ("--max", "interconnect=10%", FAILS),
        ("--max", "interconnect=20.5%", CANNOT_TELL),
        ("--max", "prep = 0.1s", PASSES),
        ("--min", "samples/s=50", PASSES),
        ("--min", "samples/s=500", FAILS),
        ("--max", "samples/s=50", FAILS),
        ("--min", "step=250ms", FAILS),
    ],
)
def test_a_limit_is_decided_by_the_whole_interval(option, text, verdict):
    decision = judge_limit(parse_limit(option, text), [RUN])
    assert decision.verdict == verdict
    assert decision.limit == f"{option} {text}"


def test_a_baseline_is_kept_broken_or_neither():
    slower = attribute(
        build({name: [1.2 * value for value in values] for name, values in CALM.items()})
    )
    assert not_slower(parse_slower("5%"), [RUN], [RUN]).verdict == PASSES
    assert not_slower(parse_slower("5%"), [RUN], [slower]).verdict == FAILS
    assert not_slower(parse_slower("20%"), [RUN], [slower]).verdict == CANNOT_TELL
    assert not_slower(parse_slower("50%"), [RUN], [slower]).verdict == PASSES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("network", "write NAME=VALUE"),
        ("netwrok=3%", "NAME is one of step, samples/s, compute"),
        ("step=5%", "a share of the step is a stall's; give step as 250ms"),
        ("step=250", "--max step=250: 250 what? type 250ms or 250s"),
        ("prep=-3%", "'-3' is not a number from 0 up"),
        ("samples/s=fast", "'fast' is not a number from 0 up"),
        ("step=fast", "cannot read the duration 'fast'"),
        ("prep=nan%", "'nan' is not a number from 0 up"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_type(text, words):
    with pytest.raises(UserError, match=re.escape(words)):
        parse_limit("--max", text)
