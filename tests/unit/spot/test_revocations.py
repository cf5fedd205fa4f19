"""Revocations as they are written, and when they happen."""

import pytest

from stash.core.errors import UserError
from stash.spot.emulate.revocations import Revocation, RevocationMoment, moments, parse_revocation


def test_a_revocation_is_read_with_and_without_notice():
    assert parse_revocation("worker2@40s,notice=20s") == Revocation("worker2", 40.0, 20.0)
    assert parse_revocation("worker2@40,notice=20") == Revocation("worker2", 40.0, 20.0)
    assert parse_revocation("v100@1m") == Revocation("v100", 60.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "worker2",
        "@40s",
        "worker2@",
        "worker2@soon",
        "worker2@40s,",
        "worker2@40s,notice",
        "a@1s,told=3s",
        "a@-1s",
    ],
)
def test_what_cannot_be_read_is_shown_with_how_to_write_it(text):
    with pytest.raises(UserError, match="write it like worker2@40s,notice=20s"):
        parse_revocation(text)


def test_a_notice_comes_first_and_its_end_later():
    assert moments([Revocation("b", 15.0), Revocation("a", 10.0, 20.0)]) == [
        RevocationMoment(10.0, "notice", "a", 20.0),
        RevocationMoment(15.0, "vanish", "b"),
        RevocationMoment(30.0, "vanish", "a"),
    ]
