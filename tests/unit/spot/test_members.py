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


def test_a_member_trains_has_notice_and_goes_once(members: Members[FleetMember]) -> None:
    assert members.join("worker1", 1.0) is members["worker1"]
    assert members.notice("worker1", 5.0) is members["worker1"]
    assert members["worker1"].state is MemberState.LEAVING
    assert members.notice("worker1", 6.0) is None
    assert members.join("worker1", 6.0) is None
    assert members.there == ("worker1", "worker2")
    assert members.lose("worker1", 7.0) is members["worker1"]
    assert members.lose("worker1", 8.0) is None
    assert (members["worker1"].since, members.there) == (7.0, ("worker2",))


def test_events_of_strangers_change_nothing(members: Members[FleetMember]) -> None:
    assert members.join("worker9", 1.0) is None
    assert members.notice("worker9", 1.0) is None
    assert members.finish("worker9", 1.0) is None
    assert set(members) == {"worker1", "worker2"}


def test_who_ended_stays_so_until_another_machine_has_its_name(members: Members[FleetMember]) -> None:
    members.finish("worker2", 1.0)
    assert members.join("worker2", 2.0) is None
    with pytest.raises(ValueError, match="worker2 is done, and cannot be training next"):
        members["worker2"].becomes(MemberState.TRAINING, 2.0)
    members.add(FleetMember("worker2", "b"))
    assert members.join("worker2", 3.0) is not None


def test_those_that_train_are_called_by_name_or_by_type(members: Members[FleetMember]) -> None:
    assert members.called("worker2") == []
    for name in ("worker1", "worker2"):
        members.join(name, 1.0)
    members.add(FleetMember("worker3", "a"))
    members.join("worker3", 1.0)
    members.notice("worker3", 1.0)
    assert members.called("a") == ["worker1", "worker3"]
    assert members.called("worker2") == ["worker2"]
