"""The report as a page: what it holds, in which order, and how HTML, Markdown and a notebook's cell say it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from golden_numbers import copy_close_numbers
from golden_profiles import GOLDEN, PROFILES
from profile_builder import build
from reported import HOSTILE, hostile, page_of, probed_whole, whole

from stash.cli.report_command import read_page
from stash.core.ladder import NOT_ASKED
from stash.core.measured import Skipped
from stash.report.profile_contract import command_line
from stash.ui.charts.chart import Blank
from stash.ui.html import render
from stash.ui.markdown import render as render_markdown

VOID = {"meta", "link", "br", "rect", "circle", "path", "input", "img"}


class Outline(HTMLParser):
    """Elements that are opened and not closed, identifiers, and everything that a browser would fetch."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.names: list[str] = []
        self.fetched: list[str] = []
        self.count: dict[str, int] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.count[tag] = self.count.get(tag, 0) + 1
        if len(known) < len(attributes):
            self.wrong.append(f"<{tag}> has an attribute twice")
        self.names += [str(known["id"])] if "id" in known else []
        self.fetched += [
            str(known[name]) for name in ("src", "href", "action", "data") if name in known
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "probed": page_of(probed_whole(), folder=folder),
        "golden": page_of(PROFILES["one-node"](), folder=folder),
        "hostile": page_of(hostile(), folder=folder),
        "runs": page_of(
            whole(), probed_whole(), build({"solo": [0.1] * 3, "crowd": [0.2] * 3}), folder=folder
        ),
    }


def test_a_report_says_the_verdict_first_and_answers_in_the_order_of_questions(
    pages,
):
    page = pages["probed"]
    assert page.verdict[0].startswith("The network stall takes ")
    assert len(page.next_steps) == 1
    assert [chapter.name for chapter in page.chapters] == [
        "step",
        "ranks",
        "exchange",
        "data",
        "hosts",
        "unknown",
        "details",
        "how",
        "further",
        "figures",
        "parts",
        "words",
    ]
    assert page.rows[-1].name == "step"


def test_everything_unknown_stands_in_one_place_with_its_reason(pages):
    page = pages["golden"]
    unknown = dict(next(chapter for chapter in page.chapters if chapter.name == "unknown").facts)
    blanks = [
        chart for chapter in page.chapters for chart in chapter.charts if isinstance(chart, Blank)
    ]
    assert not {"network stall", "transfer stall"} & set(unknown)  # such a job has none
    assert all(unknown[blank.title.lower()] == blank.why for blank in blanks)
    assert {"residency", "links"} <= {blank.name for blank in blanks}


def test_the_command_keeps_rungs_that_were_asked_for_and_another_launcher():
    profile = whole()
    work = profile.workload.model_copy(update={"command": ("torchrun", "train.py")})
    skipped = (Skipped(rung="cold", why=NOT_ASKED),)
    settings = profile.settings.model_copy(update={"rungs": ("solo", "cluster")})
    changed = profile.model_copy(
        update={"workload": work, "skipped": skipped, "settings": settings}
    )
    assert (
        command_line(changed)
        == "stash profile --noise 2 --budget 120 --rungs solo,cluster -- torchrun train.py"
    )


def test_several_runs_are_held_to_the_first_and_other_jobs_are_not_compared(
    pages,
):
    page = pages["runs"]
    assert [part.source for part in page.parts] == [
        "run1.stash.json",
        "run2.stash.json",
        "run3.stash.json",
    ]
    assert page.verdict[0].startswith("run2 against run1: no difference of the step is shown")
    assert "another job than run1: workload (resnet50 and train.py)" in page.verdict[1]
    last = page.chapters[-1]
    assert isinstance(last.charts[0], Blank)


@pytest.mark.parametrize("name", ["probed", "golden", "hostile", "runs"])
def test_the_document_is_well_formed_and_names_nothing_outside_of_itself(pages, name):
    outline = Outline(render(pages[name]))
    assert outline.wrong == []
    assert outline.open == []
    assert len(outline.names) == len(set(outline.names))
    assert [address for address in outline.fetched if not address.startswith(("#", "data:"))] == []
    assert {address[1:] for address in outline.fetched if address.startswith("#")} <= set(
        outline.names
    )


def test_every_chart_of_the_document_has_its_table(pages):
    text = render(pages["runs"])
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert len(figures) == sum(len(page.charts) for page in (pages["runs"], *pages["runs"].parts))
    assert all(figure.count('<table class="sorts">') == 1 for figure in figures)
    assert all(figure.count('role="img" aria-label="') == 2 for figure in figures)


def test_nothing_of_a_hostile_artefact_acts(pages):
    text = render(pages["hostile"])
    outline = Outline(text)
    assert "\x1b" not in text
    assert outline.count["script"] == 1
    assert "&lt;script&gt;alert(&#39;x&#39;)" in text
    assert "characters left out" in text  # of a CPU's name of a million letters
    assert len(text) < 2_000_000


def test_the_policy_of_the_page_lets_only_its_own_script_and_style_run(
    pages,
):
    text = render(pages["probed"])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"<[^>]+ (?:style|on\w+)=", text)


@pytest.mark.parametrize("name", PROFILES)
def test_the_markdown_of_a_golden_profile_is_what_it_was(name):
    expected = (GOLDEN / f"{name}.expected.md").read_text(encoding="utf-8")
    text = render_markdown(read_page([str(GOLDEN / f"{name}.stash.json")]))
    assert copy_close_numbers(text, expected) == expected


def test_hostile_names_mention_no_user_and_open_no_tag(pages):
    text = render_markdown(pages["hostile"])
    outside = re.sub(
        r"`[^`\n]*`", "", re.sub(r"^```bash$.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    assert HOSTILE not in text
    assert not re.search(r"(?<!\\)<script", outside)
    assert not re.search(r"[@#]\w", outside)
    assert "\x1b" not in text
