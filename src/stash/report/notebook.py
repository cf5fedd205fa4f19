"""A profile as a notebook's cell, and as its ``repr``: the report's top, which is the verdict, the step as a bar
and as a table of its stalls, and the next steps.

The HTML is a fragment with its own style, by day and by night, that touches nothing around it and needs no script.
Knows no file: what is shown may never have been saved.
"""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.errors import StashError
from stash.core.printable import printable_line
from stash.core.records.profile import Profile
from stash.report.profile_page import how_measured, page
from stash.ui import terminal
from stash.ui.charts.chart import NOTEBOOK, series
from stash.ui.charts.svg import RULES, strip
from stash.ui.elements import element, prose, style_sheet
from stash.ui.page import Page, Row

_WIDTH = 720
_SCOPE = ".stash-profile"
_STYLE = (
    f"{_SCOPE}{{max-width:{_WIDTH}px;font:14px/1.5 system-ui,sans-serif}}{_SCOPE} p{{margin:.4em 0}}"
    f"{_SCOPE} .strip{{display:block;width:100%;height:22px;margin:.6em 0}}{_SCOPE} .quiet{{opacity:.7}}"
    f"{_SCOPE} td,{_SCOPE} th{{text-align:right;padding:0 1em 0 0;font-weight:inherit}}"
    f"{_SCOPE} td:first-child,{_SCOPE} th:first-child,{_SCOPE} .why{{text-align:left}}"
)
_MAX_LINES = 40


def render(profile: Profile) -> Markup:
    """The fragment; of a profile that nothing can be derived from, the sentence that says why."""
    try:
        contents = _contents(_top(profile))
    except StashError as error:
        contents = [element("p", element("b", prose(profile.workload.name)), ": ", prose(str(error)))]
    return element("div", *contents, class_=_SCOPE.removeprefix("."))


def render_text(profile: Profile) -> str:
    """The same as at most 40 lines of plain text."""
    try:
        shown = _top(profile)
    except StashError as error:
        return printable_line(f"{profile.workload.name}: {error}")
    lines = terminal.render(replace(shown, footer=""), 80).strip("\n").splitlines()
    return "\n".join([*lines[: _MAX_LINES - 1], "…"] if len(lines) > _MAX_LINES else lines)


def _top(profile: Profile) -> Page:
    breakdown = attribute(profile)
    shown = page(breakdown, verdict(breakdown, profile), profile)
    return replace(shown, chapters=(), footer=how_measured(breakdown, profile))


def _contents(shown: Page) -> list[Markup]:
    head = element("span", Markup(" · ").join(map(prose, shown.subtitle)), class_="quiet")
    steps = [element("li", prose(step)) for step in shown.next_steps]
    return [
        style_sheet(_style()),
        element("p", element("b", prose(shown.title)), " ", head),
        *(element("p", prose(sentence)) for sentence in shown.verdict),
        strip([(row.name, row.fraction) for row in shown.bar]),
        element("table", *map(_row, shown.rows)),
        *([element("ol", *steps)] if steps else ()),
        *(element("p", "⚠ ", prose(warning)) for warning in shown.warnings),
        element("p", prose(shown.footer), class_="quiet"),
    ]


def _row(row: Row) -> Markup:
    colour = element("span", "■ ", class_=series(row.series or row.name), aria_hidden="true")
    name = element("th", colour, element("b", prose(row.name)) if row.strong else prose(row.name), scope="row")
    if row.why is not None:
        return element("tr", name, element("td", prose(row.why), colspan=3, class_="why"))
    share = f"{row.share}, within noise" if row.within_noise else row.share
    return element("tr", name, *(element("td", prose(text)) for text in (row.time, row.interval, share)))


def _style() -> str:
    rules = "".join(f"{_SCOPE} {rule}" for rule in RULES)
    return _STYLE + rules + "".join(f"{_SCOPE} .s-{name}{{color:{colour}}}" for name, colour in NOTEBOOK.items())
