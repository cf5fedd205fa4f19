"""The same number with the same spread looks alike in the profile's report and in the probe's."""

import pytest

from stash.analysis.breakdown import Stall
from stash.analysis.findings.rates import Link
from stash.core.intervals import Interval
from stash.report.probe_page import link_rows
from stash.report.profile_page import table_rows


@pytest.mark.parametrize(
    ("below", "above", "spread"),
    [
        (0.3, 0.3, "± 0.3"),
        (0.15, 0.3, "± 0.3"),  # once both arms here, and the longer one there
        (0.2, 0.5, "± 0.5"),
        (0.1, 0.9, "+0.9 −0.1"),
        (0.02, 0.02, "± <0.1"),
        (None, None, "± unknown"),
    ],
)
def test_the_same_interval_prints_alike_in_both_reports(below, above, spread):
    low, high = (None, None) if below is None else (12.0 - below, 12.0 + above)
    time = Interval(value=12.0, low=low, high=high, repetitions=7)
    # A step of 100 s has one decimal in the profile's report, as a time of 12.0 s has in the probe's.
    rest = Stall(name="contention", time=Interval(value=88.0), share=0.88)
    rows, _ = table_rows((Stall(name="compute", time=time, share=0.12), rest))
    link = Link(
        hostname="n0", node=0, part="copies", group="g", member="", unit="seconds", rate=time
    )
    (_, value, beside, _), *_ = link_rows([link])
    assert (rows[0].time, rows[0].interval) == ("12.0 s", spread)
    assert (value, beside) == ("12.0 s", spread)
