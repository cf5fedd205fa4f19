"""The page on formats has every field of a study file and of its journal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stash.study import study_file
from stash.study.study_folder import StudyEvent

pytestmark = pytest.mark.usefixtures("home")

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
TARGETS = (study_file.LocalTarget, study_file.SlurmTarget, study_file.SkyTarget, study_file.EmulatedTarget)
MODELS = (study_file.Study, study_file.StudyWorkload, study_file.StudySettings, study_file.Selection, *TARGETS)


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_field_is_on_the_page() -> None:
    text = section("A study file")
    assert {name for model in MODELS for name in model.model_fields if f"`{name}`" not in text} == set()


def test_the_journals_fields_are_on_the_page() -> None:
    text = section("The folder of a study")
    assert [name for name in StudyEvent.model_fields if f"`{name}`" not in text] == []
