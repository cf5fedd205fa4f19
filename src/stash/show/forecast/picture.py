"""A sweep as a picture: PNG, SVG, or HTML that stands by itself. Needs altair and vl-convert, loaded only here.

The line is the forecast, the band its 95 % interval, the dashed rule what was measured.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stash.base.errors import UserError
from stash.show.forecast.curves import CurvePoint, SweepView

ENDINGS = (".png", ".svg", ".html")
_BY_RATIO = 8
"""Ranges that span more are drawn by ratio."""
_SIZE = {"width": 560, "height": 320}


def save_picture(view: SweepView, path: Path) -> None:
    """Write the picture that the file's ending asks for; raises UserError for another ending, or without altair."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"--output {path}: pictures end in {', '.join(ENDINGS)}")
    try:
        chart(view).save(str(path), **({"inline": True} if path.suffix.lower() == ".html" else {}))
    except ImportError:
        raise UserError(
            f"--output {path}: pictures need altair and vl-convert-python; install them with pip"
        ) from None
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror or error}; choose another place") from None


def chart(view: SweepView) -> Any:
    """The altair chart."""
    import altair

    data: Any = _data(altair, [_row(view, point) for point in view.points if point.value is not None])
    x, y_scale = _axis(altair, view)
    y_title = f"{'step, ' if view.unit != 'samples/s' else ''}{view.unit}"
    encoded: dict[str, Any] = {"x": x}
    if len(view.options) == 2:
        series = list(dict.fromkeys(point.at[1] for point in view.points))
        encoded["color"] = altair.Color("series:N", sort=series, title=view.options[1])
    base = altair.Chart(data)
    band = base.mark_area(opacity=0.2).encode(
        y=altair.Y("low:Q", title=y_title, scale=y_scale), y2="high:Q", **encoded
    )
    line = base.mark_line(point=True).encode(
        y=altair.Y("value:Q", title=y_title, scale=y_scale), tooltip=["at:N", "text:N", "limited by:N"], **encoded
    )
    layers = [band, line]
    if view.measured is not None:
        rule = altair.Chart(_data(altair, [{"measured": view.measured}])).mark_rule(strokeDash=[4, 4])
        layers.append(rule.encode(y="measured:Q"))
    title = altair.TitleParams(view.title, subtitle=[view.question, "band: 95 % interval; dashed: as measured"])
    return altair.layer(*layers).properties(title=title, **_SIZE)


def _axis(altair: Any, view: SweepView) -> tuple[Any, Any]:
    """The axis of the first option and the scale of values: numbers by size, by ratio where they span much; else
    names."""
    texts = list(dict.fromkeys(point.at[0] for point in view.points))
    numbers, units = zip(*(_number(text) for text in texts), strict=True)
    name = view.options[0]
    if len(set(units)) > 1 or not all(isinstance(number, float) for number in numbers):
        return altair.X("x:N", sort=texts, title=name, axis=altair.Axis(labelAngle=0)), altair.Scale()
    title = f"{name}, {units[0]}" if units[0] else name
    if min(numbers) <= 0 or max(numbers) < _BY_RATIO * min(numbers):
        return altair.X("x:Q", title=title), altair.Scale()
    log = altair.Scale(type="log", base=2)
    rates = view.unit == "samples/s"
    axis = altair.Axis(values=list(numbers), format="~g")
    return altair.X("x:Q", title=title, scale=log, axis=axis), altair.Scale(type="log") if rates else altair.Scale()


def _number(text: str) -> tuple[float | str, str]:
    """``"10gbit"`` is (10.0, "gbit"); a name is itself."""
    found = re.fullmatch(r"([0-9.]+)\s*([a-zA-Z%/]*)", text)
    return (float(found[1]), found[2]) if found else (text, "")


def _data(altair: Any, rows: list[dict[str, Any]]) -> Any:
    return altair.Data(values=rows)


def _row(view: SweepView, point: CurvePoint) -> dict[str, Any]:
    row: dict[str, Any] = {
        "x": _number(point.at[0])[0],
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "text": point.text,
    }
    row |= {"at": point.at[0], "limited by": point.largest}
    return row if len(view.options) == 1 else {**row, "series": point.at[1]}
