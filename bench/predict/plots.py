"""Predicted against measured, as a picture for the page on validation: a mark a case, a row a source.

python -m bench.predict.plots
"""

from __future__ import annotations

import io

import altair
from PIL import Image

from bench.machine import ROOT, arguments
from bench.predict import gavel, published
from bench.predict.errors import Prediction

PICTURE = ROOT / "docs" / "pictures" / "predicted.png"
_FAINT, _STRONG = "#b9c4cf", "#1f5fa8"
_RATIO = "predicted / measured"


def main() -> None:
    """Draw all published cases and write the picture."""
    arguments(__doc__)
    PICTURE.parent.mkdir(exist_ok=True)
    drawn = io.BytesIO()
    chart([*published.throughputs(), *gavel.batches()]).save(drawn, format="png", scale_factor=1.5)
    # Few colours are in it: a tenth of the bytes.
    Image.open(drawn).convert("RGB").quantize(32).save(PICTURE, optimize=True)
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def chart(predictions: list[Prediction]) -> altair.VConcatChart:
    """A row a source: how far each prediction and the simplest one (perfect scaling) are from what was measured."""
    sources = list(dict.fromkeys(each.source for each in predictions))
    data = altair.Data(values=[row for each in predictions for row in _rows(each)])
    base = altair.Chart(data)
    place = altair.Y("source:N", sort=sources, title=None, axis=altair.Axis(labelLimit=420, ticks=False, grid=True))
    across = altair.X(f"{_RATIO}:Q", scale=altair.Scale(type="log", domain=[0.5, 4], clamp=True), title=_RATIO)
    points = base.mark_tick(thickness=1.5, height=9, opacity=0.7).encode(
        x=across,
        y=place,
        yOffset=altair.YOffset("by:N", sort=["Stash", "perfect scaling"]),
        color=altair.Color(
            "by:N",
            scale=altair.Scale(domain=["Stash", "perfect scaling"], range=[_STRONG, _FAINT]),
            legend=altair.Legend(orient="top", title=None),
        ),
    )
    right = altair.Chart(altair.Data(values=[{_RATIO: 1}])).mark_rule(color="#444444").encode(x=across)
    whole = (points + right).properties(width=560, height=30 * len(sources))
    return altair.vconcat(whole).configure_view(stroke=None).configure_axis(labelFontSize=11, domain=False)


def _rows(each: Prediction) -> list[dict[str, object]]:
    predicted = {"Stash": each.value, "perfect scaling": each.baselines["perfect scaling"]}
    return [{"source": each.source, "by": by, _RATIO: value / each.measured} for by, value in predicted.items()]


if __name__ == "__main__":
    main()
