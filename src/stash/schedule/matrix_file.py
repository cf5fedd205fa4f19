"""``matrix.csv``: the throughput matrix as a table, written by ``stash schedule throughputs`` or by hand.

Columns: model, gpus, gpu, placement (packed, spread, or a number of nodes), steps_per_second; low, high, origin
and restart if known. Knows the file, not where rates come from.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from stash.core.errors import UserError
from stash.core.records.base import Number, Record
from stash.core.user_files import load_rows
from stash.schedule.matrix import PACKED, SPREAD, RateKey, RateMatrix, RateOrigin, StepRate
from stash.schedule.records import DESCRIBED

_PLACEMENTS = {"packed": PACKED, "spread": SPREAD}


def _check_placement(text: str) -> str:
    if text not in _PLACEMENTS and not (text.isdecimal() and int(text)):
        raise ValueError("is not packed, spread or a number of nodes")
    return text


_End = Annotated[Number | None, Field(ge=0, examples=["9.1"])]


class _Row(Record):
    model: Annotated[str, Field(min_length=1, max_length=300, examples=["resnet50"])]
    gpus: Annotated[int, Field(ge=1, le=10**6, examples=["4"])]
    gpu: Annotated[str, Field(min_length=1, max_length=300, examples=["V100"])]
    placement: Annotated[str, AfterValidator(_check_placement), Field(examples=["packed"])]
    steps_per_second: Annotated[Number, Field(ge=0, examples=["9.45"])]
    """0: it does not run there; without a line it is unknown."""
    low: _End = None
    high: _End = None
    origin: Annotated[RateOrigin, Field(examples=["measured"])] = "given"
    restart: Annotated[Number | None, Field(ge=0, examples=["45"])] = None


def read_matrix(path: Path) -> RateMatrix:
    """The matrix at ``path``; raises UserError with line and column of mistakes."""
    rates: dict[RateKey, StepRate] = {}
    restart: dict[str, float] = {}
    for line, row in load_rows(path, _Row, "the throughputs", DESCRIBED, 500_000, 2**26):
        nodes = _PLACEMENTS.get(row.placement)
        key = (row.model, row.gpus, row.gpu, int(row.placement) if nodes is None else nodes)
        if key in rates:
            raise UserError(
                f"{path}:{line}: model: {row.model} on {row.gpus} {row.gpu}, {row.placement}, is given twice"
            )
        low, value, high = row.low, row.steps_per_second, row.high
        if low is not None and high is not None and not low <= value <= high:
            raise UserError(
                f"{path}:{line}: steps_per_second: {value:g} is not between low and high, {low:g} and {high:g}"
            )
        rates[key] = StepRate(value, low, high, row.origin)
        if row.restart is not None:
            restart[row.model] = row.restart
    if all(rate.value == 0 for rate in rates.values()):
        raise UserError(f"{path} has no rate above 0: nothing runs anywhere")
    return RateMatrix(rates, restart)


def matrix_text(matrix: RateMatrix) -> str:
    """The matrix as such a file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_Row.model_fields)
    words = {number: word for word, number in _PLACEMENTS.items()}
    for (model, gpus, gpu, nodes), rate in matrix.rates.items():
        ends = [
            "" if end is None else f"{end:.6g}"
            for end in (rate.low, rate.high, matrix.restart.get(model))
        ]
        where = words.get(nodes, nodes)
        writer.writerow(
            [model, gpus, gpu, where, f"{rate.value:.6g}", *ends[:2], rate.origin, ends[2]]
        )
    return out.getvalue()
