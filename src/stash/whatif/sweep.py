"""A forecast for each value of one or two options: the grid that a sweep asks for, and its points.

Reads ``nodes=1..64`` as people write it. Knows how many points a person can look at, and refuses more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stash.core.errors import UserError
from stash.predict.changes import Alteration, Times, check_option, named_gpu, parse
from stash.predict.forecast import Forecast
from stash.predict.forecasting import lost_stalls, what_if
from stash.predict.mesh_shapes import division_of, iter_meshes
from stash.predict.passes import Base

MAX_POINTS = 400
_ALL_UP_TO = 12
"""Whole numbers: ranges of as many are swept one by one, longer ones by doubling."""
_STEPS = 9
"""Of a range of other numbers, in equal ratios; in equal steps from 0."""
_EXAMPLE = "write it like nodes=1..64, network=10gbit..100gbit or gpu=V100,A100-SXM4-80GB"


@dataclass(frozen=True)
class SweptOption:
    """One option and the values it takes, as typed or as a number is written."""

    option: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One forecast of a sweep; ``forecast`` is ``None`` where there is none, and ``why`` says it."""

    texts: tuple[str, ...]
    forecast: Forecast | None
    why: str | None = None


def axes(asked: Sequence[str]) -> tuple[SweptOption, ...]:
    """One or two; raises UserError."""
    if len(asked) > 2:
        raise UserError("a sweep has one or two dimensions; give --sweep once or twice")
    found = tuple(_axis(text) for text in asked)
    if len({axis.option for axis in found}) < len(found):
        raise UserError(f"--sweep {found[0].option} is given twice; sweep two different options")
    count = math.prod(len(axis.texts) for axis in found)
    if count > MAX_POINTS:
        raise UserError(
            f"that sweep has {count:,} points; up to {MAX_POINTS} can be looked at: give shorter ranges"
        )
    return found


def sweep(base: Base, wanted: Alteration, over: Sequence[SweptOption]) -> tuple[Point, ...]:
    """A forecast for each combination of the axes' values, the last axis fastest; raises UserError for no point."""
    both = [axis.option for axis in over if axis.option in wanted.names]
    if both:
        raise UserError(f"--{both[0]} is both set and swept; leave one of them out")
    _refuse_unknown_names(base, over)
    points = []
    for texts in itertools.product(*(axis.texts for axis in over)):
        named = zip((axis.option for axis in over), texts, strict=True)
        here = {option: parse(option, text) for option, text in named}
        points.append(_point(base, texts, wanted.replace_facts(**here)))
    if all(point.forecast is None for point in points):
        raise UserError(points[0].why or "no point of that sweep can be predicted")
    return tuple(points)


def meshes(base: Base, wanted: Alteration) -> tuple[Point, ...]:
    """A forecast for every mesh of as many ranks, the fastest first, those without last; raises UserError."""
    points = []
    for mesh in iter_meshes(division_of(base.profile)):
        point = _point(base, (str(mesh),), wanted.replace_facts(mesh=mesh))
        why = (point.why or "").removeprefix(f"--mesh {mesh}").lstrip(": ")
        points.append(replace(point, why=why or None))
    points.sort(
        key=lambda point: point.forecast.breakdown.step_seconds if point.forecast else math.inf
    )
    if points[0].forecast is None:
        raise UserError(points[0].why or "no mesh can be predicted")
    return tuple(points)


def _refuse_unknown_names(base: Base, over: Sequence[SweptOption]) -> None:
    """Raise UserError for an unknown name: that is a mistake, not a point that cannot be predicted."""
    for axis in over:
        for text in axis.texts:
            if axis.option == "instance":
                base.catalog().instance(text)
            elif axis.option == "gpu":
                named_gpu(text, base.catalog())


def _point(base: Base, texts: tuple[str, ...], wanted: Alteration) -> Point:
    try:
        forecast = what_if(base, wanted)
    except UserError as error:
        return Point(texts, None, str(error))
    unknown = lost_stalls(base, forecast)
    return Point(texts, None, unknown[0].why) if unknown else Point(texts, forecast)


def _axis(text: str) -> SweptOption:
    option, found, values = text.partition("=")
    option = option.strip().removeprefix("--")
    if not found or not values.strip():
        raise UserError(f"--sweep {text}: it names no values; {_EXAMPLE}")
    check_option(option)
    first, ranged, last = values.partition("..")
    if not ranged:
        texts = tuple(each.strip() for each in values.split(",") if each.strip())
    else:
        texts = _range_values(option, text, first.strip(), last.strip())
    for each in texts:
        parse(option, each)
    return SweptOption(option, texts)


def _range_values(field: str, text: str, first: str, last: str) -> tuple[str, ...]:
    low, high = parse(field, first), parse(field, last)
    if isinstance(low, str) or isinstance(high, str):
        raise UserError(
            f"--sweep {text}: names have no range; list them with commas, like gpu=V100,A100-SXM4-80GB"
        )
    assert isinstance(low, (int, float)), "what is no name is a number"
    assert isinstance(high, (int, float)), "as above"
    if low > high:
        raise UserError(f"--sweep {text}: its range ends before it begins; turn it round")
    multiples = [isinstance(end, Times) for end in (low, high)]
    if any(multiples):
        if not all(multiples):
            raise UserError(
                f"--sweep {text}: one end is a rate, the other a multiple of it; write both alike"
            )
        return tuple(
            f"{value:.4f}".rstrip("0").rstrip(".") + "x"
            for value in _space_values(float(low), float(high))
        )
    if isinstance(low, int) and isinstance(high, int):
        return tuple(str(value) for value in _whole_values(low, high))
    return tuple(_write_value(field, value) for value in _space_values(float(low), float(high)))


def _whole_values(low: int, high: int) -> list[int]:
    if high - low < _ALL_UP_TO:
        return list(range(low, high + 1))
    first = max(1, low)
    doubled = [first * 2**power for power in range(int(math.log2(high / first)) + 1)]
    return sorted({low, *doubled, high})


def _space_values(low: float, high: float) -> list[float]:
    if low == high:
        return [low]
    if low == 0:
        return [high * step / (_STEPS - 1) for step in range(_STEPS)]
    return [low * (high / low) ** (step / (_STEPS - 1)) for step in range(_STEPS)]


def _write_value(field: str, value: float) -> str:
    """So that ``parse`` reads it again, in the unit in which people name such a thing."""
    if field == "cache":
        return f"{value:.3%}".rstrip("%").rstrip("0").rstrip(".") + "%"
    if field == "network":
        return f"{value * 8 / 1e9:.4g}gbit"
    if field == "disk":
        return f"{value / 1e6:.4g}MB/s"
    if field in ("memory", "bucket"):
        return f"{value / 2**20:.4g}MiB"
    return f"{value:.4g}"
