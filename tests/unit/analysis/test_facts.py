"""What makes profiles different jobs, and what may explain their difference."""

from __future__ import annotations

from breakdowns import CALM
from profile_builder import build

from stash.analysis.comparison import DifferingFact, changed, incomparable


def told(facts: tuple[DifferingFact, ...]) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.before, fact.after) for fact in facts}


def test_runs_of_one_job_have_nothing_in_which_they_differ() -> None:
    assert incomparable([build(CALM)], [build(CALM)]) == ()
    assert changed([build(CALM)], [build(CALM)]) == ()


def test_another_batch_or_number_of_ranks_is_another_job() -> None:
    found = told(incomparable([build(CALM)], [build(CALM, ranks=4, batch=16)]))
    assert found == {"batch per device": ("8", "16"), "ranks": ("2", "4")}


def test_the_rung_that_several_nodes_add_is_no_other_job() -> None:
    several = build({**CALM, "cluster": [0.15] * 3}, ranks=2, nodes=2)
    assert "rungs" not in told(incomparable([build(CALM)], [several]))
    assert told(changed([build(CALM)], [several]))["nodes"] == ("1", "2")


def test_versions_and_machines_that_changed_are_told() -> None:
    before = build(CALM, software={"torch": "2.12.0", "numpy": "2.0"}, host={"kernel": "6.1"})
    after = build(CALM, software={"torch": "2.13.0", "numpy": "2.0"}, host={"kernel": "6.8"})
    assert told(changed([before], [after])) == {"kernel": ("6.1", "6.8"), "torch": ("2.12.0", "2.13.0")}


def test_runs_of_a_side_that_do_not_agree_are_told_together() -> None:
    first, second = (build(CALM, software={"torch": version}) for version in ("2.12.0", "2.13.0"))
    assert told(changed([first], [first, second]))["torch"] == ("2.12.0", "2.12.0 or 2.13.0")


def test_what_a_profile_does_not_say_is_unknown() -> None:
    found = told(changed([build(CALM, software={})], [build(CALM, software={"torch": "2.13.0"})]))
    assert found["torch"] == ("unknown", "2.13.0")
