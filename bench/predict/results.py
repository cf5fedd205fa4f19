"""Results of validations that take long, kept as a table: a line a stall of a configuration, predicted and measured.

Knows no model and no machine.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from bench.predict.errors import Prediction
from stash.analysis.breakdown import Breakdown
from stash.predict.draws import Draws, intervals
from stash.predict.forecast import Forecast

FIELDS = ("configuration", "stall", "measured", "predicted", "low", "high", "as_of")
DRAWS = Draws()


def lines(name: str, told: Forecast, found: Breakdown) -> list[tuple[str, ...]]:
    """The step, and every stall that was both predicted and measured, in seconds."""
    measured = {stall.name: stall.seconds for stall in found.stalls}
    every = [("step", found.step_seconds, told.breakdown.step)]
    every += [(s.name, measured[s.name], s.time) for s in told.breakdown.stalls if s.name in measured]
    return [
        (
            *(name, stall, f"{seconds:.6g}", f"{said.value:.6g}"),
            *(f"{said.low:.6g}" if said.low is not None else "", f"{said.high:.6g}" if said.high is not None else ""),
            date.today().isoformat(),
        )
        for stall, seconds, said in every
    ]


def keep(path: Path, new: Sequence[tuple[str, ...]]) -> None:
    """The file with these lines in the place of older ones of the same configuration."""
    kept = [row for row in rows(path) if row["configuration"] != new[0][0]]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows([tuple(row[name] for name in FIELDS) for row in kept])
        writer.writerows(new)


def rows(path: Path) -> list[dict[str, str]]:
    """What was kept so far; nothing if there is no such file yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def prediction(row: dict[str, str]) -> Prediction:
    """A row as a prediction whose draws have its mean and its ends; without known ends every draw is the mean."""
    if not row["low"] or not row["high"]:
        drawn = np.full(DRAWS.count, float(row["predicted"]))
        return Prediction(row["stall"], row["configuration"], float(row["measured"]), drawn)
    low, high, value = (float(row[name]) for name in ("low", "high", "predicted"))
    spread = np.interp(DRAWS.uniforms("kept"), [0.0, 0.025, 0.975, 1.0], [low, low, high, high])
    (found,) = intervals(spread[None, :])
    return Prediction(row["stall"], row["configuration"], float(row["measured"]), spread + value - found.value)
