"""The report in a real browser: nothing leaves the page, nothing complains, and everybody can use it."""

import pytest
from chromium import CHROMIUM
from reported import hostile, page_of, probed_whole, whole

from stash.ui.html import render

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
SLOWER = 1.3


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    slow = whole()
    blocks = tuple(
        type(b)(**{**{f: getattr(b, f) for f in b.__slots__}, "seconds": SLOWER * b.seconds})
        for b in slow.blocks
    )
    made = {
        "one": page_of(probed_whole(), folder=folder),
        "two": page_of(whole(), slow.model_copy(update={"blocks": blocks}), folder=folder),
        "hostile": page_of(hostile(), folder=folder),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_text(render(page), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("name", ["one", "two", "hostile"])
@pytest.mark.parametrize("width", [400, 1000])
def test_a_page_loads_nothing_complains_of_nothing_and_never_scrolls_sideways(
    browser, pages, name, width
):
    browser.load_page(pages[name], width)
    assert browser.requests == [pages[name].as_uri()]
    assert browser.complaints == []
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('svg.chart')].filter((svg) => svg.getBoundingClientRect().width > 0)"
    assert browser.run(f"{shown}.length") == browser.run(
        "document.querySelectorAll('figure').length"
    )
    assert (
        browser.run(f"Math.max(...{shown}.map((svg) => svg.getBoundingClientRect().right))")
        <= width
    )


def test_the_page_follows_the_system_by_day_and_by_night_until_somebody_chooses(browser, pages):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.load_page(pages["one"])
    light = browser.run(ground)
    browser.load_page(pages["one"], dark=True)
    dark = browser.run(ground)
    assert light != dark
    assert browser.run("document.querySelector('#theme').textContent") == "Light"
    browser.run("document.querySelector('#theme').click()")
    assert browser.run(ground) == light
    browser.run("document.querySelector('#theme').click()")
    assert browser.run(ground) == dark
    browser.print_media()
    assert browser.run(ground) == "rgb(255, 255, 255)"


def test_a_table_sorts_by_its_numbers_and_back_with_the_keyboard_alone(browser, pages):
    browser.load_page(pages["one"])
    browser.run("document.querySelector('#ranks details').open = true")
    browser.run("document.querySelector('#ranks summary').focus()")
    column = "[...document.querySelectorAll('#ranks tbody tr')].map((row) => parseFloat(row.cells[1].textContent))"
    before = browser.run(column)
    for _ in range(3):  # the table itself, which scrolls; the first head; the second
        browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "crowd"
    browser.press("Enter")
    up = browser.run(column)
    assert up == sorted(before)
    assert (
        browser.run("document.activeElement.parentElement.getAttribute('aria-sort')") == "ascending"
    )
    browser.press("Enter")
    assert browser.run(column) == up[::-1]


def test_sizes_of_different_units_sort_by_what_they_are(browser, pages):
    browser.load_page(pages["one"])
    table = (
        "[...document.querySelectorAll('#hosts table')]"
        ".find((each) => each.caption?.textContent.startsWith('links of node 0'))"
    )
    browser.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    rates = browser.run(f"[...{table}.tBodies[0].rows].map((row) => row.cells[1].textContent)")
    sizes = {"MB/s": 1e6, "GB/s": 1e9}
    values = [float(rate.split()[0]) * sizes[rate.split()[1]] for rate in rates]
    assert len({rate.split()[1] for rate in rates}) == 2
    assert values == sorted(values)


def test_durations_and_money_sort_by_what_they_are(browser, pages):
    browser.load_page(pages["one"])
    for texts in (["90 s", "2.0 min", "20.7 h", "4.4 days"], ["−$3.00", "+$2.10", "+$12.30"]):
        sorted_texts = browser.run(f"""(() => {{
            const table = document.querySelector("#hosts figure table");
            const row = table.tBodies[0].rows[0];
            table.tBodies[0].replaceChildren(...{[*texts[1:], texts[0]]}.map((text) => {{
                const copy = row.cloneNode(true);
                copy.cells[2].textContent = text;
                return copy;
            }}));
            table.tHead.rows[0].cells[2].removeAttribute("aria-sort");
            table.tHead.rows[0].cells[2].querySelector("button").click();
            return [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
        }})()""")
        assert sorted_texts == texts


def test_the_first_key_leads_past_the_navigation_to_the_verdict(browser, pages):
    browser.load_page(pages["one"])
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "To the verdict"
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "main"
