"""A sweep as a file: a picture for paper, or a page that stands by itself."""

from __future__ import annotations

from stash.base.errors import UserError
from stash.show.charts.files import content
from stash.show.forecast.curves import SweepView
from stash.show.forecast.sweep_chart import chart
from stash.show.report.html import render
from stash.show.report.page import Chapter, Page

ENDINGS = (".png", ".svg", ".pdf", ".html")
_WIDTH_MM = 140


def picture(view: SweepView, ending: str) -> str | bytes:
    """The content of a file with that ending; raises UserError for another one, or without vl-convert."""
    if ending.lower() not in ENDINGS:
        raise UserError(f"--output *{ending}: pictures end in {', '.join(ENDINGS)}")
    drawn = chart(view)
    if ending.lower() != ".html":
        return content(drawn, ending.lower().removeprefix("."), _WIDTH_MM)
    told = Chapter("sweep", drawn.title, charts=(drawn,), points=view.notes)
    return render(Page(title=view.title, source=f"what if, {view.question}", chapters=(told,)))
