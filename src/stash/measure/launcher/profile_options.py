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
        "PCT",
        "Measure until every stall is known to ± this of a step.",
        parsers.percent,
        panel=_HOW,
        project=parsers.percent,
    )
    """A fraction of the step."""
    budget: float = option(
        "TIME",
        "Measure for at most this long after warm-up.",
        parsers.duration,
        default="60s",
        panel=_HOW,
        project=parsers.duration,
    )
    rungs: tuple[str, ...] = option(
        "A,B,C",
        "Measure only these rungs of the ladder (default: all).",
        parse_rungs,
        default=NAMES,
        panel=_HOW,
    )
    data_root: str | None = option("PATH", "Name the data folder, if C code reads it.", panel=_HOW)
    start_timeout: float = option(
        "TIME",
        "Wait this long for the first step.",
        parsers.duration,
        default="5m",
        panel=_HOW,
        project=parsers.duration,
    )
    trace: str | None = option(
        "FOLDER", "Then record some steps with torch.profiler here, for `stash trace`.", panel=_HOW
    )
    keep_logging: bool = flag(
        "Keep W&B, MLflow, TensorBoard, Neptune and Comet switched on.", panel=_HOW
    )
