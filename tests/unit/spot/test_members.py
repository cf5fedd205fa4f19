"""The states of a member, and the changes that events make."""

from __future__ import annotations

import pytest

from stash.spot.members import FleetMember, Members, MemberState


@pytest.fixture
def members() -> Members[FleetMember]:
    found: Members[FleetMember] = Members()
    found.add(FleetMember("worker1", "a"))
    found.add(FleetMember("worker2", "b"))
    return found


def test_who_has_notice_keeps_it_and_who_ended_stays_so(members: Members[FleetMember]) -> None:
    for event in (members.notice, members.join):
        event("worker1")
    assert (members["worker1"].state, members["worker1"].joined) == (MemberState.LEAVING, True)
    members.finish("worker2")
    for event in (members.join, members.notice, members.finish):
        event("worker2")
        event("nobody")
    assert (members["worker2"].state, members["worker2"].joined) == (MemberState.DONE, False)
    members.lose("worker2")
    assert (members["worker2"].state, members.there) == (MemberState.GONE, ("worker1",))
    members.add(FleetMember("worker2", "b"))
    members.join("worker2")
    assert members.there == ("worker1", "worker2")


def test_those_that_train_are_called_by_name_or_by_type(members: Members[FleetMember]) -> None:
    assert members.called("worker2") == []
    for name in ("worker1", "worker2"):
        members.join(name)
    members.add(FleetMember("worker3", "a"))
    members.join("worker3")
    members.notice("worker3")
    assert members.called("a") == ["worker1", "worker3"]
    assert members.called("worker2") == ["worker2"]
