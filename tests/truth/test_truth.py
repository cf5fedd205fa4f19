"""The quick part of the truth suite: profiles of jobs whose stalls are known must come close to them.

The tolerance is wide enough for a noisy machine and narrow enough to catch a rung that is not what it should
be; ``bench/truth/broken.py`` proves the latter.
"""

import shutil
from dataclasses import replace

import pytest
from characterized import needs_testbed

from bench.machine import ROOT
from bench.truth.broken import BREAKS
from bench.truth.cases import CASES, QUICK, exposed_seconds, four, quick
from bench.truth.suite import Result, faults, run


def _marks(name):
    """The case of all five reads a disk that tests beside it write to, and was wrong beside them in two gates."""
    if name.startswith("network"):
        return [pytest.mark.slow]
    return [pytest.mark.alone] if name.startswith("all five") else []


@needs_testbed
@pytest.mark.parametrize(
    "case",
    [
        # of the builds that ``broken.py`` makes, another case finds each that the network's finds
        pytest.param(case, id=case.name, marks=_marks(case.name))
        for case in quick()
    ],
)
def test_a_profile_finds_what_was_injected(case):
    results = run(case, budget=6)
    if faults(results):  # other work on the machine: once more, with more time
        results = run(case, budget=24)
    assert len(results) >= 2
    assert not faults(results, busy=True), results


def test_an_error_beyond_the_tolerance_and_a_wrong_cause_are_faults():
    def result(estimate, right):
        return Result(
            "case", "network", 0.05, None, estimate, None, None, 0.1, 1.0, "network", right
        )

    assert not faults([result(0.055, right=True)])
    assert faults([result(0.065, right=True)]) == ["network +15.0 points"]
    assert faults([result(0.05, right=False)]) == ["named network"]
    # on a busy machine a verdict may be left open, and an error be within its interval
    unsure = replace(result(0.065, right=False), low=0.03, high=0.09, answered=False)
    assert faults([unsure], busy=True) == []
    assert faults([replace(unsure, low=0.06)], busy=True) == ["network +15.0 points"]
    assert faults([replace(unsure, answered=True)], busy=True) == [
        "network +15.0 points",
        "named network",
    ]
    # and two causes be named in the other order where their intervals overlap
    swapped = replace(
        result(0.05, right=False), low=0.04, high=0.06, named="fetch, network, rank 1"
    )
    fetch = replace(swapped, stall="fetch", truth=0.045, estimate=0.052, low=0.05, high=0.055)
    assert faults([swapped, fetch], busy=True) == []
    assert faults([swapped, fetch]) == ["named fetch, network, rank 1"]
    assert faults([replace(swapped, high=0.049), fetch], busy=True) == [
        "named fetch, network, rank 1"
    ]
    other = [replace(one, named="prep, network") for one in (swapped, fetch)]
    assert faults(other, busy=True) == ["named prep, network"]


def test_the_truth_of_overlapped_buckets_is_worked_out_as_by_hand():
    # Four layers of 10 ms backward each, 20 ms for a bucket: the last is ready at 40 and done at 10 + 4 x 20 = 90.
    assert exposed_seconds(four(4000), lambda _: 0.02) == pytest.approx(0.05)
    # 5 ms for a bucket: only the last one shows.
    assert exposed_seconds(four(4000), lambda _: 0.005) == pytest.approx(0.005)


def test_every_case_has_its_own_name_and_the_quick_ones_exist():
    assert len({case.name for case in CASES}) == len(CASES) >= 30
    assert {case.name for case in quick()} == set(QUICK)


def test_every_broken_build_is_an_edit_of_the_sources_as_they_are(tmp_path):
    for number, broken in enumerate(BREAKS):
        shutil.copytree(
            ROOT / "src", tmp_path / str(number), ignore=shutil.ignore_patterns("__pycache__")
        )
        broken.apply(tmp_path / str(number))
