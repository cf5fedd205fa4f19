"""A profile as a notebook's cell: the verdict, the step as a bar and as a ladder, next steps; by day and by night.

A fragment with its own style, that touches nothing around it and needs no script. Knows no file: what is shown may
never have been saved.
"""

from __future__ import annotations

from stash.base.errors import StashError
from stash.base.records import Profile
from stash.derive.advise import verdict
from stash.derive.stalls import Breakdown, attribute
from stash.show.charts.ladder import ladder
from stash.show.charts.palette import NOTEBOOK
from stash.show.charts.svg import RULES, strip, svg
from stash.show.profile.view import view
from stash.show.report.prose import prose

_WIDTH = 720
_SCOPE = ".stash-profile"
_STYLE = (
    f"{_SCOPE}{{max-width:{_WIDTH}px;font:14px/1.5 system-ui,sans-serif}}{_SCOPE} p{{margin:.4em 0}}"
    f"{_SCOPE} .strip{{display:block;width:100%;height:22px;margin:.6em 0}}"
    f"{_SCOPE} .chart{{max-width:100%;height:auto}}{_SCOPE} .quiet{{opacity:.7}}{_SCOPE} .line{{opacity:.2}}"
)


def render(profile: Profile) -> str:
    """The fragment; of a profile that nothing can be derived from, the sentence that says why."""
    try:
        breakdown = attribute(profile)
    except StashError as error:
        return f'<div class="stash-profile"><p><b>{prose(profile.workload.name)}</b>: {prose(str(error))}</p></div>'
    return f'<div class="stash-profile"><style>{_style()}</style>{_contents(profile, breakdown)}</div>'


def _contents(profile: Profile, breakdown: Breakdown) -> str:
    shown = view(breakdown, verdict(breakdown, profile), profile)
    steps = "".join(f"<li>{prose(step)}</li>" for step in shown.next_steps)
    warnings = "".join(f"<p>⚠ {prose(warning)}</p>" for warning in shown.warnings)
    bar = strip([(row.name, row.fraction) for row in shown.rows if row.why is None and row.fraction > 0])
    head = " · ".join(map(prose, shown.subtitle))
    return (
        f'<p><b>{prose(shown.title)}</b> <span class="quiet">{head}</span></p><p>{prose(shown.verdict)}</p>'
        f"{bar}{svg(ladder(breakdown), _WIDTH)}{f'<ol>{steps}</ol>' if steps else ''}{warnings}"
        f'<p class="quiet">{prose(shown.footer)}</p>'
    )


def _style() -> str:
    rules = "".join(f"{_SCOPE} {rule}" for rule in RULES)
    return _STYLE + rules + "".join(f"{_SCOPE} .s-{name}{{color:{colour}}}" for name, colour in NOTEBOOK.items())
