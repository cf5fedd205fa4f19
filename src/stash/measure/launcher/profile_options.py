"""What the user wants of a measurement: options of ``stash profile``, and what ``stash.profile`` is given."""

from __future__ import annotations

from dataclasses import dataclass

from stash.core import parsers
from stash.core.ladder import NAMES, parse_rungs
from stash.ui.options import Options, flag, option

_HOW = "How to measure"


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(Options):
    """What the user wants of the measurement."""

    noise: float | None = option(
        "PCT", "Measure until noise leaves every stall ± this % of a step; else until the verdict holds.",
        parsers.percent, panel=_HOW,
    )  # fmt: skip
    """A fraction of the step."""
    budget: float = option(
        "TIME", "At most so long, from the first block on.", parsers.duration, default="60", panel=_HOW
    )
    rungs: tuple[str, ...] = option(
        "A,B,C", "Only these rungs of the ladder; else all.", parse_rungs, default=NAMES, panel=_HOW
    )
    isolate: bool = flag("A launch of its own for every rung.", panel=_HOW)
    data_root: str | None = option("PATH", "Where the job's data lie, if it reads them from C code.", panel=_HOW)
    start_timeout: float = option(
        "TIME", "How long to wait for the first step.", parsers.duration, default="300", panel=_HOW,
    )  # fmt: skip
    keep_logging: bool = flag("Leave W&B, MLflow, TensorBoard, Neptune and Comet on.", panel=_HOW)
