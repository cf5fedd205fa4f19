"""Two sides of profiles: times, facts and the paper's network stall."""

from __future__ import annotations

import math

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.comparison import (
    FASTER,
    NOT_SHOWN,
    UNKNOWN,
    DifferingFact,
    RunComparison,
    comparable_sides,
    compare,
    find_changed_facts,
    incomparable,
    network_stall,
)
from stash.core.errors import UserError
from stash.core.records.profile import Loader, Profile


def sides(before: Profile, after: Profile) -> RunComparison:
    return compare([attribute(before)], [attribute(after)])


def scaled(factor: float, **own: float) -> dict[str, list[float]]:
    return {
        name: [own.get(name, factor) * value for value in values] for name, values in CALM.items()
    }


def words(comparison: RunComparison) -> dict[str, str]:
    return {line.name: line.verdict for line in comparison.lines}


def without_cold(why: str) -> Profile:
    """CALM on files that could not be made cold, or that nothing reads."""
    loaders = (Loader(kind="map", workers=2),)
    times = {name: values for name, values in CALM.items() if name != "cold"}
    return build(times, skipped={"cold": why}, workload={"loaders": loaders})


def compared(before: Profile, after: Profile) -> RunComparison:
    return compare(*comparable_sides({"before": before}, {"after": after}))


def test_files_that_could_not_be_made_cold_do_not_make_a_step_faster():
    # GIVEN a job twice, whose files stayed in the page cache once: its step has no rung cold
    found = compared(build(CALM), without_cold("97% of the pages stayed in the page cache"))
    # THEN steps are compared up to the rung that both have, which is as long on both sides
    assert words(found)["step"] == NOT_SHOWN
    assert found.line("fetch") is None
    assert found.step.before.value == pytest.approx(attribute(without_cold("x")).step_seconds)


def test_twice_the_batch_is_compared_by_the_time_of_a_sample():
    # GIVEN a batch twice as large, whose step takes 1.5 times as long: 25 % less for each sample
    found = compared(build(CALM), build(scaled(1.5), batch=16))
    assert found.per_sample
    assert words(found)["step"] == FASTER
    assert found.step.before.value == pytest.approx(0.176 / 16)
    assert found.step.change.value == pytest.approx(0.75 * 0.176 / 16 - 0.176 / 16)
    assert found.line("samples/s").change.value == pytest.approx(16 / 0.176 * (1 / 0.75 - 1))
    # THEN the interval is that of independent runs in that unit, on the slower side of neither
    arms = [run.step for run in (attribute(build(CALM)), attribute(build(scaled(1.5), batch=16)))]
    expected = math.hypot(
        *(arm.half_width / size for arm, size in zip(arms, (16, 32), strict=True))
    )
    assert found.step.change.half_width == pytest.approx(expected, rel=0.3)


def test_steps_of_unlike_size_whose_samples_nobody_counted_are_not_compared():
    with pytest.raises(UserError, match="does not say how many samples a step has"):
        compared(build(CALM, batch=None), build(CALM, batch=None, ranks=4))
    sides_anyway = comparable_sides(
        {"a": build(CALM, batch=None)}, {"b": build(CALM, batch=None, ranks=4)}, True
    )
    assert not sides_anyway.per_sample
    assert not compared(build(CALM, batch=None), build(CALM, batch=None)).per_sample


def test_a_stall_that_contains_another_on_one_side_only_is_not_compared():
    # GIVEN a ladder without the rung crowd: its interconnect contains contention
    fewer = build({name: CALM[name] for name in CALM if name != "crowd"})
    found = compared(build(CALM), fewer)
    assert found.unlike == ("interconnect",)
    assert found.line("interconnect") is None
    assert found.only_before == ("contention",)


def test_what_steps_waited_and_how_rungs_differ_err_in_their_own_ways():
    rungs = attribute(build(CALM))
    waits = rungs.model_copy(update={"by_waits": True})
    same, other = (compare([rungs], [each]).line("prep").change for each in (rungs, waits))
    assert other.half_width == pytest.approx(
        math.hypot(same.half_width, math.sqrt(2) * rungs.stall("prep").parts.common)
    )


def test_a_single_round_on_a_side_leaves_everything_unknown():
    one = {name: values[:1] for name, values in CALM.items()}
    assert set(words(sides(build(CALM), build(one))).values()) == {UNKNOWN}


def test_without_a_batch_size_there_is_no_rate_to_compare():
    assert sides(build(CALM), build(CALM, batch=None)).line("samples/s") is None


def test_the_papers_network_stall_is_that_of_many_nodes_against_one():
    # GIVEN four ranks in 140 ms on one node, and in 210 ms on two
    one = build(CALM, ranks=4)
    two = build(
        {**CALM, "cluster": [0.210] * 3, "warm": [0.24] * 3, "cold": [0.25] * 3}, ranks=4, nodes=2
    )
    for found in (network_stall([one], [two]), network_stall([two], [one])):
        assert round(found.value, 6) == 0.5
        assert found.low < 0.5 < found.high


def test_it_needs_as_many_ranks_and_a_side_on_one_node():
    one = build(CALM, ranks=2)
    two = build({**CALM, "cluster": [0.210] * 3}, ranks=4, nodes=2)
    assert network_stall([one], [two]) is None
    assert network_stall([one], [one]) is None
    assert network_stall([two], [two]) is None


def by_name(facts: tuple[DifferingFact, ...]) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.before, fact.after) for fact in facts}


def test_another_batch_or_number_of_ranks_is_the_same_job_and_another_script_is_not():
    sides_of_batches = [build(CALM)], [build(CALM, ranks=4, batch=16)]
    assert incomparable(*sides_of_batches) == ()
    assert by_name(find_changed_facts(*sides_of_batches)) == {
        "batch per device": ("8", "16"),
        "ranks": ("2", "4"),
    }
    other = build(CALM, workload={"name": "other.py"})
    assert list(by_name(incomparable([build(CALM)], [other]))) == ["workload"]


def test_the_rung_that_several_nodes_add_is_no_other_job():
    several = build({**CALM, "cluster": [0.15] * 3}, ranks=2, nodes=2)
    assert "rungs" not in by_name(find_changed_facts([build(CALM)], [several]))
    assert by_name(find_changed_facts([build(CALM)], [several]))["nodes"] == ("1", "2")


def test_versions_and_machines_that_changed_are_told():
    before = build(CALM, software={"torch": "2.12.0", "numpy": "2.0"}, host={"kernel": "6.1"})
    after = build(CALM, software={"torch": "2.13.0", "numpy": "2.0"}, host={"kernel": "6.8"})
    assert by_name(find_changed_facts([before], [after])) == {
        "kernel": ("6.1", "6.8"),
        "torch": ("2.12.0", "2.13.0"),
    }


def test_runs_of_a_side_that_do_not_agree_are_told_together():
    first, second = (build(CALM, software={"torch": version}) for version in ("2.12.0", "2.13.0"))
    assert by_name(find_changed_facts([first], [first, second]))["torch"] == (
        "2.12.0",
        "2.12.0 or 2.13.0",
    )
