"""One rounding for one number, in the table and in every sentence."""

from __future__ import annotations

from stash.analysis.breakdown import SlowRank, Stall, figures, slower
from stash.core.intervals import Interval
from stash.core.units import pace


def _stalls(**seconds: float) -> tuple[Stall, ...]:
    step = sum(seconds.values())
    return tuple(Stall(name=name, time=Interval(value=s), share=s / step) for name, s in seconds.items())


# Rounded one by one these are 145.7, 25.5, 42.2 and 14.7, which are 228.1 of a step that is rounded to 228.2.
WRITTEN = figures(_stalls(compute=0.14573, contention=0.02553, interconnect=0.042245, prep=0.01469))


def test_a_stall_is_written_alike_alone_added_up_and_as_a_gain():
    assert WRITTEN.step == "228.2 ms"
    assert WRITTEN.time("interconnect") == "42.3 ms"
    assert WRITTEN.time("interconnect", "network") == "42.3 ms"
    assert WRITTEN.part(0.042245, " a step") == f"42.3 ms a step ({WRITTEN.share('interconnect')})"


def test_any_other_part_has_three_digits():
    assert WRITTEN.part(0.0317) == "31.7 ms (14%)"


def test_a_quantity_has_its_spread_if_that_is_known():
    time = Interval(value=0.1, low=0.09, high=0.11, repetitions=5)
    assert figures((Stall(name="compute", time=time, share=1.0),)).quantity("compute") == "100.0 ± 10.0 ms"
    assert WRITTEN.quantity("prep") == "14.7 ms"


def test_paces_and_slow_ranks_are_written_for_everybody():
    assert (pace(70.31), pace(1783.4)) == ("70.3", "1,783")
    assert slower(SlowRank(rank=0, seconds=0.189, others_seconds=0.169)) == (
        "20.0 ms slower than the others (189 ms against 169 ms)"
    )
