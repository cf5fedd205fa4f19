"""Facts that must be so: what passes, what fails, what is unknown, and what is no fact."""

from __future__ import annotations

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, check_requirement, parse_requirement
from stash.core.errors import UserError

RUN = build(
    CALM, workload={"precision": "float32", "git_commit": "0123456789abcdef", "git_dirty": True}
)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("ranks=2", PASSES),
        ("ranks=8", FAILS),
        ("world_size = 2", PASSES),
        ("nodes=1", PASSES),
        ("batch=8", PASSES),
        ("Batch-per-device=16", FAILS),
        ("precision=FLOAT32", PASSES),
        ("precision=bfloat16", FAILS),
        ("torch=2.13.0", PASSES),
        ("host=node0", PASSES),
        ("GPU=none", PASSES),
        ("kernel=6.8", CANNOT_TELL),
        ("commit=0123456789ab with changes", PASSES),
        ("commit=0123456789ab", FAILS),
    ],
)
def test_a_fact_is_so_or_not_or_unknown(text, verdict):
    decision = check_requirement(parse_requirement(text), [RUN])
    assert decision.verdict == verdict
    assert decision.limit == f"--require {text}"


def test_one_profile_of_several_is_enough_to_fail():
    decision = check_requirement(parse_requirement("batch=8"), [RUN, build(CALM, batch=16)])
    assert (decision.verdict, decision.sentence) == (FAILS, "batch is 8 or 16; asked for is 8")


@pytest.mark.parametrize("text", ["ranks", "=8", "ranks=", ""])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(UserError, match="write NAME=VALUE"):
        parse_requirement(text)
