"""What a profile cannot answer for want of a fact: profiles of before these facts were recorded, and of today."""

from pathlib import Path

import pytest
from profile_builder import build

from stash.core.artefact import load
from stash.core.measured import Memory, WorkerTimes
from stash.core.records.profile import Gradient, Operator
from stash.whatif.answers import open_questions

GOLDEN = Path(__file__).parents[2] / "golden"
TIMES = {"solo": [0.1], "crowd": [0.2]}
FACTS = {
    "operators": (
        Operator(
            operator="aten.mm", shapes="2x3 3x4", dtype="float32", calls=1, flops=48, bytes=100
        ),
    ),
    "gradients": (Gradient(name="w", bytes=4, ready_seconds=0.0, ready_steps=(0.0, 0.0)),),
}
WORKERS = (WorkerTimes(feed="warm", rank=0, round=0, batches=(4,), seconds=(0.1,)),)


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


def test_a_profile_with_every_fact_answers_everything():
    assert facts(build(TIMES, workload=FACTS, workers=WORKERS)) == []
    held = (Memory(rank=0, allocated_bytes=10**9),)
    assert facts(build(TIMES, device="cuda", workload=FACTS, workers=WORKERS, memory=held)) == []


def test_a_fact_that_could_not_be_recorded_has_its_own_reason():
    profile = build(
        TIMES, workload={"unrecorded": {"operators": "not recorded: the job is compiled"}}
    )
    reasons = {each.fact: each.why for each in open_questions(profile)}
    assert reasons["operators"] == "not recorded: the job is compiled"
    assert reasons["ready_steps"] == "none of its blocks showed this"


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("train.py", "--name", "a b"), "stash profile train.py --name 'a b'"),
        (("-m", "mine.train"), "stash profile -m mine.train"),
        (("accelerate", "launch", "train.py"), "stash profile -- accelerate launch train.py"),
    ],
)
def test_the_command_is_the_one_that_was_typed(words, typed):
    assert open_questions(build(TIMES, workload={"command": words}))[0].command == typed
