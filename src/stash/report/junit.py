"""The decisions of ``stash check`` as JUnit XML, which CI systems show next to their tests: a case for each limit.

A limit that fails is a failure; one that is undecided is skipped, with the reason. JUnit has no standard; these
are the elements and attributes that Jenkins, GitLab and GitHub's report actions read.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from stash.analysis.limits import CANNOT_TELL, FAILS, Decision
from stash.core.printable import printable_line

_SUITE = "stash check"


def render_junit(decisions: Sequence[Decision], workload: str) -> str:
    """The document, of one suite named after the workload."""
    counts = {
        "tests": str(len(decisions)),
        "failures": _count(decisions, FAILS),
        "errors": "0",
        "skipped": _count(decisions, CANNOT_TELL),
    }
    root = ElementTree.Element("testsuites", {"name": _SUITE, **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": f"{_SUITE} of {_fit(workload)}", **counts}
    )
    for decision in decisions:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"{_SUITE}.{_fit(workload)}", "name": _fit(decision.limit), "time": "0"},
        )
        sentence = _fit(decision.sentence)
        if decision.verdict == FAILS:
            ElementTree.SubElement(
                case, "failure", {"message": sentence, "type": FAILS}
            ).text = sentence
        elif decision.verdict == CANNOT_TELL:
            ElementTree.SubElement(case, "skipped", {"message": f"{CANNOT_TELL}: {sentence}"})
        else:
            ElementTree.SubElement(case, "system-out").text = sentence
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _count(decisions: Sequence[Decision], verdict: str) -> str:
    return str(sum(decision.verdict == verdict for decision in decisions))


def _fit(text: str) -> str:
    """Without characters that XML cannot hold."""
    return printable_line(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
