"""Every word of a report is explained, and only those it uses."""

import pytest
from golden_profiles import PROFILES

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.ladder import STALLS
from stash.report.profile_contract import ROWS
from stash.report.profile_page import page


@pytest.mark.parametrize("name", PROFILES)
def test_every_row_and_label_of_a_report_is_explained_once(name):
    profile = PROFILES[name]()
    breakdown = attribute(profile)
    shown = page(breakdown, verdict(breakdown, profile), profile, explain=True)
    chapters = {chapter.name: chapter for chapter in shown.chapters}
    details = chapters["details"].facts
    meanings = chapters["words"].facts
    words = [word for word, _ in meanings]
    assert len(set(words)) == len(words)
    assert {row.name for row in shown.rows} | {
        label for label, _ in details if label != "note"
    } <= set(words)
    assert "measured" in words
    assert ("waited" in words) == (name == "one-node")  # only what the report uses
    assert all(meaning for _, meaning in meanings)


def test_every_stall_has_its_meaning():
    assert tuple(ROWS) == STALLS
