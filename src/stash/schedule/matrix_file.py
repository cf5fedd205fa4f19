"""``matrix.csv``: the throughput matrix as a table, written by ``stash schedule throughputs`` or by hand.

Columns: model, gpus, gpu, placement (packed, spread, or a number of nodes), steps_per_second; low, high, origin
and restart if known. Knows the file, not where rates come from.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import cast, get_args

from stash.core.errors import UserError
from stash.core.printable import shorten_text
from stash.schedule.matrix import PACKED, SPREAD, RateKey, RateMatrix, RateOrigin, StepRate
from stash.schedule.tables import TableLine, read_table

HEAD = ("model", "gpus", "gpu", "placement", "steps_per_second", "low", "high", "origin", "restart")
_NEEDED = HEAD[:5]
_PLACEMENTS = {"packed": PACKED, "spread": SPREAD}


def read_matrix(path: Path) -> RateMatrix:
    """The matrix at ``path``; raises UserError with line and column of the first mistake."""
    rates: dict[RateKey, StepRate] = {}
    restart: dict[str, float] = {}
    for line in read_table(path, "the throughputs", _NEEDED, ",".join(_NEEDED)):
        key, rate = _rate(line)
        if key in rates:
            raise line.mistake(
                "model", f"{key[0]} on {key[1]} {key[2]}, {line.text('placement')}, is given twice"
            )
        rates[key] = rate
        if (seconds := line.number_of("restart")) is not None:
            restart[key[0]] = seconds
    if not rates:
        raise UserError(f"{path} has no rate; a line is like resnet50,4,V100,packed,9.45")
    if all(rate.value == 0 for rate in rates.values()):
        raise UserError(f"{path} has no rate above 0: nothing runs anywhere")
    return RateMatrix(rates, restart)


def _rate(line: TableLine) -> tuple[RateKey, StepRate]:
    gpus, value = line.gpus(), line.number_of("steps_per_second")
    if value is None:
        raise line.mistake(
            "steps_per_second",
            "it is missing; leave the line out where it is unknown, 0 says that it does not run there",
        )
    placement = line.text("placement")
    nodes = _PLACEMENTS.get(
        placement, int(placement) if placement.isdecimal() and placement != "0" else None
    )
    if nodes is None:
        raise line.mistake(
            "placement",
            f"{shorten_text(placement, 30)!r} is not packed, spread or a number of nodes",
        )
    origin = line.text("origin") or "given"
    if origin not in get_args(RateOrigin):
        raise line.mistake(
            "origin",
            f"{shorten_text(origin, 30)!r} is not one of {', '.join(get_args(RateOrigin))}",
        )
    low, high = line.number_of("low"), line.number_of("high")
    if low is not None and high is not None and not low <= value <= high:
        raise line.mistake(
            "steps_per_second", f"{value:g} is not between low and high, {low:g} and {high:g}"
        )
    for column in ("model", "gpu"):
        if not line.text(column):
            raise line.mistake(column, "it is missing")
    return (line.text("model"), gpus, line.text("gpu"), nodes), StepRate(
        value, low, high, cast(RateOrigin, origin)
    )


def matrix_text(matrix: RateMatrix) -> str:
    """The matrix as such a file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    words = {number: word for word, number in _PLACEMENTS.items()}
    for (model, gpus, gpu, nodes), rate in matrix.rates.items():
        writer.writerow(
            [
                model,
                gpus,
                gpu,
                words.get(nodes, nodes),
                f"{rate.value:.6g}",
                *(_or_empty(end) for end in (rate.low, rate.high)),
                rate.origin,
                _or_empty(matrix.restart.get(model)),
            ]
        )
    return out.getvalue()


def _or_empty(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
