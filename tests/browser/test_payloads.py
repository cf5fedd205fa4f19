"""Every renderer of every kind of document, with texts that act in the place of every text, in a real browser."""

import json
import re
from pathlib import Path

import pytest
from big_studies import grid, many
from chromium import CHROMIUM, PageLeftError
from markdown_it import MarkdownIt
from payloads import HIT, LOOK, PAYLOADS, hostile, hostile_page
from reported import probed_whole

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.cli.report_command import read_page
from stash.core.artefact import encode_artefact, load, save
from stash.report.profile_page import page as page_of_profile
from stash.spot.pages.fleet_models import page_of_curve
from stash.spot.spot_files import load_curve
from stash.study.page import page as page_of_study
from stash.ui import html, markdown, terminal
from stash.ui.charts.chart_files import render_chart

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
TESTS = Path(__file__).parents[1]
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MIN = {"profile": 24, "probe": 15, "plan": 15, "fleet": 10, "log": 6, "curve": 3}
"""Places of a text at least, of each kind."""


def _page(path):
    page = read_page([str(path)])
    for part in (page, *page.parts):
        assert part.charts or part.verdict or part.chapters


def _profile(path):
    found = load(path)
    measured = attribute(found)
    page_of_profile(measured, verdict(measured, found), found)
    _page(path)


KINDS = {
    "profile": ("run.stash.json", None, _profile),
    "probe": (
        "vm.host.json",
        TESTS / "faults" / "fuzz" / "corpus" / "probe" / "two-nodes.json",
        _page,
    ),
    "plan": ("job.plan.json", TESTS / "golden" / "schema-1.plan.json", _page),
    "fleet": (
        "fleet.plan.json",
        TESTS / "faults" / "fuzz" / "corpus" / "spot-plan" / "one.json",
        _page,
    ),
    "log": (
        "job.spotlog.json",
        TESTS / "faults" / "fuzz" / "corpus" / "spot-log" / "one.json",
        _page,
    ),
    "curve": ("job.curve.json", TESTS / "golden" / "schema-1.curve.json", load_curve),
}


def _document(source):
    """The file, or a profile that has everything that a report shows."""
    found = json.loads(encode_artefact(probed_whole()) if source is None else source.read_bytes())
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("STASH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    save(probed_whole(), tmp_path / "other.stash.json")
    (tmp_path / "trace.json").write_bytes(
        (TESTS / "faults/fuzz/corpus/spot-trace/plain.json").read_bytes()
    )
    return tmp_path


def _bare(inside):
    head = f'<meta charset="utf-8"><link rel=icon href="data:,">{HIT}'
    return f"<!DOCTYPE html><html><head>{head}</head><body>{inside}</body></html>"


def _from_markdown(text):
    return _bare(MarkdownIt("js-default", {"html": True, "linkify": False}).render(text))


def _drawn(kind, path):
    """Every page and picture of the document, by the name of its file."""
    if kind == "curve":
        curve = load_curve(path)
        assert ACTS.search(terminal.render(page_of_curve(curve), 80)) is None
        return {}
    page = read_page([str(path)])
    whole = html.render(page)
    found = {"report.html": whole, "bare.html": _POLICY.sub(lambda _: HIT, whole, count=1)}
    found["markdown.html"] = _from_markdown(markdown.render(page))
    for number, chart in enumerate(page.charts):
        found[f"chart{number}.svg"] = str(render_chart(chart, "svg", 170))
    return found


def _looked_at(browser, folder, drawn):
    """What acts on any of them."""
    wrong = []
    for name, text in drawn.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        browser.load_page(path)
        own = (path.as_uri(), "data:,", "data:font/ttf;")
        try:
            found = [
                *browser.run(LOOK),
                *(each[:99] for each in browser.requests if not each.startswith(own)),
            ]
            if name.endswith("report.html"):
                found += map(str, browser.complaints)  # also what the policy refused
            if browser.run("location.href") != path.as_uri():
                found.append("it led away")
        except PageLeftError:
            found = ["it led away"]
        wrong += [f"{name}: {each}" for each in found]
    return wrong


def test_a_few_payloads_in_a_plan_and_a_profile_do_nothing(browser, place):
    for kind, payload in (("plan", PAYLOADS[0]), ("profile", PAYLOADS[4])):
        name, source, shows = KINDS[kind]
        assert hostile(_document(source), payload, place / name, shows) >= MIN[kind]
        drawn = _drawn(kind, place / name)
        assert _looked_at(browser, place, {each: drawn[each] for each in list(drawn)[:4]}) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(len(PAYLOADS)))
@pytest.mark.parametrize("kind", KINDS)
def test_no_payload_does_anything_anywhere(browser, place, kind, number):
    name, source, shows = KINDS[kind]
    assert hostile(_document(source), PAYLOADS[number], place / name, shows) >= MIN[kind]
    assert _looked_at(browser, place, _drawn(kind, place / name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_page_does_anything_whatever_it_is_of(browser, place, payload):
    reading, found, _ = many(
        grid(("resnet18", "vgg11"), (32,)), place, failed=("vgg11 batch 32 on p2.8",)
    )
    files = {each.cell.id: f"cells/{each.cell.id}.stash.json" for each in found}
    slower = place / "slower.stash.json"
    save(probed_whole(), slower)
    pages = {
        "study": page_of_study(reading, found, "grid.yaml", "results", files),
        "runs": read_page(["other.stash.json", str(slower)]),
    }
    drawn = {}
    for name, page in pages.items():
        trapped = hostile_page(page, payload)
        text = html.render(trapped)
        drawn |= {
            f"{name}-report.html": text,
            f"{name}-bare.html": _POLICY.sub(lambda _: HIT, text, count=1),
        }
        drawn[f"{name}-markdown.html"] = _from_markdown(markdown.render(trapped))
        for number, chart in enumerate(trapped.charts):
            drawn[f"{name}{number}.svg"] = str(render_chart(chart, "svg", 170))
    assert _looked_at(browser, place, drawn) == []


def test_a_page_that_is_not_escaped_would_be_found(browser, tmp_path):
    for payload in PAYLOADS[:8]:
        for quote in ('"', "'"):
            inside = f"<svg xmlns='http://www.w3.org/2000/svg'><rect class={quote}{payload.format(m=1)}{quote}/></svg>"
            if _looked_at(
                browser, tmp_path, {"bare.html": _bare(f"<p>{payload.format(m=1)}</p>{inside}")}
            ):
                break
        else:
            raise AssertionError(payload)
