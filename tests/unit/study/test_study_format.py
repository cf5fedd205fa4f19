"""The page on formats has every field of a study file and of its journal, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from stash.study import fields
from stash.study.study_folder import StudyEvent

pytestmark = pytest.mark.usefixtures("home")

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
TARGETS = (fields.LocalTarget, fields.SlurmTarget, fields.HostsTarget, fields.SkyTarget, fields.EmulatedTarget)


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def documented(title: str) -> set[str]:
    """The names in the first column of a section's table."""
    firsts = re.findall(r"^\| (`.*?) \| ", section(title), re.MULTILINE)
    return {name for first in firsts for name in re.findall(r"`(\w+)`", first)}


@pytest.mark.parametrize(
    ("title", "models"),
    [
        ("A study file", (fields.Study,)),
        ("Study: a workload", (fields.StudyWorkload,)),
        ("Study: a target", TARGETS),
        ("Study: settings", (fields.StudySettings,)),
        ("Study: a selection", (fields.Selection,)),
    ],
)
def test_every_field_is_on_the_page(title: str, models: tuple[type[BaseModel], ...]) -> None:
    assert documented(title) == {name for model in models for name in model.model_fields}


def test_the_journals_fields_are_on_the_page() -> None:
    text = section("The folder of a study")
    assert [name for name in StudyEvent.model_fields if f"`{name}`" not in text] == []
