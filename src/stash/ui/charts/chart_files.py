"""Charts as files for paper: SVG with its font inside, and what vl-convert makes of it, PDF and PNG.

vl-convert needs no browser. All files carry one font: Roboto (Google, Apache License 2.0; as in Debian's package
fonts-roboto-unhinted of 2017-08-02), cut down to Latin, Greek and the signs that Stash writes. Text in other letters
is drawn with whatever font of the machine has them.
"""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

from stash.core.imports import require_package
from stash.ui.charts.builders import Chart
from stash.ui.charts.svg import draw_svg

_PIXELS_PER_MM = 96 / 25.4
"""As CSS defines them."""
_POINTS_PER_PIXEL = 72 / 96
_DOTS_PER_INCH = 300
_FONTS = Path(__file__).parent / "fonts"


def render_chart(chart: Chart, ending: str, width_mm: float) -> str | bytes:
    """The file's content, of ``png``, ``draw_svg`` or ``pdf``; raises UserError where vl-convert is missing."""
    width = round(width_mm * _PIXELS_PER_MM)
    if ending == "svg":
        return draw_svg(chart, width, paper=True, font=_font())
    vl_convert = require_package(
        "vl_convert", ending.upper(), "vl-convert-python", "--format svg, which needs nothing"
    )
    vl_convert.register_font_directory(str(_FONTS))
    # A unit of vl-convert is a point.
    drawing = draw_svg(chart, width, paper=True, zoom=_POINTS_PER_PIXEL)
    made: bytes = (
        vl_convert.svg_to_pdf(drawing)
        if ending == "pdf"
        else vl_convert.svg_to_png(drawing, ppi=_DOTS_PER_INCH)
    )
    return made


@cache
def _font() -> str:
    data = base64.b64encode((_FONTS / "Roboto-subset.ttf").read_bytes()).decode()
    return f"@font-face{{font-family:Roboto;src:url(data:font/ttf;base64,{data})}}"
