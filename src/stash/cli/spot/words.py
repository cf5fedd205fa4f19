"""What the commands of ``stash spot`` share: options, notes beside what is printed, the name of a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import seconds_of

if TYPE_CHECKING:
    from stash.base.spot.fleets import FleetPlan, SpeedModel

_EVERY = 20.0
"""Seconds between checkpoints, where neither the user nor the plan says."""
MODELS = ("queue", "paper")
MODEL_HELP = "queue (workers wait at the servers) or paper (equations 8 and 9 of spotDNN)"
JSON_HELP = "Print JSON; its keys are a contract (docs/format.md)."


def told(note: str, json: bool) -> None:
    """Beside what was printed; where that is JSON, standard output holds nothing else."""
    print(printable_line(note), file=sys.stderr if json else sys.stdout)


def model_of(name: str) -> SpeedModel:
    if name == "queue":
        return "queue"
    if name == "paper":
        return "paper"
    raise UserError(f"--model {name!r} is none of {' and '.join(MODELS)}")


def checkpoint_interval(plan: FleetPlan, every: str | None) -> tuple[float, str]:
    """Seconds between checkpoints, and who says so."""
    if every is not None:
        return seconds_of("--checkpoint-every", every), "as --checkpoint-every says"
    risk = plan.risk
    if risk is not None and risk.checkpoint is not None:
        return risk.checkpoint.best, f"as the plan's risk says, {risk.checkpoint.how}"
    return _EVERY, "by default: the plan has no risk of a synchronous job, and --checkpoint-every was not given"
