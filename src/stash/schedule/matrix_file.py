"""``matrix.csv``: the throughput matrix as a table, written by ``stash schedule throughputs`` or by hand.

Columns: model, gpus, gpu, placement (packed, spread, or a number of nodes), steps_per_second; low, high, origin
and restart if known. Knows the file, not where rates come from.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from stash.core.errors import UserError
from stash.core.printable import shortened
from stash.core.units import nearest
from stash.core.user_files import table_rows, text_of
from stash.schedule.lab_file import DESCRIBED
from stash.schedule.matrix import PACKED, SPREAD, RateKey, RateMatrix, RateOrigin, StepRate

HEAD = ("model", "gpus", "gpu", "placement", "steps_per_second", "low", "high", "origin", "restart")
_NEEDED = HEAD[:5]
_PLACEMENTS = {"packed": PACKED, "spread": SPREAD}


def read_matrix(path: Path) -> RateMatrix:
    """The matrix at ``path``; raises UserError with line and column of the first mistake."""
    rows = table_rows(text_of(path, "the throughputs", DESCRIBED), path, DESCRIBED)
    head = [cell.strip() for cell in rows[0][1]] if rows else []
    for needed in _NEEDED:
        if needed not in head:
            alike = nearest(needed, head, 1)
            hint = f" ({alike[0]} is another)" if alike else ""
            raise UserError(f"{path} has no column {needed}{hint}; its first line is {','.join(_NEEDED)}")
    rates: dict[RateKey, StepRate] = {}
    restart: dict[str, float] = {}
    for number, row in rows[1:]:
        cells = dict(zip(head, (cell.strip() for cell in row), strict=False))
        if not any(cells.values()):
            continue
        key, rate = _rate(cells, f"{path}:{number}")
        if key in rates:
            raise UserError(f"{path}:{number}: {cells['model']} on {cells['gpus']} {cells['gpu']}, "
                            f"{cells['placement']}, is given twice")  # fmt: skip
        rates[key] = rate
        if (seconds := _number(cells, "restart", f"{path}:{number}")) is not None:
            restart[key[0]] = seconds
    if not rates:
        raise UserError(f"{path} has no rate; a line is like resnet50,4,V100,packed,9.45")
    if all(rate.value == 0 for rate in rates.values()):
        raise UserError(f"{path} has no rate above 0: nothing runs anywhere")
    return RateMatrix(rates, restart)


def _rate(cells: Mapping[str, str], where: str) -> tuple[RateKey, StepRate]:
    gpus, value = _number(cells, "gpus", where), _number(cells, "steps_per_second", where)
    if gpus is None or gpus < 1 or gpus != int(gpus):
        raise UserError(f"{where}: gpus: {cells.get('gpus') or 'nothing'} is no whole number of GPUs")
    if value is None:
        raise UserError(
            f"{where}: steps_per_second: it is missing; leave the line out where it is unknown, 0 says that "
            "it does not run there"
        )
    placement = cells.get("placement", "")
    nodes = _PLACEMENTS.get(placement, int(placement) if placement.isdecimal() and placement != "0" else None)
    if nodes is None:
        raise UserError(
            f"{where}: placement: {shortened(placement, 30)!r} is not packed, spread or a number of nodes"
        )
    origin = cells.get("origin") or "given"
    if origin not in get_args(RateOrigin):
        raise UserError(f"{where}: origin: {shortened(origin, 30)!r} is not one of {', '.join(get_args(RateOrigin))}")
    low, high = _number(cells, "low", where), _number(cells, "high", where)
    if low is not None and high is not None and not low <= value <= high:
        raise UserError(f"{where}: steps_per_second: {value:g} is not between low and high, {low:g} and {high:g}")
    model, gpu = cells.get("model", ""), cells.get("gpu", "")
    if not model or not gpu:
        raise UserError(f"{where}: {'gpu' if model else 'model'}: it is missing")
    return (model, int(gpus), gpu, nodes), StepRate(value, low, high, cast(RateOrigin, origin))


def _number(cells: Mapping[str, str], column: str, where: str) -> float | None:
    text = cells.get(column, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: {column}: {shortened(text, 40)!r} is no number of 0 or more")
    return value


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
