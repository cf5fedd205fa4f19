"""Things by what they have in common."""

from stash.core.grouping import group_by


def test_groups_and_their_members_keep_their_order():
    found = group_by([3, 1, 4, 1, 5], lambda number: number % 2 == 0)
    assert list(found.items()) == [(False, [3, 1, 1, 5]), (True, [4])]
