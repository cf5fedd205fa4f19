"""The page on formats has every field of a study's journal; those of its file are in the generated reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stash.study.study_folder import StudyEvent

pytestmark = pytest.mark.usefixtures("home")

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()


def section(title: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_journals_fields_are_on_the_page() -> None:
    text = section("The folder of a study")
    assert [name for name in StudyEvent.model_fields if f"`{name}`" not in text] == []
