"""What a profile cannot answer for want of a fact: profiles of before these facts were recorded, and of today."""

from pathlib import Path

import pytest
from profile_builder import build

from stash.core.artefact import load
from stash.whatif.answers import open_questions

GOLDEN = Path(__file__).parents[2] / "golden"
TIMES = {"solo": [0.1], "crowd": [0.2]}


def facts(profile):
    return [each.fact for each in open_questions(profile)]


@pytest.mark.parametrize("name", ["one-node", "schema-2"])
def test_a_profile_of_an_older_schema_says_what_it_cannot_tell_and_what_command_adds_it(
    name,
):
    found = open_questions(load(GOLDEN / f"{name}.stash.json"))
    assert [each.fact for each in found] == ["operators", "ready_steps", "workers"]
    assert (
        found[0].question
        == "what a step would take at least on a faster device, by launching its operators"
    )
    assert found[0].why == "it was made by a Stash that did not record this"
    assert found[0].command == "stash profile train.py"


def test_a_profile_of_todays_schema_answers_everything():
    assert facts(load(GOLDEN / "schema-3.stash.json")) == []


def test_what_a_job_has_no_fact_of_is_not_asked_for():
    assert "memory" not in facts(build(TIMES))
    assert "ready_steps" not in facts(build({"solo": [0.1]}, ranks=1))
    assert "memory" in facts(build(TIMES, device="cuda"))


def test_a_fact_that_could_not_be_recorded_has_its_own_reason():
    profile = build(
        TIMES, workload={"unrecorded": {"operators": "not recorded: the job is compiled"}}
    )
    reasons = {each.fact: each.why for each in open_questions(profile)}
    assert reasons["operators"] == "not recorded: the job is compiled"
    assert reasons["ready_steps"] == "none of its blocks showed this"
