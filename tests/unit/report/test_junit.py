"""JUnit XML that every reader parses, whatever a job is called."""

from xml.etree import ElementTree

import pytest

from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, Decision
from stash.report.junit import render_junit

DECISIONS = [
    Decision(
        limit="--max step=250ms",
        verdict=PASSES,
        sentence="step is 176.0 ± 1.4 ms; asked for is at most 250 ms",
    ),
    Decision(limit="--max prep=5%", verdict=FAILS, sentence="prep is 30.0 ± 1.4 ms"),
    Decision(limit="--min samples/s=90", verdict=CANNOT_TELL, sentence="samples/s is 90.1 ± 1.4"),
]


def test_a_case_for_each_limit():
    root = ElementTree.fromstring(render_junit(DECISIONS, "resnet18").encode())
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    counts = {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    assert counts.items() <= root.attrib.items()
    assert counts.items() <= suite.attrib.items()
    assert [case.get("name") for case in suite] == [decision.limit for decision in DECISIONS]
    assert [case[0].tag for case in suite] == ["system-out", "failure", "skipped"]
    assert suite[1][0].get("message") == "prep is 30.0 ± 1.4 ms"
    assert all(case.get("classname") == "stash check.resnet18" for case in suite)


@pytest.mark.parametrize(
    "name", ["<b>&\"'", "\x1b[2J\x00\n\t", "\ud800\ufffe\uffff", "]]>", "漢字", "x" * 100_000]
)
def test_any_name_makes_a_document(name):
    decisions = [
        Decision(limit=name, verdict=verdict, sentence=name)
        for verdict in (PASSES, FAILS, CANNOT_TELL)
    ]
    text = render_junit(decisions, name)
    assert len(ElementTree.fromstring(text.encode())[0]) == 3
    assert "\x1b" not in text
