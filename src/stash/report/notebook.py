"""A profile as a notebook's cell: the verdict, the step as a bar and as a ladder, next steps; by day and by night.

A fragment with its own style, that touches nothing around it and needs no script. Knows no file: what is shown may
never have been saved.
"""

from __future__ import annotations

from markupsafe import Markup

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.errors import StashError
from stash.core.records.profile import Profile
from stash.report.profile_page import how_measured, page
from stash.report.step_charts import ladder
from stash.ui.charts.chart import NOTEBOOK
from stash.ui.charts.svg import RULES, strip, svg
from stash.ui.elements import element, prose, style_sheet

_WIDTH = 720
_SCOPE = ".stash-profile"
_STYLE = (
    f"{_SCOPE}{{max-width:{_WIDTH}px;font:14px/1.5 system-ui,sans-serif}}{_SCOPE} p{{margin:.4em 0}}"
    f"{_SCOPE} .strip{{display:block;width:100%;height:22px;margin:.6em 0}}"
    f"{_SCOPE} .chart{{max-width:100%;height:auto}}{_SCOPE} .quiet{{opacity:.7}}{_SCOPE} .line{{opacity:.2}}"
)


def render(profile: Profile) -> Markup:
    """The fragment; of a profile that nothing can be derived from, the sentence that says why."""
    try:
        contents = _contents(profile, attribute(profile))
    except StashError as error:
        contents = [element("p", element("b", prose(profile.workload.name)), ": ", prose(str(error)))]
    return element("div", *contents, class_=_SCOPE.removeprefix("."))


def _contents(profile: Profile, breakdown: Breakdown) -> list[Markup]:
    shown = page(breakdown, verdict(breakdown, profile), profile)
    head = element("span", Markup(" · ").join(map(prose, shown.subtitle)), class_="quiet")
    steps = [element("li", prose(step)) for step in shown.next_steps]
    return [
        style_sheet(_style()),
        element("p", element("b", prose(shown.title)), " ", head),
        *(element("p", prose(sentence)) for sentence in shown.verdict),
        strip([(row.name, row.fraction) for row in shown.bar]),
        svg(ladder(breakdown), _WIDTH),
        *([element("ol", *steps)] if steps else ()),
        *(element("p", "⚠ ", prose(warning)) for warning in shown.warnings),
        element("p", prose(how_measured(breakdown, profile)), class_="quiet"),
    ]


def _style() -> str:
    rules = "".join(f"{_SCOPE} {rule}" for rule in RULES)
    return _STYLE + rules + "".join(f"{_SCOPE} .s-{name}{{color:{colour}}}" for name, colour in NOTEBOOK.items())
