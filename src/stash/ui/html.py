"""A report's page as one HTML file that needs nothing else: no network, no fonts, no library of scripts.

Every text is made printable and escaped by the template engine; the policy in the page lets no script or style run
but its own. Arranges, and computes nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stash.core.printable import printable_line
from stash.core.version import __version__
from stash.ui.charts.chart import DARK, LIGHT, Blank, GridLink, series
from stash.ui.charts.svg import RULES, draw_strip, draw_svg
from stash.ui.elements import element, prose_markup
from stash.ui.page import Page

_TEMPLATES = Path(__file__).parent / "templates"
_NIGHT = {
    "ink": "#e6e9ee",
    "quiet": "#9aa5b1",
    "lines": "#333b45",
    "page": "#14181d",
    "card": "#1b2027",
    "accent": "#7db8f2",
    "warn": "#f0b45a",
}


def render(page: Page) -> str:
    """The whole document."""
    # The style sheet, with the colours of series by day and by night, and each by somebody's own
    # choice.
    night = "color-scheme:dark;" + _variables(_NIGHT) + _variables(DARK)
    style = (
        (_TEMPLATES / "report.css").read_text(encoding="utf-8")
        + "".join(RULES)
        + f":root{{{_variables(LIGHT)}}}"
        + f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{night}}}}}"
        + f"@media screen{{:root[data-theme=dark]{{{night}}}}}"
        + "".join(f".s-{name}{{color:var(--{name})}}" for name in LIGHT)
    )
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("report.html")
        .render(
            page=page,
            version=__version__,
            style=Markup(style),
            style_hash=_hash(style),
            script=Markup(script),
            script_hash=_hash(script),
        )
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_fit,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["svg"] = draw_svg
    made.filters["strip"] = lambda rows: draw_strip(
        [(row.series or row.name, row.fraction) for row in rows if row.fraction > 0]
    )
    made.filters["series"] = series
    made.filters["prose"] = prose_markup
    made.filters["links"] = _links
    made.tests["blank"] = lambda chart: isinstance(chart, Blank)
    return made


def _links(parts: Sequence[GridLink]) -> Markup:
    """The parts of a cell, each with its link if it has one."""
    return Markup(" ").join(
        element("a", part.text, href=part.to) if part.to else part.text for part in parts
    )


def _fit(value: Any) -> Any:
    """What a template writes, made printable; it is escaped after that."""
    return (
        value if isinstance(value, Markup) or not isinstance(value, str) else printable_line(value)
    )


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
