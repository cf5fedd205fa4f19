"""The life of a plan's file: whole or not at all, and a sentence for everything that can be wrong with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import plan_builder
import pytest

from stash.core.errors import ArtefactError
from stash.plan.records import PLAN_SCHEMA, load_plan, save_plan

pytestmark = pytest.mark.usefixtures("home")

PLAN = plan_builder.plan()
GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("plan", [PLAN, plan_builder.nothing_feasible()])
def test_what_is_saved_is_loaded(tmp_path, plan):
    save_plan(plan, tmp_path / "a.plan.json")
    assert load_plan(tmp_path / "a.plan.json") == plan
    assert os.listdir(tmp_path) == ["a.plan.json"]


def test_the_file_is_its_owners_alone_and_has_a_line_for_each_choice(tmp_path):
    save_plan(PLAN, tmp_path / "a.plan.json")
    assert (tmp_path / "a.plan.json").stat().st_mode & 0o777 == 0o600
    lines = (tmp_path / "a.plan.json").read_text().splitlines()
    assert lines[1] == f' "plan_schema": {PLAN_SCHEMA},'
    assert sum(line.startswith('  {"rented"') for line in lines) == len(PLAN.choices)


def test_the_golden_plan_of_the_first_schema_is_read():
    """Written when the schema was made; a Stash that changes it adds a migration, and another golden file."""
    plan = load_plan(GOLDEN / "schema-1.plan.json")
    assert plan.chosen_choice.name == "1 × g5.48xlarge"
    assert plan.goal.deadline_seconds == 24 * 3600
    assert [choice.standing for choice in plan.choices] == [
        "chosen",
        "tied",
        "front",
        "lost",
        "infeasible",
        "infeasible",
    ]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("samples_per_step", 0, "choices.0.samples_per_step is 0, not above 0"),
        ("steps", -1, "choices.0.steps is -1, not above 0"),
        ("step", {"value": 0, "low": 0, "high": 0}, "choices.0.step is 0, not above 0"),
        (
            "seconds",
            {"value": 5, "low": 6, "high": 7},
            r"choices.0.seconds \(5\) is not within its interval, 6.0 to 7.0",
        ),
        ("on_time", float("nan"), "choices.0.on_time is nan, which is no number"),
        (
            "dollars",
            {"value": float("inf")},
            r"choices.0.dollars \(inf\) is not within its interval",
        ),
    ],
)
def test_numbers_that_no_forecast_has_are_refused_by_the_name_of_their_field(
    tmp_path, field, value, complaint
):
    document = json.loads(PLAN.model_dump_json())
    document["choices"][0][field] = value
    (tmp_path / "a.plan.json").write_text(json.dumps(document))
    with pytest.raises(ArtefactError, match=f"is not a plan: {complaint}"):
        load_plan(tmp_path / "a.plan.json")
