"""A comparison in a terminal and as a document: what it says, and that it fits."""

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.comparison import comparable_sides, compare, find_changed_facts, incomparable
from stash.report.comparison_page import document, page
from stash.ui.terminal import render

NEWER = {"python": "3.13.1", "torch": "2.13.0"}
SLOW = {**CALM, "cold": [0.25] * 3}
NAMES = ("train.py", ("monday.stash.json",), ("today.stash.json",))


def shown(after=SLOW, **facts):
    sides = [build(CALM)], [build(after, **facts)]
    first, second = ([attribute(profile) for profile in side] for side in sides)
    return page(compare(first, second), NAMES, find_changed_facts(*sides), incomparable(*sides))


def test_the_verdict_comes_first_with_the_stall_that_did_it():
    text = render(shown(), 100)
    assert text.split("\n\n")[1].startswith("  Slower: the step changed by +74.0 +/- ")
    assert "; fetch +74.0 +/- " in text
    assert "no difference shown" in text


def test_a_single_round_is_said_to_tell_nothing():
    assert (
        "a single round has no interval"
        in shown({name: values[:1] for name, values in CALM.items()}).verdict[0]
    )


def test_what_changed_stands_below_as_before_and_after():
    text = render(shown(software=NEWER), 80)
    assert "  What else differs\n  python  3.12.3 -> 3.13.1\n" in text


def test_different_jobs_are_said_to_be_different():
    assert "These are different jobs" in render(shown(workload={"name": "other.py"}), 80)


def test_one_line_says_what_differs_and_what_times_are_of():
    first = {"before": build(CALM)}
    second = {"after": build(SLOW, batch=16)}
    sides = list(first.values()), list(second.values())
    text = render(
        page(compare(*comparable_sides(first, second)), NAMES, find_changed_facts(*sides)), 100
    )
    assert "Compared per sample; the sides differ in batch per device 8 -> 16." in text
    assert "Faster: the time per sample changed by -" in text


def test_the_document_holds_ends_verdicts_and_facts():
    sides = [build(CALM)], [build(SLOW, software=NEWER)]
    first, second = ([attribute(profile) for profile in side] for side in sides)
    found = document(compare(first, second), NAMES, find_changed_facts(*sides))
    assert found["verdict"] == "slower"
    fetch = next(line for line in found["lines"] if line["name"] == "fetch")
    assert fetch["change"]["value"] == pytest.approx(0.074)
    assert fetch["change"]["low"] < 0.074 < fetch["change"]["high"]
    assert found["changed"] == [{"name": "python", "before": "3.12.3", "after": "3.13.1"}]
