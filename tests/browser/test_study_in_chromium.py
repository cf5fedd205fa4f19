"""A study's report in a real browser: read on any screen, sorted and filtered by keys."""

import pytest
from big_studies import grid, many
from chromium import CHROMIUM

from stash.study.page import page
from stash.ui.html import render

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
TABLE = "document.querySelector('table[data-filters]')"
SHOWN = f"[...{TABLE}.tBodies[0].rows].filter((row) => !row.hidden)"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three models at two batches on eight places; two cells failed."""
    folder = tmp_path_factory.mktemp("study")
    reading, found, _ = many(
        grid(("resnet18", "resnet50", "vgg11"), (32, 64)),
        folder,
        failed=("vgg11 batch 64 on p2.8", "vgg11 batch 64 on 2 × p2.8"),
    )
    files = {each.cell.id: f"grid.study/cells/{each.cell.id}/profile.stash.json" for each in found}
    path = folder / "grid.html"
    path.write_text(
        render(page(reading, found, "grid.yaml", "grid.study/results", files)), encoding="utf-8"
    )
    return path


def column(browser, number):
    """The cells of a column, of the rows that are shown."""
    texts = browser.run(f"{SHOWN}.map((row) => row.cells[{number}].textContent.trim())")
    return texts


@pytest.mark.parametrize("width", [400, 1000])
def test_a_study_loads_nothing_complains_of_nothing_and_never_scrolls_sideways(
    browser, report, width
):
    browser.load_page(report, width)
    assert browser.requests == [report.as_uri()]
    assert browser.complaints == []
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    charts = "[...document.querySelectorAll('svg.chart')].filter((svg) => svg.getBoundingClientRect().width > 0)"
    assert browser.run(f"{charts}.length") == browser.run(
        "document.querySelectorAll('figure').length"
    )
    assert (
        browser.run(f"Math.max(...{charts}.map((svg) => svg.getBoundingClientRect().right))")
        <= width
    )


def test_the_table_is_filtered_with_the_keyboard_alone(browser, report):
    browser.load_page(report)
    assert len(column(browser, 0)) == 48
    browser.run("document.querySelector('.filters select').focus()")
    assert browser.run("document.activeElement.tagName") == "SELECT"
    browser.press("ArrowDown")
    assert set(column(browser, 0)) == {"resnet18"}
    assert browser.run("document.querySelector('.filters output').textContent") == "16 of 48"
    for _ in range(2):  # the batch; the place
        browser.press("Tab")
    browser.press("ArrowDown")
    assert len(set(column(browser, 2))) == 1
    assert browser.run("document.activeElement.parentElement.textContent").startswith("place")
    browser.run("document.querySelector('.filters button').click()")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert len(column(browser, 0)) == 48


def test_what_is_unknown_is_sorted_last_in_both_directions(browser, report):
    browser.load_page(report)
    heads = [
        text.strip()
        for text in browser.run(f"[...{TABLE}.tHead.rows[0].cells].map((head) => head.textContent)")
    ]
    speed = heads.index("samples/s")
    for descending in (False, True):
        browser.run(f"{TABLE}.tHead.rows[0].cells[{speed}].querySelector('button').click()")
        texts = column(browser, speed)
        assert texts[-2:] == ["–", "–"]
        known = [float(text.replace(",", "")) for text in texts[:-2]]
        assert known == sorted(known, reverse=descending)
