"""Facts that newer profiles hold and older ones do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from profile_builder import build

from stash.base.records import Profile
from stash.derive.predict.recorded import batch_times, operators, optimizer_bytes, peak_bytes

OLD = build({"solo": [0.1] * 3})
NEW = cast(
    Profile,
    SimpleNamespace(
        workload=SimpleNamespace(operators=("an operator",), optimizer_bytes=800),
        memory=(SimpleNamespace(allocated_bytes=None), SimpleNamespace(allocated_bytes=500)),
        workers=(
            SimpleNamespace(feed="warm", batches=(4, 0), seconds=(2.0, 0.0)),
            SimpleNamespace(feed="cold", batches=(4,), seconds=(9.0,)),
        ),
    ),
)


def told(profile: Profile) -> list[Any]:
    return [list(operators(profile)), optimizer_bytes(profile), peak_bytes(profile), batch_times(profile)]


def test_an_older_profile_tells_none_of_them():
    assert told(OLD) == [[], None, None, []]


def test_a_newer_one_tells_its_peak_over_ranks_and_times_with_files_in_memory():
    assert told(NEW) == [["an operator"], 800, 500, [(0.5, 4)]]
